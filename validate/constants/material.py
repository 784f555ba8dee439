"""Measured rows for fits of the shared constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from simulator.topology.parts import CpuPart, GpuPart
from validate.kinds import KINDS
from validate.kinds.kind import Asked, Kind, recognise
from validate.tables.cells import NotScored
from validate.tables.csv_text import Record, read_records
from validate.tables.files import read_bytes, shown_as
from validate.tables.names import Names
from validate.tables.table import tabulate

__all__ = ["FitRow", "read_rows"]


@dataclass(frozen=True, slots=True)
class FitRow:
    """A row: its question, its measured seconds, its cells and labels, and its place of measurement.

    ``file`` is its table's file; ``place`` is a device or a machine, ``part`` the device's part; ``weight`` is the
    table's ``fit_weight``.
    """

    kind: str
    file: str
    asked: Asked
    time_s: float
    cells: Mapping[str, str]
    place: str
    part: GpuPart | CpuPart | None
    weight: float

    @property
    def op(self) -> str:
        """The operator or collective."""
        return self.cells.get("op") or self.cells.get("collective", "")


def read_rows(files: Sequence[str], names: Names, kinds: Collection[str], ops: Collection[str] = ()) -> list[FitRow]:
    """Return the rows of the tables *files* of *kinds* that can be read as questions; with *ops*, only those operators.

    Raises InputError if a table cannot be read or lacks a column.
    """
    found: list[FitRow] = []
    for file in files:
        records = read_records(read_bytes(file), shown_as(file))
        kind = recognise(records[0].fields, KINDS)
        if kind.name in kinds:
            found += [row for row in _rows(file, records, kind, names) if not ops or row.op in ops]
    return found


def _rows(file: str, records: Sequence[Record], kind: Kind, names: Names) -> list[FitRow]:
    table = tabulate(records, shown_as(file), kind.needed, kind.columns, kind.name)
    columns = dict.fromkeys((*table.position, *table.conventions))
    found = []
    for record in table.rows:
        cells = {name: text for name in columns if (text := table.cell(record, name))}

        def cell(column: str, cells: Mapping[str, str] = cells) -> str:
            return cells.get(column, "")

        try:
            asked, time_s = kind.read(cell, names), kind.measured_s(cell, names)
            place = cell(kind.place)
            part = names.devices.described(place) if kind.place == "device" else None
            labels = kind.labelled(cell, names, names.session)
        except NotScored:
            continue  # validate score reports such rows
        weight = float(cell("fit_weight") or 1.0)
        found.append(FitRow(kind.name, file, asked, time_s, {**labels, **cells}, place, part, weight))
    return found
