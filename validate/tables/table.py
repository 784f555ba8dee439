"""A table of measurements: named columns, rows as written, and what cells left empty stand for.

It is read whole, from a file or standard input.  ``conventions.yaml`` says what empty cells mean.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass, replace
from simulator.user_files import read_user_file
from simulator.workload.precision import precision_named
from validate.tables.conventions import filled, filled_columns
from validate.tables.csv_text import MAX_BYTES, MAX_HELD, CsvRecord, LazyRecords, read_records

STDIN = "-"


def shown_as(file: str) -> str:
    """Return the name of *file* in messages."""
    return "<stdin>" if file == STDIN else one_line(file, 1000)


def read_bytes(file: str) -> bytes:
    """Return the content of *file* (``-``: standard input, cut off just above the size limit of tables).

    Raises InputError with the reason where it cannot be read, and where it is larger than that limit.
    """
    if file == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    return read_user_file(file, MAX_BYTES, needed="a CSV table", usual="score it in parts")


def same_file(file: str, out: str) -> bool:
    """Return whether both paths lead to one file; *out* need not exist, and standard input is never a file."""
    if file == STDIN:
        return False
    try:
        return os.path.samefile(file, out)
    except (OSError, ValueError):
        return os.path.realpath(file) == os.path.realpath(out)


_MAX_COLUMNS = 1000


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under named columns.

    ``header`` holds the names as written; ``position`` maps lower-case names to columns; ``conventions`` are the
    columns whose empty cells have a meaning in tables of this ``kind``.  Rows are made on access.
    """

    file: str
    header: tuple[str, ...]
    rows: Sequence[CsvRecord]
    position: Mapping[str, int]
    kind: str = ""
    conventions: frozenset[str] = frozenset()

    def cell(self, row: CsvRecord, column: str) -> str:
        """Return the text under *column*, stripped, or the value that an empty cell stands for by convention."""
        found = self.written(row, column)
        if found or column not in self.conventions:
            return found
        return filled(self.kind, column, lambda name: self.written(row, name))

    def written(self, row: CsvRecord, column: str) -> str:
        """Return the text under *column*, stripped; empty where there is no such column.

        A number format is called as here, whatever library's name for it the row has.
        """
        index = self.position.get(column)
        text = row.fields[index].strip() if index is not None and index < len(row.fields) else ""
        return (precision_named(text) or text) if column == "dtype" else text


def read_table(
    raw: bytes,
    name: str,
    needed: Iterable[str],
    read: Iterable[str],
    what: str = "collectives",
    most: int = MAX_HELD,
) -> Table:
    """Return the table in *raw*, called *name* in messages; raises as :func:`read_records` and :func:`tabulate` do."""
    return tabulate(read_records(raw, name, most), name, needed, read, what)


def tabulate(records: Sequence[CsvRecord], name: str, needed: Iterable[str], read: Iterable[str], what: str) -> Table:
    """Return *records*, the first of which holds the column names, as a table of *what*.

    Raises InputError where a column of *needed* is missing, one of *read* occurs twice, or there are too many.
    """
    head = records[0]
    if len(head.fields) > _MAX_COLUMNS:
        raise InputError(Fault(f"has {len(head.fields)} columns; at most {_MAX_COLUMNS} are read", name, head.line, 1))
    position: dict[str, int] = {}
    for index, text in enumerate(head.fields):
        column = text.strip().lower()
        position.setdefault(column, index)
    missing = [column for column in needed if column not in position]
    if missing:
        raise InputError(Fault(_missing(what, missing, head.fields), name, head.line, 1))
    named = [text.strip().lower() for text in head.fields]
    for column in read:
        if named.count(column) > 1:
            raise InputError(Fault(f"the column '{column}' is there twice", name, head.line, 1))
    return Table(name, head.fields, _Rows(records, len(head.fields)), position, what, frozenset(filled_columns(what)))


class _Rows(LazyRecords):
    """The rows of *records* below the header, where unquoted commas may have split some into too many fields."""

    def __init__(self, records: Sequence[CsvRecord], n_columns: int) -> None:
        self._records = records
        self._n_columns = n_columns

    def __len__(self) -> int:
        return len(self._records) - 1

    def made(self, index: int) -> CsvRecord:
        """Return the row at *index*, with unquoted commas rejoined."""
        return _rejoined(self._records[index + 1], self._n_columns)


def _rejoined(row: CsvRecord, n_columns: int) -> CsvRecord:
    """Join fields that begin with a blank to the one before, as unquoted commas of prose have split them.

    The row is returned unchanged unless this results in *n_columns* fields.
    """
    if len(row.fields) <= n_columns:
        return row
    fields: list[str] = []
    for field in row.fields:
        if fields and field.startswith(" "):
            fields[-1] += "," + field
        else:
            fields.append(field)
    return replace(row, fields=tuple(fields)) if len(fields) == n_columns else row


def _missing(what: str, missing: list[str], found: tuple[str, ...]) -> str:
    shown = one_line(", ".join(name.strip() for name in found[:8]), 90)
    more = f", ... ({len(found)} in all)" if len(found) > 8 else ""
    columns = "column" if len(missing) == 1 else "columns"
    text = f"no table of {what}: missing {columns} {', '.join(missing)}; found: {shown}{more}"
    if len(found) == 1 and any(mark in found[0] for mark in ";\t|"):
        text += "; fields are separated by commas"
    return text
