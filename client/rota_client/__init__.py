"""The light distribution: the `rota` command, and whatever a person, a CI job or a node runs without the server.

Belongs here: the command line, the HTTP client, and code that must work where only `rota-client` is installed.
Does not belong here: Django, and any import of the server's packages (`scheduler`, `jobs`, `quotas` and so on).
The server adds its own words to `rota` through the entry-point group `rota.commands`.

    from rota_client import Client
    job = Client().submit({"name": "hello", "command": ["python3", "train.py"], "gpus": 1})
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota_client.client import Client as Client

try:
    __version__ = version("rota-client")
except PackageNotFoundError:  # a checkout that nobody installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> object:
    """`Client`, imported when it is first asked for: the shim and `rota --help` do without an HTTP library."""
    if name == "Client":
        return import_module("rota_client.client").Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
