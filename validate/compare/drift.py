"""Two measurements of one machine: what both asked, by how much it differs, and what differs around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.errors import one_line
from validate.compare.folder import Folder, key_of, row_name, value_of
from validate.tables.statistics import percentile

__all__ = ["BOUND", "Drift", "DriftClass", "DriftRow", "compare_runs", "differences"]

BOUND = 0.03
_RATES = ("GBps", "algbw_GBps", "busbw_GBps", "throughput")
_IGNORED = frozenset(("date",))


@dataclass(frozen=True, slots=True)
class DriftRow:
    """A row of both; ``ratio`` is the second time over the first."""

    table: str
    name: str
    ratio: float

    @property
    def change(self) -> float:
        """How far apart, as a fraction."""
        return abs(self.ratio - 1)


@dataclass(frozen=True, slots=True)
class DriftClass:
    """Matched rows of one table (all where empty): middle and 90th percentile of abs(ratio - 1), middle of ratio."""

    table: str
    matched: int
    median: float
    p90: float
    ratio: float
    beyond: int


@dataclass(frozen=True, slots=True)
class Drift:
    """What became of the rows of one folder in another."""

    path: str
    classes: tuple[DriftClass, ...]
    beyond: tuple[DriftRow, ...]
    only_first: int
    only_second: int
    environment: tuple[tuple[str, str, str], ...]


def compare_runs(first: Folder, second: Folder) -> Drift:
    """Return how the rows of *second* differ from those of *first* that ask the same."""
    before, after = _values(first), _values(second)
    rows = []
    for key in sorted(set(before) & set(after)):
        name, column, value = before[key]
        _, other_column, other = after[key]
        if column == other_column:
            rows.append(DriftRow(key[0], name, value / other if column in _RATES else other / value))
    tables = sorted({row.table for row in rows})
    classes = [_class("", rows)] if rows else []
    classes += [_class(table, [row for row in rows if row.table == table]) for table in tables]
    beyond = sorted((row for row in rows if row.change > BOUND), key=lambda row: (-row.change, row.table, row.name))
    return Drift(
        second.path,
        tuple(classes),
        tuple(beyond),
        len(set(before) - set(after)),
        len(set(after) - set(before)),
        tuple(differences(first.environment, second.environment)),
    )


def differences(first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str, str]]:
    """Return what the two environments do not share: the name, and what each says."""
    found = []
    for name in sorted(set(first) | set(second), key=str):
        one, two = first.get(name), second.get(name)
        if one == two or name in _IGNORED:
            continue
        if isinstance(one, dict) and isinstance(two, dict):
            found += differences(one, two, f"{prefix}{name}.")
        else:
            found.append((one_line(f"{prefix}{name}", 60), _said(one), _said(two)))
    return found


def _said(value: Any) -> str:
    return "not said" if value is None else one_line(value, 100)


def _class(table: str, rows: Sequence[DriftRow]) -> DriftClass:
    changes = sorted(row.change for row in rows)
    ratios = sorted(row.ratio for row in rows)
    beyond = sum(change > BOUND for change in changes)
    return DriftClass(
        table, len(rows), percentile(changes, 0.5), percentile(changes, 0.9), percentile(ratios, 0.5), beyond
    )


def _values(folder: Folder) -> dict[tuple[str, tuple[tuple[str, str], ...]], tuple[str, str, float]]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[str, str, float]] = {}
    for name, table in folder.tables.items():
        for record in table.rows:
            value = value_of(table, record)
            if value is not None:
                found.setdefault((name, key_of(table, record)), (row_name(table, record), *value))
    return found
