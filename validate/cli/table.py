"""The command ``validate table complete``: what a table's authors say elsewhere becomes columns of it."""

from collections import Counter
from collections.abc import Iterable

from simulator.errors import Fault, InputError, nearest, one_line
from validate.cli.command import Given
from validate.kinds import KINDS
from validate.kinds.kind import Kind, read_measurements
from validate.tables import table as tables
from validate.tables.cells import MAX_ROWS, CsvRecord, NotScored, read_records
from validate.tables.names import RowNames

_TRIED = 8  # rows for each value of a rule
_SAID = ("fabric", "framework")  # what a row may say besides the columns of its kind, in its authors' words
_SETS_ASIDE = ("unclear", "network")  # columns by which authors may say that a row cannot be predicted


def complete_table(given: Given) -> None:
    """Write a table with what its authors say elsewhere in columns of its own, and the sources in a column beside."""
    file, conventions, out = given.file, given.conventions, given.out
    needed = {"a table": file, "--conventions": conventions, "--out": out}
    if None in needed.values():
        missing = ", ".join(name for name, text in needed.items() if text is None)
        example = f"validate table complete t.csv --conventions {tables.PUBLISHED} --out u.csv"
        raise InputError(f"needed: {missing}; for example {example}")
    if tables.same_file(file, out):
        raise InputError(f"--out {one_line(out)}: is the table; name another file")
    table, _ = read_measurements(file, KINDS, MAX_ROWS)
    with given.opened("out") as output:
        content, counts = _completed(table, conventions)
        if output is not None:
            output.write(content)
    said = [f"{column}: {n} cell{'s' * (n > 1)}" for column, n in counts.most_common()]
    given.remark([f"{one_line(out)}: {'; '.join(said) or 'nothing to add'}"])


def completed_table(table: tables.Table, kind: Kind, conventions: str, most: int) -> tables.Table:
    """Return *table*, of at most *most* rows, with what *conventions* say in its columns; raises InputError."""
    records = read_records(_completed(table, conventions)[0], table.file, most)
    return tables.tabulate(records, table.file, kind.needed_in(records[0].fields), kind.columns, kind.name)


def _completed(table: tables.Table, conventions: str) -> tuple[bytes, Counter[str]]:
    rules = tables.read_conventions(conventions)
    _check(rules, conventions, table.header)
    if unread := _unread_values(table, rules):
        raise InputError(unread)
    return tables.made_complete(table, rules)


def _check(rules: tables.Conventions, file: str, header: Iterable[str]) -> None:
    """Raise InputError where *rules* are of a kind of tables, or of a column, that neither there is nor in *header*."""
    columns = {kind.name: {*kind.columns, "fit_weight"} for kind in KINDS}
    faults: list[Fault] = []
    for kind, by_column in rules.items():
        if kind not in columns:
            raise InputError(f"{one_line(file)}: no kind of tables '{one_line(kind, 40)}'; {nearest(kind, columns)}")
        known = {*columns[kind], *tables.NAMES, *header, *_SAID}
        for rule in (rule for rules_of in by_column.values() for rule in rules_of):
            named = (rule.column, columns[kind]), *((column, known) for column in sorted(rule.looks_at()))
            for column, allowed in named:
                if column not in allowed:
                    none = f"tables of {kind} have no column '{one_line(column, 40)}'"
                    faults.append(rule.fault(f"{none}; {nearest(column, allowed)}"))
    if faults:
        raise InputError(list(dict.fromkeys(faults)))


def _unread_values(table: tables.Table, rules: tables.Conventions) -> list[Fault]:
    """Return a fault of each value of *rules* without which a row can be read and with it not; some rows are tried."""
    kind = next(kind for kind in KINDS if kind.name == table.kind)
    tried: Counter[tuple[int, str]] = Counter()
    faults: dict[tuple[int, str], Fault] = {}
    for row, added in zip(table.rows, tables.added_cells(table, rules), strict=True):
        for column, (text, rule) in added.items():
            key = id(rule), text
            if column not in kind.asked or column in _SETS_ASIDE or key in faults or tried[key] == _TRIED:
                continue
            tried[key] += 1
            why = _why_unread(kind, table, row, added)
            others = {name: each for name, each in added.items() if name != column}
            if why and not _why_unread(kind, table, row, others):
                said = f"{column} '{one_line(text, 40)}'"
                faults[key] = rule.fault(why if why.startswith(said) else f"{said}: {why}")
    return list(faults.values())


def _why_unread(kind: Kind, table: tables.Table, row: CsvRecord, added: tables.AddedCells) -> str:
    """Return why *row* with the cells *added* is no question; empty if it is one."""

    def own(name: str) -> str:
        return table.written(row, name) or (added[name][0] if name in added else "")

    try:
        kind.question(lambda name: own(name) or tables.filled(kind.name, name, own), RowNames())
    except NotScored as reason:
        return str(reason)
    return ""
