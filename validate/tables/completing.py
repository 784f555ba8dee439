"""Tables made complete: what their authors said elsewhere becomes columns, each cell with its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from simulator.errors import Fault, InputError
from simulator.records import replace
from validate.tables.conventions import Convention, Conventions, general, stands_for
from validate.tables.csv_text import CsvRecord, csv_bytes
from validate.tables.table import Table

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
