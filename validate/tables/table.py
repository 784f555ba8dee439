"""A table of measurements: named columns, rows as written, and what cells left empty stand for.

It is read whole, from a file or standard input.  ``conventions.yaml`` says what empty cells mean.  A table is made
complete where what its authors said elsewhere becomes columns, each cell with its source (:func:`made_complete`).
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import dataclass, replace
from simulator.topology.yaml_source import YamlSource, parse_yaml, read_yaml
from simulator.user_files import read_user_file
from simulator.workload.precision import precision_named
from validate.tables.cells import MAX_BYTES, MAX_HELD, CsvRecord, Records, csv_bytes, read_records

PUBLISHED = "published"  # the name of the conventions of published tables that come along

NAMES = frozenset({"dataset", "machine", "source", "note", "row_id"})
"""Columns that say whose a row is; conventions of every table look at none of them."""

_COPIED = re.compile(r"\{(\w+)(?::([^{}]*))?\}")
_KEYS = ("when", "unless", "set", "source")
_NEEDS = "conventions need the kind of table, and rules with when, set and source"
_INSTEAD = "put the columns into the table instead"
_Pattern = tuple[str, re.Pattern[str]]
Cell = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Convention:
    """A rule: where ``when`` matches and ``unless`` does not, the empty ``column`` stands for ``value``.

    A value may copy from other columns.  With ``by``, ``value`` is one of ``values``: that of the text in that column.
    """

    when: tuple[_Pattern, ...]
    unless: tuple[_Pattern, ...]
    column: str
    value: str
    source: str
    by: str = ""
    values: Mapping[str, str] | None = None
    place: Fault = Fault("")

    def fault(self, message: str) -> Fault:
        """Return a fault with *message* at the column that the rule sets."""
        return replace(self.place, message=message)

    def looks_at(self) -> set[str]:
        """Return the columns that the rule depends on."""
        copied = {match[1] for match in _COPIED.finditer(self.value)}
        return {column for column, _ in (*self.when, *self.unless)} | copied | ({self.by} - {""})

    def value_for(self, text: Cell) -> str | None:
        """Return what the column stands for in a row with *text*; None where the rule says nothing of it."""
        if not all(pattern.search(text(name)) for name, pattern in self.when):
            return None
        if any(pattern.search(text(name)) for name, pattern in self.unless):
            return None
        if self.values is not None:
            return self.values.get(text(self.by).lower())

        def copied(match: re.Match[str]) -> str:
            """Return a cell, or the first group that a pattern finds in it ("" where it finds none)."""
            if match[2] is None:
                return text(match[1])
            found = re.search(match[2], text(match[1]), re.IGNORECASE)
            return found[1] if found else ""

        return _COPIED.sub(copied, self.value)


Conventions = Mapping[str, Mapping[str, tuple[Convention, ...]]]
"""Rules by the kind of table and by the column that they fill; of several the first counts."""


@lru_cache(maxsize=2)
def conventions_of(name: str) -> Conventions:
    """Return the conventions of the file *name*.yaml that comes along."""
    file = f"{name}.yaml"
    raw = files("validate.tables").joinpath(file).read_bytes()
    return _rules(parse_yaml(raw, file, needs=_NEEDS, instead=_INSTEAD))


def read_conventions(file: str) -> Conventions:
    """Return the conventions in *file*, a path or ``published``; raises InputError with the place of each mistake."""
    if file == PUBLISHED:
        return conventions_of(PUBLISHED)
    if "." not in file and not Path(file).exists():
        raise InputError(f"--conventions {one_line(file, 60)}: no such file; {nearest(file, [PUBLISHED])}")
    return _rules(read_yaml(Path(file), needs=_NEEDS, instead=_INSTEAD))


def _rules(source: YamlSource) -> Conventions:
    faults: list[Fault] = []
    found: dict[str, dict[str, tuple[Convention, ...]]] = {}
    if not isinstance(source.data, dict):
        words = {list: "a list", type(None): "nothing"}.get(type(source.data), f"'{one_line(str(source.data), 40)}'")
        raise InputError(source.fault((), f"{_NEEDS}; found {words}"))
    for kind, rules in source.data.items():
        by_column = found.setdefault(str(kind), {})
        if not isinstance(rules, list):
            faults.append(source.fault((kind,), "a list of rules is needed"))
            continue
        for number, rule in enumerate(rules):
            wrong = _faults_of(rule)
            faults += [source.fault((kind, number, *path), message, key=True) for path, message in wrong]
            for each in _conventions(rule) if not wrong else ():
                place = source.fault((kind, number, "set", each.column), "", key=True)
                by_column[each.column] = (*by_column.get(each.column, ()), replace(each, place=place))
    if faults:
        raise InputError(faults)
    return found


def _faults_of(rule: Any) -> list[tuple[tuple[str, ...], str]]:
    if not isinstance(rule, dict):
        return [((), "a rule with when, set and source is needed")]
    unknown = [str(key) for key in rule.keys() - {*_KEYS}]
    found: list[tuple[tuple[str, ...], str]] = [
        ((key,), f"a rule has no '{one_line(key, 40)}'; {nearest(key, _KEYS)}") for key in unknown
    ]
    found += [((), f"the rule lacks '{key}'") for key in ("when", "set", "source") if not rule.get(key)]
    parts = [(part, rule.get(part, {})) for part in ("when", "unless", "set")]
    for part, columns in parts:
        if not isinstance(columns, dict):
            return [*found, ((part,), f"'{part}' needs columns")]
    for part, column, value in ((part, *item) for part, columns in parts for item in columns.items()):
        chosen = list(value.values()) if isinstance(value, dict) else [{}]
        if part == "set" and (isinstance(value, list) or len(chosen) != 1 or not isinstance(chosen[0], dict)):
            found.append(((part, column), "a value, or one column with its values, is needed"))
        try:
            re.compile(str(value) if part != "set" else "")
        except re.error as error:
            found.append(((part, column), f"is no regular expression: {error}"))
    return found


def _conventions(rule: Mapping[str, Any]) -> Iterator[Convention]:
    when, unless = (
        tuple((column, re.compile(str(pattern), re.IGNORECASE)) for column, pattern in rule.get(part, {}).items())
        for part in ("when", "unless")
    )
    for column, value in rule["set"].items():
        found = Convention(when, unless, column, "" if isinstance(value, dict) else str(value), str(rule["source"]))
        if isinstance(value, dict):
            ((by, values),) = value.items()
            found = replace(found, by=by, values={str(key).lower(): str(each) for key, each in values.items()})
        yield found


def general() -> Conventions:
    """Return the conventions of every table."""
    return conventions_of("conventions")


def filled_columns(kind: str) -> frozenset[str]:
    """Return the columns of tables of *kind* whose empty cells may stand for something."""
    return frozenset(general().get(kind, ()))


def filled(kind: str, column: str, cell: Cell) -> str:
    """Return the value that an empty *column* of a row stands for, "" for none; *cell* returns the row's own cells."""
    return stands_for((general().get(kind, {}),), column, cell)[0]


def stands_for(
    rules: Sequence[Mapping[str, tuple[Convention, ...]]], column: str, cell: Cell
) -> tuple[str, Convention | None]:
    """Return what an empty *column* stands for, and the rule; of *rules* the first that applies counts."""

    def text(name: str) -> str:
        found = cell(name)
        if not found and name == "framework":
            return cell("software")
        return found or (stands_for(rules, name, cell)[0] if name != column else "")

    for rule in (rule for each in rules for rule in each.get(column, ())):
        value = rule.value_for(text)
        if value is not None:
            return value, rule
    return "", None


STDIN = "-"


def shown_as(file: str) -> str:
    """Return the name of *file* in messages."""
    return "<stdin>" if file == STDIN else one_line(file, 1000)


def read_bytes(file: str) -> bytes:
    """Return the content of *file* (``-``: standard input); raises InputError if unreadable or too large."""
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
        return filled(self.kind, column, partial(self.written, row))

    def written(self, row: CsvRecord, column: str) -> str:
        """Return the stripped text under *column*, empty without one; formats are called as here."""
        index = self.position.get(column)
        text = row.fields[index].strip() if index is not None and index < len(row.fields) else ""
        return (precision_named(text) or text) if column == "dtype" else text


def read_table(
    raw: bytes, name: str, needed: Iterable[str], read: Iterable[str], what: str = "collectives", most: int = MAX_HELD
) -> Table:
    """Return the table in *raw*, called *name* in messages; raises as :func:`read_records` and :func:`tabulate` do."""
    return tabulate(read_records(raw, name, most), name, needed, read, what)


def tabulate(records: Records, name: str, needed: Iterable[str], read: Iterable[str], what: str) -> Table:
    """Return *records*, the first holding the names of columns, as a table of *what*; raises InputError."""
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


SOURCES = "completed"  # the column in which a completed table has the sources of what was added to a row

_LOOKED_AT = 2000  # rows
AddedCells = dict[str, tuple[str, Convention]]  # of a row, by column: the value, and the rule that it is from


def added_cells(table: Table, conventions: Conventions) -> Iterator[AddedCells]:
    """Yield for each row of *table* the values that *conventions*, but the general, fill in, and their rules."""
    own, common = conventions.get(table.kind, {}), general().get(table.kind, {})
    for row in table.rows:
        cell, found = partial(table.written, row), AddedCells()
        for column in own:
            value, rule = stands_for((own, common), column, cell) if not cell(column) else ("", None)
            if rule is not None and value and rule in own[column]:
                found[column] = value, rule
        yield found


def is_incomplete(table: Table, conventions: Conventions, unread: Collection[str] = ()) -> bool:
    """Return whether *conventions* add more than the columns *unread* to *table*, by some rows of a long one."""
    if table.kind not in conventions:
        return False
    some = replace(table, rows=table.rows[:: 1 + len(table.rows) // _LOOKED_AT])
    return any(found.keys() - {*unread} for found in added_cells(some, conventions))


def made_complete(table: Table, conventions: Conventions) -> tuple[bytes, Counter[str]]:
    """Return *table* completed by *conventions* as CSV, sources in ``completed``, and counts; raises InputError."""
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
