"""Drift between two measurements of one machine: the rows in both, their changes, and changes of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.errors import one_line
from simulator.records import dataclass
from validate.compare.folder import Folder, key_of, row_name, value_of
from validate.tables.statistics import percentile

BOUND = 0.03
_RATES = ("GBps", "algbw_GBps", "busbw_GBps", "throughput")
_IGNORED = frozenset(("date",))


@dataclass(frozen=True, slots=True)
class DriftRow:
    """A row in both folders; ``ratio`` is the second time over the first."""

    table: str
    name: str
    ratio: float

    @property
    def change(self) -> float:
        """The relative change, without its sign."""
        return abs(self.ratio - 1)


@dataclass(frozen=True, slots=True)
class DriftClass:
    """Drift of the matched rows of ``table``, or of all tables if it is empty.

    ``median`` and ``p90`` are of abs(ratio - 1), ``ratio`` is the median ratio, ``beyond`` counts rows that changed by
    more than :data:`BOUND`.
    """

    table: str
    matched: int
    median: float
    p90: float
    ratio: float
    beyond: int


@dataclass(frozen=True, slots=True)
class Drift:
    """The drift from one folder to another."""

    path: str
    classes: tuple[DriftClass, ...]
    beyond: tuple[DriftRow, ...]
    only_first: int
    only_second: int
    environment: tuple[tuple[str, str, str], ...]


def compare_runs(first: Folder, second: Folder) -> Drift:
    """Return the drift of the rows of *second* against those of *first* that ask the same."""
    before, after = _values(first), _values(second)
    rows = []
    for key in sorted(set(before) & set(after)):
        (name, column, value), (_, other_column, other) = before[key], after[key]
        if column == other_column:
            rows.append(DriftRow(key[0], name, value / other if column in _RATES else other / value))
    classes = []
    for table in ("", *sorted({row.table for row in rows})) if rows else ():
        mine = [row for row in rows if table in ("", row.table)]
        changes, ratios = sorted(row.change for row in mine), sorted(row.ratio for row in mine)
        figures = percentile(changes, 0.5), percentile(changes, 0.9), percentile(ratios, 0.5)
        classes.append(DriftClass(table, len(mine), *figures, sum(change > BOUND for change in changes)))
    beyond = sorted((row for row in rows if row.change > BOUND), key=lambda row: (-row.change, row.table, row.name))
    only = len(set(before) - set(after)), len(set(after) - set(before))
    environment = tuple(differences(first.environment, second.environment))
    return Drift(second.path, tuple(classes), tuple(beyond), *only, environment)


def differences(first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str, str]]:
    """Return the facts in which two environments differ, each as its name and both values."""
    found = []
    for name in sorted(set(first) | set(second), key=str):
        one, two = first.get(name), second.get(name)
        if one == two or name in _IGNORED:
            continue
        if isinstance(one, dict) and isinstance(two, dict):
            found += differences(one, two, f"{prefix}{name}.")
        else:
            before, after = ("not said" if value is None else one_line(value, 100) for value in (one, two))
            found.append((one_line(f"{prefix}{name}", 60), before, after))
    return found


def _values(folder: Folder) -> dict[tuple[str, tuple[tuple[str, str], ...]], tuple[str, str, float]]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[str, str, float]] = {}
    for name, table in folder.tables.items():
        for record in table.rows:
            value = value_of(table, record)
            if value is not None:
                found.setdefault((name, key_of(table, record)), (row_name(table, record), *value))
    return found
