"""Names of other libraries' functions and settings, in ``names.json``, by what they have in common."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files


@cache
def listed_names(what: str) -> tuple[str, ...]:
    """Return the names of *what*."""
    return tuple(json.loads(files("simulator.workload").joinpath("names.json").read_text(encoding="utf-8"))[what])
