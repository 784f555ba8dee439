"""The ``--json`` document: one object, SI units in the names of the keys, no digits that are rounding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.questions.options import StepOptions

SCHEMA_VERSION = 1


def options_document(options: StepOptions) -> dict[str, Any]:
    """Return *options* as plain data."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(options).items()}


def to_json(data: Mapping[str, Any]) -> str:
    """Return *data* as JSON text with a final line break; equal data give equal text."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def rounded_integer(value: float) -> int | float:
    """Return *value* as an integer if it differs from one only by rounding."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= 1e-9 * max(1.0, abs(value)) else value


def rounded_share(value: float) -> float:
    """Return a share of a whole with 12 decimal places."""
    return round(value, 12)


def taken(of: object, *names: str, **renamed: str) -> dict[str, Any]:
    """Return the attributes *names* of *of* by name, then those *renamed*: key=attribute."""
    return {key: getattr(of, name) for key, name in {**dict(zip(names, names, strict=True)), **renamed}.items()}
