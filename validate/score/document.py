"""The scores as one JSON document; errors as fractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.errors import one_line
from validate.score.baselines import ALPHA_BETA_RING, ALPHA_S
from validate.score.groups import AXES, Group, group_rows, median_of_machines, whole
from validate.score.score import ScoredRow
from validate.score.statistics import Errors

__all__ = ["SCHEMA_VERSION", "ScoredTable", "document", "skipped_lines"]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class ScoredTable:
    """The rows of a table, which the user called ``file``, with their predictions."""

    file: str
    rows: tuple[ScoredRow, ...]


def document(
    tables: Sequence[ScoredTable], *, strategy: str, trust: Sequence[str], by: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the scores of *tables*, grouped by the usual axes and by *by*."""
    axes = [*AXES, *([tuple(by)] if by and tuple(by) not in AXES else [])]
    return {
        "schema_version": SCHEMA_VERSION,
        "strategy": strategy,
        "trust": list(trust),
        "baseline_constants": {ALPHA_BETA_RING: {"alpha_s": ALPHA_S}},
        "tables": [_table(table, axes) for table in tables],
    }


def skipped_lines(rows: Sequence[ScoredRow]) -> dict[str, list[int]]:
    """Return the lines of the rows that do not count by reason, the most frequent first."""
    found: dict[str, list[int]] = {}
    for row in rows:
        if row.skipped:
            found.setdefault(row.skipped, []).append(row.record.line)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def _table(table: ScoredTable, axes: Sequence[Sequence[str]]) -> dict[str, Any]:
    everything = whole(table.rows)
    groups = [group for axis in axes for group in group_rows(table.rows, axis)]
    lines = skipped_lines(table.rows)
    return {
        "file": one_line(table.file, 1000),
        "rows": everything.rows,
        "scored": everything.errors.n,
        "coverage": everything.coverage,
        "context": sum(row.is_context for row in table.rows),
        "skipped": {reason: len(numbers) for reason, numbers in lines.items()},
        "skipped_lines": lines,
        "overall": {
            "n": everything.errors.n,
            **_errors(everything.errors),
            "median_of_machines": median_of_machines(table.rows),
        },
        "groups": [_group(group) for group in groups if group.errors.n],
        "not_scored": [{"by": group.by, "rows": group.rows} for group in groups if not group.errors.n],
        "baselines": {ALPHA_BETA_RING: {"n": everything.baseline.n, **_errors(everything.baseline)}},
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "by": group.by,
        "n": group.errors.n,
        **_errors(group.errors),
        "rows": group.rows,
        "coverage": group.coverage,
        "baselines": {ALPHA_BETA_RING: {"n": group.baseline.n, **_errors(group.baseline)}},
    }


def _errors(errors: Errors) -> dict[str, float | None]:
    return {
        "median_ape": errors.median_ape,
        "p90_ape": errors.p90_ape,
        "mean_ape": errors.mean_ape,
        "bias": errors.bias,
    }
