"""The commands ``validate fit`` and ``validate bands``: what the project derives from measured tables and ships."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import lru_cache, partial
from importlib.resources import files as files_of
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from simulator.api.session import Question
from simulator.cli.table import table_of
from simulator.console import Progress, Style, choose_style
from simulator.errors import InputError, nearest, one_line
from simulator.records import asdict, dataclass, lists_by_key, replace
from simulator.results import taken
from validate.bands import make
from validate.bands.make import BandRow, measured, thinned
from validate.cli.command import Given, incomplete, print_result, share_in
from validate.constants import fit as fitting
from validate.constants.calibrate import calibrate_devices
from validate.constants.families import FAMILIES, TERMS, Family, Term, read_rows
from validate.constants.fit import Lines
from validate.kinds import KINDS, OPERATORS
from validate.kinds.kind import Kind, MeasuredRow, read_measurements
from validate.score.report import ADDED
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.names import RowNames
from validate.tables.statistics import Errors, percent_text, summarise
from validate.tables.table import STDIN, Table

_SCHEMA_VERSION = 2
_BY_NAME = {family.name: family for family in FAMILIES}
_SHORT = 0.5  # share of rows and of evaluations in each of many fits (leave-one-out, terms)
_EVALUATIONS = 12


@dataclass(frozen=True, slots=True)
class _Task:
    """A fit of a family to a share of the rows outside groups ``without``, with errors of ``judged`` (None: all)."""

    family: str
    files: tuple[str, ...]
    share: float
    without: tuple[fitting.Group, ...]
    judged: fitting.Group | None = None
    term: Term | None = None  # the term that is turned off

    @property
    def is_whole(self) -> bool:
        return self.judged is None and self.term is None


@dataclass(frozen=True, slots=True)
class _Done:
    task: _Task
    fitted: fitting.LeastSquares
    errors: tuple[tuple[str, str, str, float], ...]  # the row's role in the fit, operator and place; its error


def fit_tables(given: Given) -> None:
    """Fit the shared constants to tables of measurements."""
    files, leave_one_out = given.files, given.leave_one_out
    if STDIN in files:
        raise InputError("-: a file is needed, as each process that fits reads the tables")
    processes, held_out = given.processes(), given.hold_out
    if given.leave_one_generation_out and leave_one_out is None:
        leave_one_out = "generation"
    of_rows = share_in(given.rows)
    if leave_one_out not in (None, *fitting.GROUPINGS):
        raise InputError(f"--leave-one-out: place, generation or dataset; got '{one_line(leave_one_out, 40)}'")
    if given.write and of_rows < 1.0:
        raise InputError("--write: a fit to a share of the rows is to judge, not to use; leave out --rows")
    names = list(_BY_NAME) if given.only is None else [name.strip() for name in given.only.split(",")]
    if unknown := [name for name in names if name not in _BY_NAME]:
        raise InputError(f"--only: no family '{one_line(unknown[0], 60)}'; {nearest(unknown[0], _BY_NAME)}")
    _read.cache_clear()
    _lines.cache_clear()
    _, rows = _read(tuple(files))
    given.remark(incomplete((read_measurements(file, KINDS)[0] for file in files), fits=True))
    families = [family for name in dict.fromkeys(names) if fitting.rows_of(family := _BY_NAME[name], rows)]
    if not families:
        raise InputError("no row is left to fit to")
    places = {row.place for row in rows}
    if absent := [name for name in held_out if name not in places]:
        told = f"--hold-out: the tables have no device or machine '{one_line(absent[0], 60)}'"
        raise InputError(f"{told}; {nearest(absent[0], places)}")
    held = tuple(("place", name) for name in held_out)
    tasks = []
    for family in families:
        found = fitting.rows_of(family, rows)
        tasks.append(_Task(family.name, tuple(files), of_rows, held))
        for name in sorted({fitting.group_of(row, leave_one_out) for row in found}) if leave_one_out else ():
            judged = (leave_one_out or "", name)
            tasks.append(_Task(family.name, tuple(files), of_rows, (*held, judged), judged))
    if given.terms:
        judging = [task for task in tasks if task.judged]
        tasks += [replace(task, term=term) for task in judging for term in TERMS if term.family == task.family]
    done = []
    with Progress(len(tasks), "fitting", quiet=given.quiet) as progress, ExitStack() as stack:
        several = processes > 1 and len(tasks) > 1
        pool = stack.enter_context(ProcessPoolExecutor(min(processes, len(tasks)))) if several else None
        for item in pool.map(_fit, tasks) if pool is not None else map(_fit, tasks):
            done.append(item)
            progress.advance(item.task.family)
    if not any(item.fitted.rows for item in done):
        raise InputError("no row is left to fit to")
    given.answer(_document(done, held_out), partial(_report, done))
    for item in done if given.write else ():
        if item.task.is_whole:
            written = fitting.write_constants(_BY_NAME[item.task.family], item.fitted)
            given.remark([f"wrote {one_line(path)}" for path in written])


@lru_cache(maxsize=1)
def _read(files: tuple[str, ...]) -> tuple[RowNames, list[MeasuredRow]]:
    names = RowNames()
    return names, read_rows(files, names, {family.kind for family in FAMILIES})


def _fit(task: _Task) -> _Done:
    family = _BY_NAME[task.family]
    names, read = _read(task.files)
    rows = fitting.rows_of(family, read)
    if family.straight:  # linearised at the constants in use; the main fit again, linearised at its own result
        fitted = fitting.fit_to_lines(family, _lines(task.files, task.family, task.share), task.without)
        if task.is_whole:
            again = fitting.linearised_rows(family, rows, names.session, share=task.share, at=fitted.values)
            fitted = fitting.fit_to_lines(family, again, task.without)
    else:
        short = 1.0 if task.is_whole else _SHORT
        how: dict[str, Any] = {"share": task.share * short, "max_evaluations": round(_EVALUATIONS * short)}
        fitted = fitting.fit_family(family, rows, names.session, task.without, off=task.term, **how)
    by, name = task.judged or ("", "")
    judged = [row for row in rows if fitting.group_of(row, by) == name] if by else rows
    found = []
    for row, error in zip(judged, fitting.fit_errors(judged, names.session, fitted.constants), strict=True):
        if error is not None:
            found.append((_what(family, row, task), row.op, name if by == "dataset" else row.place, error))
    return _Done(task, fitted, tuple(found))


@lru_cache(maxsize=1)
def _lines(files: tuple[str, ...], family: str, share: float) -> Lines:
    names, read = _read(files)
    return fitting.linearised_rows(_BY_NAME[family], read, names.session, share=share)


def _what(family: Family, row: MeasuredRow, task: _Task) -> str:
    """Return the role of *row* in the fit of *task*, in words: fitted, held out, ..."""
    if task.judged is not None:
        return f"{task.judged[0]} left out"
    if any(fitting.group_of(row, what) == name for what, name in task.without):
        return "held out"
    if fitting.is_held_out(family, row):
        return "shapes held out"
    return "fitted" if fitting.counts(family, row) else "not fitted to"


def _groups(done: Sequence[_Done]) -> Iterator[tuple[str, str | None, str | None, Errors]]:
    """Yield errors with role in the fit, operator and place, None for any; places of what was left out alone."""
    groups: dict[tuple[str, str | None, str | None], list[float]] = {}
    for item in done:
        if item.task.term is not None:
            continue
        for what, op, place, error in item.errors:
            is_seen = what in ("fitted", "not fitted to", "shapes held out")
            for key in ((None, None), (op, None), *(() if is_seen else ((None, place), (op, place)))):
                groups.setdefault((what, *key), []).append(error)
    for key, errors in sorted(groups.items(), key=lambda group: tuple(word or "" for word in group[0])):
        yield *key, summarise(errors)


class _Worth(NamedTuple):
    """What a term is worth on a left-out group: mean absolute errors of its ``n`` rows with and without."""

    family: str
    term: str
    left_out: str
    n: int
    mean_ape: float
    mean_ape_without: float


def _worths(done: Sequence[_Done]) -> list[_Worth]:
    """Return what each term is worth on each left-out group, in the order of TERMS."""
    plain = {(item.task.family, item.task.judged): item for item in done if item.task.term is None}
    found = []
    for term, item in ((term, item) for term in TERMS for item in done if item.task.term == term):
        on, off = ([abs(row[-1]) for row in each.errors] for each in (plain[item.task.family, item.task.judged], item))
        if off and item.task.judged is not None:
            count, name = len(off), item.task.judged[1]
            found.append(_Worth(term.family, term.name, name, count, sum(on) / count, sum(off) / count))
    return found


def _worth_lines(done: Sequence[_Done], style: Style) -> list[str]:
    table = [["term", "left out", "mean with", "without", "worth least", "most"]]
    for (_, term), worths in lists_by_key(((each.family, each.term), each) for each in _worths(done)).items():
        on, off = fmean(each.mean_ape for each in worths), fmean(each.mean_ape_without for each in worths)
        gains = [(each.mean_ape_without - each.mean_ape, each.left_out) for each in worths]
        ends = [pick(gains, key=itemgetter(0)) for pick in (min, max)]
        said = [f"{100 * gain:+.1f} on {left_out}" for gain, left_out in ends]
        table.append([term, str(len(worths)), f"{100 * on:.1f} %", f"{100 * off:.1f} %", *said])
    return ["", *table_of(table, [False, True, True, True, False, False], style)] if len(table) > 1 else []


def _report(done: Sequence[_Done], style: Style) -> str:
    lines = []
    for item in done:
        if item.task.is_whole:
            lines.append(style.mark(item.task.family, "bold"))
            table = [["constant", "value", "spread", ""]]
            for name, value in item.fitted.values.items():
                spread = f"{item.fitted.spread[name]:.0%}" if name in item.fitted.spread else "tied"
                table.append([name, f"{value:.3g}", spread, "at its bound" if name in item.fitted.at_bound else ""])
            lines += [*table_of(table, [False, True, True, False], style), ""]
    table = [["rows of", "n", "median", "p90", "mean", "bias"]]
    for role, op, place, e in _groups(done):
        name = ", ".join(filter(None, (op or "all", place, role)))
        figures = map(percent_text, (e.median_ape, e.p90_ape, e.mean_ape))
        table.append([name, str(e.n), *figures, percent_text(e.bias, "+")])
    # The median of the left-out places' median errors, so that each place has equal weight.
    left_out = [item for item in done if item.task.judged is not None and item.task.term is None and item.errors]
    medians = [median(abs(error) for *_, error in item.errors) for item in left_out]
    if medians:
        table.append(["median of those left out", str(len(medians)), f"{100 * median(medians):.1f} %", "", "", ""])
    shown = [*lines, *table_of(table, [False, True, True, True, True, True], style), *_worth_lines(done, style)]
    return "\n".join(shown) + "\n"


def _document(done: Sequence[_Done], hold_out: Sequence[str]) -> dict[str, Any]:
    families = {
        item.task.family: {**taken(item.fitted, "constants=values spread at_bound"), "rows": len(item.fitted.rows)}
        for item in done
        if item.task.is_whole
    }
    errors = [{"rows": role, "op": op, "place": place, **asdict(each)} for role, op, place, each in _groups(done)]
    found = {"schema_version": _SCHEMA_VERSION, "families": families, "held_out": list(hold_out), "errors": errors}
    return {**found, "terms": [worth._asdict() for worth in _worths(done)]}


_CALIBRATED_ON = 50  # rows per device


def bands_command(given: Given) -> None:
    """Derive the 80 % bands of answers from errors on measured rows."""
    files = given.files
    if STDIN in files:
        raise InputError("-: a file is needed")
    grades, processes = given.grades(), given.processes()
    scoring = Scoring(ScoringOptions())
    tables = [read_measurements(file, scoring.kinds) for file in files]
    given.remark(incomplete(table for table, _ in tables))
    session = scoring.names.session
    rows: list[BandRow] = []
    after: dict[Question, make.CalibratedRow] = {}
    with Progress(sum(len(table.rows) for table, _ in tables), "scoring", quiet=given.quiet) as progress:
        for table, kind in tables:
            is_scored = all(name in table.position for name in ADDED)  # the table comes from validate score --out
            rows += measured(
                scoring.score(table, kind, grades, as_written=is_scored, jobs=processes, advance=progress.advance),
                session,
            )
            if kind.name == OPERATORS.name and not given.judge:
                after |= _after(scoring, table, kind, grades)
    if not rows:
        raise InputError("no row can be predicted")
    rows = thinned(rows)
    if given.judge:
        _show_coverage({what: make.coverage(rows, by) for what, by in make.LEFT_OUT.items()}, as_json=given.json)
        return
    found = make.make_evidence(rows, calibrated=after, session=session)
    document = make.bands_document(found, [Path(file).name for file in files])
    names = ("low", "middle", "high", "shared", "unseen", "outside", "strange", "calibrated")
    classes = [["class", "rows", "places", *names]]  # whose bands hold 80 % of the ratios measured / predicted
    for entry in document["classes"]:
        classes.append([entry["name"], *(f"{entry[n]:g}" for n in ("rows", "places", *names))])
    print_result(json.dumps(document, indent=2) + "\n" if given.json else _table(classes))
    if given.write:
        text = fitting.constants_text(document, "classes")
        path = fitting.write_package_file(files_of("simulator.bands") / "bands.json", text)
        given.remark([f"wrote {one_line(path)}"])


def _after(scoring: Scoring, table: Table, kind: Kind, grades: Sequence[str]) -> dict[Question, make.CalibratedRow]:
    calibrations, seen = calibrate_devices(table, scoring.names, grades, _CALIBRATED_ON)
    names = scoring.calibrated(calibrations)
    return {
        row.question: (row.error, max(row.composition.parts, key=lambda part: part.share).known)
        for row in measured(scoring.score(table, kind, grades, names=names, seen=seen), names.session)
        if row.composition.parts
    }


def _show_coverage(ways: Mapping[str, Sequence[make.Coverage]], *, as_json: bool) -> None:
    first, *others = ways
    held = {what: {each.group: each.held for each in ways[what]} for what in others}
    if as_json:
        found = [
            {**asdict(each), **{f"held_without_{what}": held[what].get(each.group) for what in others}}
            for each in ways[first]
        ]
        print_result(json.dumps(found, indent=2) + "\n")
        return
    rows = [["left out", "rows", "places", *ways, "half-width"]]
    for each in ways[first]:
        shares = [each.held, *(held[what].get(each.group) for what in others)]
        words = ["-" if share is None else f"{100 * share:.0f} %" for share in shares]
        rows.append([each.group, f"{each.rows:,}", str(each.places), *words, f"{100 * each.half_width:.0f} %"])
    print_result(_table(rows))


def _table(rows: list[list[str]]) -> str:
    lines = table_of(rows, [False, *[True] * (len(rows[0]) - 1)], choose_style(sys.stdout))
    return "".join(f"{line}\n" for line in lines)
