"""The ``--json`` document: one object, SI units in the names of the keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from simulator.questions.options import StepOptions
from simulator.results.result import Result
from simulator.topology.price import price_entry

__all__ = ["SCHEMA_VERSION", "document", "options_document", "result_entry", "to_json", "whole_number"]

SCHEMA_VERSION = 1


def document(topology: str, workload: str, results: Sequence[Result], unfit: Mapping[str, str]) -> dict[str, Any]:
    """Return *results*, and the reasons of the strategies in *unfit*, as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "topology": topology,
        "workload": workload,
        "results": [result_entry(result) for result in results],
        "unfit": [{"strategy": name, "reason": reason} for name, reason in unfit.items()],
    }


def options_document(options: StepOptions) -> dict[str, Any]:
    """Return *options* as plain data."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(options).items()}


def to_json(data: Mapping[str, Any]) -> str:
    """Return *data* as JSON text with a final line break; equal data give equal text."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def result_entry(result: Result) -> dict[str, Any]:
    """Return one entry of the results in :func:`document`."""
    busiest = result.bottleneck
    prices = {
        "price_per_hour": price_entry(result.price_per_hour),
        "price_per_million_exchanges": price_entry(result.price_per_million),
    }
    return {
        "topology": result.machine,
        **({"changed": result.changed.to_dict()} if result.changed else {}),
        "strategy": result.strategy,
        "is_bound": result.is_bound,
        "counts_software": result.counts_software,
        "collective": result.collective,
        "n_ranks": result.n_ranks,
        "gpus": list(result.gpus),
        "bytes": whole_number(result.size_bytes),
        "sync_time_s": result.sync_time_s,
        **result.confidence.to_dict(),
        "algbw_Bps": result.algbw_Bps,
        "busbw_Bps": result.busbw_Bps,
        **(prices if result.price_per_hour is not None else {}),
        "simulation_events": result.simulation_events,
        "bottleneck": None if busiest is None else {"link": busiest.name, "utilisation": _share(busiest.utilisation)},
        "links": [
            {"name": use.name, "bytes": whole_number(use.bytes), "utilisation": _share(use.utilisation)}
            for use in result.links
        ],
        "rings": [list(ring) for ring in result.rings],
        "notes": list(result.notes),
        "facts": dict(result.facts),
    }


def whole_number(value: float) -> int | float:
    """Return *value* as an integer if it differs from one only by rounding."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= 1e-9 * max(1.0, abs(value)) else value


def _share(value: float) -> float:
    return round(value, 12)
