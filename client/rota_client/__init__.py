"""The light distribution: the `rota` command, and whatever a person, a CI job or a node runs without the server.

Belongs here: the command line, the HTTP client, and code that must work where only `rota-client` is installed.
Does not belong here: Django, and any import of the server's packages (`scheduler`, `jobs`, `quotas` and so on).
The server adds its own words to `rota` through the entry-point group `rota.commands`.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rota-client")
except PackageNotFoundError:  # a checkout that nobody installed
    __version__ = "0+unknown"
