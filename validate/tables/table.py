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
from validate.tables.csv_text import MAX_BYTES, MAX_HELD, CsvRecord, Records, csv_bytes, read_records

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
    raw: bytes, name: str, needed: Iterable[str], read: Iterable[str], what: str = "collectives", most: int = MAX_HELD
) -> Table:
    """Return the table in *raw*, called *name* in messages; raises as :func:`read_records` and :func:`tabulate` do."""
    return tabulate(read_records(raw, name, most), name, needed, read, what)


def tabulate(records: Records, name: str, needed: Iterable[str], read: Iterable[str], what: str) -> Table:
    """Return *records*, the first of which holds the column names, as a table of *what*.

    Raises InputError where a column of *needed* is missing, one of *read* occurs twice, or there are too many.
    """
    head = records[0]
    wrong = ""
    named = [text.strip().lower() for text in head.fields]
    position = {column: named.index(column) for column in dict.fromkeys(named[:_MAX_COLUMNS])}
    missing = [column for column in needed if column not in position]
    if len(named) > _MAX_COLUMNS:
        wrong = f"has {len(named)} columns; at most {_MAX_COLUMNS} are read"
    elif missing:
        shown = one_line(", ".join(text.strip() for text in head.fields[:8]), 90)
        more = f", ... ({len(named)} in all)" if len(named) > 8 else ""
        columns = f"column{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        by_another = len(named) == 1 and any(mark in head.fields[0] for mark in ";\t|")
        wrong = f"no table of {what}: missing {columns}; found: {shown}{more}"
        wrong += "; fields are separated by commas" if by_another else ""
    elif twice := next((column for column in read if named.count(column) > 1), None):
        wrong = f"the column '{twice}' is there twice"
    if wrong:
        raise InputError(Fault(wrong, name, head.line, 1))
    return Table(name, head.fields, records.rows(), position, what, filled_columns(what))


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
        of: dict[str, list[str]] = {}
        for column, (value, rule) in found.items():
            fields[at[column]] = value
            of.setdefault(rule.source, []).append(column)
        if found:
            told = [f"{', '.join(names)}: {source}" for source, names in of.items()]
            fields[at[SOURCES]] = "; ".join([*filter(None, [fields[at[SOURCES]]]), *told])
        lines.append(fields)
    return csv_bytes(lines), counts
