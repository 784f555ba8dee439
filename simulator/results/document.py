"""The ``--json`` document: one object, SI units in the names of the keys, no digits that are rounding."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

SCHEMA_VERSION = 1


def to_json(data: Mapping[str, Any]) -> str:
    """Return *data* as JSON text with a final line break; equal data give equal text."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def rounded_integer(value: float) -> int | float:
    """Return *value* as an integer if it differs from one only by rounding."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= 1e-9 * max(1.0, abs(value)) else value


def plain(value: Any) -> Any:
    """Return *value* as JSON holds it: data classes as objects, tuples as lists, what is infinite as None."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def taken(of: object, words: str) -> dict[str, Any]:
    """Return what *words* name of *of*, as plain data; of None, None.

    A word is an attribute, or ``key=attribute`` with a path of attributes (``bottleneck=bottleneck.name``).
    """
    found = {}
    for word in words.split():
        key, _, path = word.partition("=")
        value: Any = of
        for name in (path or key).split("."):
            value = None if value is None else getattr(value, name)
        found[key] = plain(value)
    return found
