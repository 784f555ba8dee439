"""The ``--json`` document: one object, SI units in the names of the keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from simulator.results.result import Result

if TYPE_CHECKING:
    from simulator.questions.options import StepOptions

SCHEMA_VERSION = 1


def document(topology: str, workload: str, results: Sequence[Result], unfit: Mapping[str, str]) -> dict[str, Any]:
    """Return *results*, and the reasons of the strategies in *unfit*, as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "topology": topology,
        "workload": workload,
        "results": [result.to_dict() for result in results],
        "unfit": [{"strategy": name, "reason": reason} for name, reason in unfit.items()],
    }


def options_document(options: StepOptions) -> dict[str, Any]:
    """Return *options* as plain data."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(options).items()}


def to_json(data: Mapping[str, Any]) -> str:
    """Return *data* as JSON text with a final line break; equal data give equal text."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"
