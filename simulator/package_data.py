"""Tables of facts that come with the packages, as YAML or JSON."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def own_data(package: str, name: str) -> Any:
    """Return what *name*, a file in *package*, holds: one object for all, which nobody changes."""
    raw = files(package).joinpath(name).read_bytes()
    if name.endswith(".json"):
        return json.loads(raw)
    import yaml  # the zoo needs the standard library alone

    return yaml.load(raw, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
