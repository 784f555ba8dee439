"""A program's result as the ``--json`` document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulator.results.document import SCHEMA_VERSION
from simulator.results.program import ProgramResult


def programs_document(workload: str, results: Sequence[ProgramResult]) -> dict[str, Any]:
    """Return *results*, one per machine, as plain data; those of a single machine are repeated at the top."""
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "workload": workload}
    entries = [result.to_dict() for result in results]
    if len(entries) == 1:
        document |= entries[0]
    return {**document, "results": entries}
