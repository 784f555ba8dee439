"""A program's result as the ``--json`` document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.results.document import SCHEMA_VERSION
from simulator.results.program import ProgramResult

__all__ = ["program_entry", "programs_document"]


def programs_document(workload: str, results: Sequence[ProgramResult]) -> dict[str, Any]:
    """Return *results*, one per machine, as plain data; those of a single machine are repeated at the top."""
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "workload": workload}
    entries = [program_entry(result) for result in results]
    if len(entries) == 1:
        document |= entries[0]
    return {**document, "results": entries}


def program_entry(result: ProgramResult) -> dict[str, Any]:
    """Return one entry of the results in :func:`programs_document`."""
    return {
        "topology": result.machine,
        **({"changed": result.changed.to_dict()} if result.changed else {}),
        "program": result.name,
        "device": result.device,
        "issued_s": result.issued_s,
        "done_s": result.done_s,
        **result.confidence.to_dict(),
        "operators": result.operators,
        "copies": result.copies,
        "bound": result.bound,
        "bound_stream": result.bound_stream,
        "answers": result.answers,
        "marks": {
            name: {"first_s": mark.first_s, "last_s": mark.last_s, "count": mark.count}
            for name, mark in result.marks.items()
        },
        "streams": {
            name: {"busy_s": times.busy_s, "waiting_s": times.waiting_s, "by_bound_s": dict(times.by_bound)}
            for name, times in result.streams.items()
        },
        "held_bytes": result.held_bytes,
        "held": [{"time_s": at_s, "bytes": n_bytes} for at_s, n_bytes in result.held],
        "simulation_events": result.timeline.simulation_events,
    }
