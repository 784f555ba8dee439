"""A measured row of a table with what it asks: :class:`MeasuredRow`, and the one reader of such rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from simulator.topology.parts import CpuPart, GpuPart
from validate.kinds.kind import Asked, Kind
from validate.tables.cells import NotScored
from validate.tables.names import Names
from validate.tables.sample import digest
from validate.tables.table import Table

Skip = Callable[[int, str], None]
"""Called with the line of each unused row and the reason."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A row: its question, its measured seconds, and where it is.

    ``time_s`` is NaN, and ``untimed`` the reason, if the row has no valid time.  ``cells`` are the non-empty ones, with
    what empty ones stand for and the labels of its ``kind``.  ``digest`` is that of its question.  ``place`` is a
    device or a machine, ``part`` the device's part.
    """

    asked: Asked
    time_s: float
    cells: Mapping[str, str]
    kind: str = ""
    file: str = ""
    line: int = 0
    digest: str = ""
    place: str = ""
    part: GpuPart | CpuPart | None = None
    untimed: str = ""

    @property
    def op(self) -> str:
        """The operator or collective."""
        return self.cells.get("op") or self.cells.get("collective", "")

    @property
    def grade(self) -> str:
        """The trust grade, in upper case; empty if it has none."""
        return self.cells.get("trust", "").upper()

    @property
    def weight(self) -> float:
        """The table's ``fit_weight``."""
        return float(self.cells.get("fit_weight") or 1.0)


def whole_row(found: int, columns: int) -> str:
    """Return why a row of *found* fields does not count in a table of *columns*; empty if it does."""
    return "" if found == columns else f"{found} fields where the header has {columns}"


def ignore(line: int, reason: str) -> None:
    """Take no notice of an unused row."""
    del line, reason


def measured_rows(table: Table, kind: Kind, names: Names, skip: Skip = ignore) -> Iterator[MeasuredRow]:
    """Yield the rows of *table* that can be read as questions, in order."""
    columns = dict.fromkeys((*table.position, *table.conventions))
    for record in table.rows:
        cells = {name: text for name in columns if (text := table.cell(record, name))}

        def cell(column: str, cells: Mapping[str, str] = cells) -> str:
            return cells.get(column, "")

        time_s, untimed = math.nan, ""
        try:
            if lacking := whole_row(len(record.fields), len(table.header)):
                raise NotScored(lacking)
            asked, place = kind.question(cell, names), cell(kind.place)
            part = names.devices.described(place) if kind.place == "device" else None
            labels = kind.labelled(cell, names, names.session)
        except NotScored as reason:
            skip(record.line, str(reason))
            continue
        try:
            time_s = kind.measured_s(cell, names)
        except NotScored as reason:
            untimed = str(reason)
        key = digest({column: cell(column) for column in kind.asked})
        yield MeasuredRow(
            asked, time_s, {**labels, **cells}, kind.name, table.file, record.line, key, place, part, untimed
        )
