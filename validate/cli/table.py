"""The command ``validate table complete``: what a table's authors say elsewhere becomes columns of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from simulator.errors import InputError, nearest, one_line
from validate.cli.command import Quiet, Text, command_named, group_of_commands, positional, value
from validate.cli.words import opened, print_remarks
from validate.kinds import KINDS
from validate.kinds.kind import read_measurements
from validate.tables.completing import made_complete
from validate.tables.conventions import NAMES, PUBLISHED, Conventions, read_conventions
from validate.tables.csv_text import MAX_ROWS
from validate.tables.table import same_file

group = group_of_commands("table", "Make tables of measurements complete.")


@command_named("complete", of=group)
def complete_table(
    file: Annotated[Text, positional("TABLE.csv", "A table of measurements; - is standard input.")] = None,
    conventions: Annotated[
        Text, value("FILE", f"What the table leaves out, as rules in YAML; {PUBLISHED}: those of published tables.")
    ] = None,
    out: Annotated[Text, value("FILE", "The completed table.")] = None,
    quiet: Quiet = False,
) -> None:
    """Write a table with what its authors say elsewhere in columns of its own, and the sources in a column beside.

    Cells that hold something stay.  Predictions depend on the columns alone, not on the name of a data set or machine.
    docs/scoring.md explains the rules.
    """
    given = {"a table": file, "--conventions": conventions, "--out": out}
    if file is None or conventions is None or out is None:
        missing = ", ".join(name for name, text in given.items() if text is None)
        raise InputError(
            f"needed: {missing}; for example validate table complete t.csv --conventions {PUBLISHED} --out u.csv"
        )
    if same_file(file, out):
        raise InputError(f"--out {one_line(out)}: is the table; name another file")
    rules = read_conventions(conventions)
    table, _ = read_measurements(file, KINDS, MAX_ROWS)
    _check(rules, conventions, table.header)
    with opened(out) as output:
        content, counts = made_complete(table, rules)
        if output is not None:
            output.write(content)
    said = [f"{column}: {n} cell{'s' * (n > 1)}" for column, n in counts.most_common()]
    print_remarks([f"{one_line(out)}: {'; '.join(said) or 'nothing to add'}"], quiet=quiet)


def _check(rules: Conventions, file: str, header: Iterable[str]) -> None:
    """Raise InputError where *rules* are of a kind of tables, or read or fill a column, that there is not.

    Rules may read columns of the table's own *header*, too.
    """
    columns = {kind.name: {*kind.columns, "fit_weight"} for kind in KINDS}
    for kind, by_column in rules.items():
        if kind not in columns:
            raise InputError(f"{one_line(file)}: no kind of tables '{one_line(kind, 40)}'; {nearest(kind, columns)}")
        known = {*columns[kind], *NAMES, *header, "framework"}
        looked_at = {column for rules_of in by_column.values() for rule in rules_of for column in rule.looks_at()}
        for column, allowed in (*((c, columns[kind]) for c in by_column), *((c, known) for c in sorted(looked_at))):
            if column not in allowed:
                where = f"{one_line(file)}: tables of {kind} have no column '{one_line(column, 40)}'"
                raise InputError(f"{where}; {nearest(column, allowed)}")
