"""The command ``validate score``."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from simulator.console import Progress
from simulator.errors import InputError, nearest, one_line
from simulator.records import replace
from validate.cli.command import TRUSTED, Given, incomplete, number_in, words_in
from validate.cli.table import completed_table
from validate.constants.calibrate import calibrate_devices
from validate.kinds import OPERATORS
from validate.kinds.kind import Kind, MeasuredRow, read_measurements
from validate.score.report import Predictions, ScoredTable, scores_document, scores_for, scores_report
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.cells import MAX_HELD, MAX_ROWS
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
    said = [
        *incomplete(table for table, _ in tables),
        *_remarks(scored, grades, asked_for=given.trust != TRUSTED),
    ]
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
