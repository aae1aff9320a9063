"""The known models: ``models.toml`` as values."""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from types import MappingProxyType

from jobs.reading import SpecError
from scheduler.estimate.architecture import Architecture, Norm

VERSION = 1
"""The form of ``models.toml`` that this module reads."""


@cache
def catalogue() -> Mapping[str, Architecture]:
    """Every known model by name. Raises SpecError if the table is not of the form that is read here."""
    table = tomllib.loads(resources.files(__package__).joinpath("models.toml").read_text(encoding="utf-8"))
    if table["version"] != VERSION:
        raise SpecError("version", f"models.toml must be version {VERSION}, not {table['version']}")
    found = {}
    for name, fields in table["models"].items():
        norm = Norm(fields.pop("norm", Norm.RMS))
        found[name] = Architecture(name=name, norm=norm, **fields)
    return MappingProxyType(found)


def known(name: str) -> Architecture:
    """The model of this name. Raises SpecError with the nearest names."""
    models = catalogue()
    if name.lower() in models:
        return models[name.lower()]
    near = get_close_matches(name.lower(), models, n=3) or list(models)
    raise SpecError("model", f"{name!r} is not known; try {', '.join(near)}, or give parameters")
