"""The commands ``validate score`` and ``validate table complete``, by which authors' words become columns."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from simulator.console import Progress
from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import replace
from validate.cli.command import TRUSTED, Given, incomplete, number_in, words_in
from validate.constants.calibrate import calibrate_devices
from validate.kinds import KINDS, OPERATORS
from validate.kinds.kind import Kind, MeasuredRow, read_measurements
from validate.score.report import Predictions, ScoredTable, scores_document, scores_for, scores_report
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables import table as tabular
from validate.tables.cells import MAX_HELD, MAX_ROWS, CsvRecord, NotScored
from validate.tables.names import RowNames
from validate.tables.table import STDIN, Table, same_file


def score_command(given: Given) -> None:
    """Predict every row of measured tables and show the error."""
    files, out = given.files, given.out
    grades = given.grades()
    axes: list[str] = []
    if given.by is not None:
        axes = words_in("--by", given.by, "names of columns such as machine,collective")
    if files.count(STDIN) > 1:
        raise InputError("- (standard input) can be read once; it is named twice")
    told = "a number of rows such as 50 is needed"
    rows = given.calibrate
    count = 0 if rows is None else number_in("--calibrate", rows, r"0*[1-9][0-9]{0,5}", told)
    processes = given.processes()
    options = ("topology", "machine", "strategy", "device", "calibration", "baselines")
    scoring = Scoring(ScoringOptions(*(getattr(given, name) for name in options)))
    with ExitStack() as stack:
        output = stack.enter_context(given.opened("out"))
        for file in files:
            if output is not None and same_file(file, out or ""):
                raise InputError(f"--out {one_line(out)}: is one of the tables; name another file")
        most = MAX_HELD if count else MAX_ROWS
        tables = [read_measurements(file, scoring.kinds, most) for file in files]
        if given.conventions is not None:
            tables = [(completed_table(table, kind, given.conventions, most), kind) for table, kind in tables]
        scoring.check(tables, count)
        _check_axes(axes, tables)
        n_rows = sum(len(table.rows) for table, _ in tables)
        progress = stack.enter_context(Progress(n_rows, "scoring", quiet=given.quiet))
        written = Predictions([table for table, _ in tables], output.add) if output is not None else None
        scored = []
        for table, kind in tables:
            found = ScoredTable(table.file, scores_for(kind, axes, table.file), kind, scoring.method(kind))
            seen: list[Callable[[MeasuredRow], None]] = [found.add]
            if given.scaling:
                seen.append(found.efficiencies.add)
            if written is not None:
                seen.append(written.begin(table))
            names, known = scoring.names, frozenset[str]()
            if count and kind.name == OPERATORS.name:  # calibrated on so many rows, which do not count
                calibrations, known = calibrate_devices(table, names, grades, count)
                names = scoring.calibrated(calibrations)
                found = replace(found, method=f"calibrated on at most {count} rows of each device")
            how: dict[str, Any] = {"names": names, "seen": known, "jobs": processes, "advance": progress.advance}
            for row in scoring.score(table, kind, grades, **how):
                for see in seen:
                    see(row)
            scored.append(found)
        if output is not None:
            output.finish()
    asked: dict[str, Any] = {"trust": grades, "by": axes, "scales": given.scaling}
    whole = scores_document(scored, strategy=given.strategy or "nccl", **asked) if given.json else None
    given.answer(whole, lambda style: scores_report(scored, style=style, **asked))
    said = [*incomplete(table for table, _ in tables), *_remarks(scored, grades, asked_for=given.trust != TRUSTED)]
    given.remark([*said, *given.wrote("out")])


def _remarks(tables: Sequence[ScoredTable], grades: Sequence[str], *, asked_for: bool) -> list[str]:
    found = {grade.upper() for table in tables for grade in table.rows.found("trust")}
    missing = [one_line(grade, 20) for grade in grades if grade not in found]
    said = []
    if asked_for and missing:
        there = one_line(", ".join(sorted(found)), 60) or "none"
        said.append(f"--trust: no row has the grade {', '.join(missing)}; grades there are: {there}")
    reasons: Counter[str] = Counter()
    for table in tables:
        reasons.update({reason: len(lines) for reason, lines in table.rows.skipped().items()})
    any_memory = any(table.rows_of_memory for table in tables)
    if reasons.total() == sum(len(table.rows) for table in tables) and not any_memory:
        most = min(reasons, key=lambda reason: (-reasons[reason], reason), default="there are none")
        said.append(f"no row was scored: {most}")
        if len(reasons) > 1:
            said[-1] += f", and {len(reasons) - 1} other reason{'s' if len(reasons) > 2 else ''}"
    return said


def _check_axes(axes: Sequence[str], tables: Sequence[tuple[Table, Kind]]) -> None:
    known = {label for _, kind in tables for label in kind.labels}
    known |= {name for table, _ in tables for name in table.position if re.fullmatch(r"\w+", name)}
    for axis in axes:
        if axis not in known:
            raise InputError(f"--by: no column is called '{one_line(axis, 60)}'; {nearest(axis, known)}")


_TRIED = 8  # rows for each value of a rule
_SAID = ("fabric", "framework")  # what a row may say besides the columns of its kind, in its authors' words
_SETS_ASIDE = ("unclear", "network")  # columns by which authors may say that a row cannot be predicted


def complete_table(given: Given) -> None:
    """Write a table with what its authors say elsewhere in columns of its own, and the sources in a column beside."""
    file, conventions, out = given.file, given.conventions, given.out
    if tabular.same_file(file, out):
        raise InputError(f"--out {one_line(out)}: is the table; name another file")
    table, _ = read_measurements(file, KINDS, MAX_ROWS)
    with given.opened("out") as output:
        content, counts = _completed(table, conventions)
        if output is not None:
            output.write(content)
    said = [f"{column}: {n} cell{'s' * (n > 1)}" for column, n in counts.most_common()]
    given.remark([f"{one_line(out)}: {'; '.join(said) or 'nothing to add'}"])


def completed_table(table: tabular.Table, kind: Kind, conventions: str, most: int) -> tabular.Table:
    """Return *table*, of at most *most* rows, with what *conventions* say in its columns; raises InputError."""
    content, _ = _completed(table, conventions)
    completed, _ = read_measurements(table.file, [kind], most, content)
    return completed


def _completed(table: tabular.Table, conventions: str) -> tuple[bytes, Counter[str]]:
    rules = tabular.read_conventions(conventions)
    _check(rules, conventions, table.header)
    if unread := _unread_values(table, rules):
        raise InputError(unread)
    return tabular.made_complete(table, rules)


def _check(rules: tabular.Conventions, file: str, header: Iterable[str]) -> None:
    """Raise InputError where *rules* are of a kind of tables, or of a column, that neither there is nor in *header*."""
    columns = {kind.name: {*kind.columns, "fit_weight"} for kind in KINDS}
    faults: list[Fault] = []
    for kind, by_column in rules.items():
        if kind not in columns:
            raise InputError(f"{one_line(file)}: no kind of tables '{one_line(kind, 40)}'; {nearest(kind, columns)}")
        known = {*columns[kind], *tabular.NAMES, *header, *_SAID}
        for rule in (rule for rules_of in by_column.values() for rule in rules_of):
            named = (rule.column, columns[kind]), *((column, known) for column in sorted(rule.looks_at()))
            for column, allowed in named:
                if column not in allowed:
                    none = f"tables of {kind} have no column '{one_line(column, 40)}'"
                    faults.append(rule.fault(f"{none}; {nearest(column, allowed)}"))
    if faults:
        raise InputError(list(dict.fromkeys(faults)))


def _unread_values(table: tabular.Table, rules: tabular.Conventions) -> list[Fault]:
    """Return a fault of each value of *rules* without which a row can be read and with it not; some rows are tried."""
    kind = next(kind for kind in KINDS if kind.name == table.kind)
    tried: Counter[tuple[int, str]] = Counter()
    faults: dict[tuple[int, str], Fault] = {}
    for row, added in zip(table.rows, tabular.added_cells(table, rules), strict=True):
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


def _why_unread(kind: Kind, table: tabular.Table, row: CsvRecord, added: tabular.AddedCells) -> str:
    def own(name: str) -> str:
        return table.written(row, name) or (added[name][0] if name in added else "")

    try:
        kind.question(lambda name: own(name) or tabular.filled(kind.name, name, own), RowNames())
    except NotScored as reason:
        return str(reason)
    return ""
