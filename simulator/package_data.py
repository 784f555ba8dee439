"""Tables of facts that come with the packages, as YAML."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def own_data(package: str, name: str) -> Any:
    """Return what *name*, a YAML file in *package*, holds: one object for all, which nobody changes."""
    raw = files(package).joinpath(name).read_bytes()
    return yaml.load(raw, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
