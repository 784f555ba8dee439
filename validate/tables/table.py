"""A table of measurements: named columns, rows as written, and what cells left empty stand for.

It is read whole, from a file or standard input.  ``conventions.yaml`` says what empty cells mean.  A table is made
complete where what its authors said elsewhere becomes columns, each cell with its source (:func:`made_complete`).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass, replace
from simulator.user_files import read_user_file
from simulator.workload.precision import precision_named
from validate.tables.conventions import Convention, Conventions, filled, filled_columns, general, stands_for
from validate.tables.csv_text import MAX_BYTES, MAX_HELD, CsvRecord, LazyRecords, csv_bytes, read_records

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


SOURCES = "completed"
"""The column in which a completed table has the sources of what was added to a row."""

_LOOKED_AT = 2000  # rows
AddedCells = dict[str, tuple[str, Convention]]  # of a row, by column: the value, and the rule that it is from


def added_cells(table: Table, conventions: Conventions) -> Iterator[AddedCells]:
    """Yield what *conventions* say of each row of *table*: the value of each empty column that they fill, and the rule.

    Cells that the conventions of every table fill are left empty.
    """
    own, common = conventions.get(table.kind, {}), general().get(table.kind, {})
    for row in table.rows:

        def cell(name: str, row: CsvRecord = row) -> str:
            return table.written(row, name)

        found: AddedCells = {}
        for column in own:
            value, rule = stands_for((own, common), column, cell) if not cell(column) else ("", None)
            if rule is not None and value and rule in own[column]:
                found[column] = value, rule
        yield found


def is_incomplete(table: Table, conventions: Conventions, unread: Collection[str] = ()) -> bool:
    """Return whether *conventions* add something to a row of *table* besides the columns *unread*.

    Of a long table some rows are looked at.
    """
    if table.kind not in conventions:
        return False
    some = replace(table, rows=table.rows[:: 1 + len(table.rows) // _LOOKED_AT])
    return any(found.keys() - {*unread} for found in added_cells(some, conventions))


def made_complete(table: Table, conventions: Conventions) -> tuple[bytes, Counter[str]]:
    """Return *table* as CSV with what *conventions* say of its rows in columns, and how many cells of each were added.

    The column ``completed`` has the sources.  Raises InputError where a row has more or fewer fields than the header.
    """
    every = list(added_cells(table, conventions))
    counts = Counter(column for found in every for column in found)
    new = [column for column in (*counts, SOURCES) if counts and column not in table.position]
    lines = [[*table.header, *new]]
    at = {name.strip().lower(): index for index, name in reversed(list(enumerate(lines[0])))}
    for row, found in zip(table.rows, every, strict=True):
        if len(row.fields) != len(table.header):
            message = f"{len(row.fields)} fields where the header has {len(table.header)}"
            raise InputError(Fault(message, table.file, row.line, 1))
        fields = [*row.fields, *[""] * len(new)]
        for column, (value, _) in found.items():
            fields[at[column]] = value
        if found:
            of: dict[str, list[str]] = {}
            for column, (_, rule) in found.items():
                of.setdefault(rule.source, []).append(column)
            told = [f"{', '.join(names)}: {source}" for source, names in of.items()]
            fields[at[SOURCES]] = "; ".join([*filter(None, [fields[at[SOURCES]]]), *told])
        lines.append(fields)
    return csv_bytes(lines), counts
