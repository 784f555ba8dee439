"""``simulate scenario``: list scenarios, show or copy one, or run it; and its answers as text."""

import contextlib
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise, zip_longest
from pathlib import Path
from typing import Any

from simulator.cli import LISTS
from simulator.cli.options import check_outputs
from simulator.cli.output import Answers, Asked, CommandOutput, captured, tell
from simulator.cli.table import row_lines
from simulator.cli.written import CommandOptions
from simulator.console import Progress, Style, later
from simulator.effects import data_file
from simulator.errors import Fault, InputError, SimulationError, one_line
from simulator.records import lists_by_key
from simulator.results import SCHEMA_VERSION
from simulator.scenarios.answers import ScenarioAnswer, answers_document, answers_of
from simulator.scenarios.file import Scenario, ScenarioRun, builtin_scenarios, find_scenario, in_order, needed_files
from simulator.units import format_bandwidth, format_duration, format_size
from simulator.workload.parse import OPERATIONS

_READS_STATUS = ("exit_status", "error")
# What of an answer advice on a step makes; an error names what would make the step fit.
_OF_ADVICE = frozenset(("alternatives", "remedies", "cure", "cures", "notes", "error"))


def ask_scenario(**given: Any) -> Asked:
    """Return what the options *given* ask for; raises InputError."""
    shown = CommandOptions(json=given["json"], quiet=given["quiet"])
    name, folder, trace, plot = (given[option] for option in ("name", "copy", "trace", "plot"))
    outputs = {f"--{option}": given[option] for option in ("copy", "json", "trace", "plot", "report")}
    if given["list"]:
        if given["show"] or any(each is not None for each in (name, folder, trace, plot, given["report"])):
            raise InputError("--list lists all scenarios; leave out what is about one")
        found = in_order()
        entries = [{"name": each.name, "chapter": each.chapter, "title": each.title} for each in found]
        document = {"schema_version": SCHEMA_VERSION, "scenarios": entries}
        return Asked(shown, lambda _: Answers(document=lambda: document, lines=partial(list_lines, found)))
    if name is None:
        raise InputError("scenario needs a name or a file: simulate scenario --list shows those that are built in")
    own, does = ("", "--show prints the file") if given["show"] else ("--copy", "--copy copies files")
    for option, value in outputs.items():
        if value == "":
            raise InputError(f"{option} needs the name of a {'folder' if option == '--copy' else 'file'}")
    for option, value in outputs.items() if given["show"] or folder is not None else ():
        if value not in (None, False) and option != own:
            raise InputError(f"{does} and runs nothing; leave {option} out")
    scenario = find_scenario(name)
    if given["show"]:
        return Asked(shown, lambda _: Answers(lines=lambda _: scenario.path.read_text(encoding="utf-8").splitlines()))
    if folder is not None:
        return Asked(shown, lambda _: Answers(lines=lambda _: _copy(scenario, folder)))
    check_outputs({"scenario": str(scenario.path), "--trace": trace, "--plot": plot})
    drawn = draws_run(scenario)

    def compared(written: CommandOptions) -> Answers:
        told = {name: given[name] for name in ("quiet", "trust_code")}
        answers, notes = answer_scenario(scenario, trace=trace, plot=plot if drawn else None, **told)
        for note in notes:
            tell(written, note)
        return Answers(
            document=partial(answers_document, scenario, answers),
            lines=partial(scenario_lines, scenario, answers),
            draw=later("reports.curves:draw_answers", scenario, answers),
            check=partial(_check, answers),
        )

    again = shlex.join(["simulate", "scenario", name])
    return Asked(shown.but(plot=None if drawn else plot, report=given["report"]), compared, command=again)


def _check(answers: Sequence[ScenarioAnswer]) -> None:
    missed = [
        f"{each.asked.name} ({value_words(each.value, each.asked.unit)}, {expected_words(each)})"
        for each in answers
        if each.holds is False
    ]
    if missed:
        raise SimulationError(f"expected values are missed: {'; '.join(missed)}")


def answer_scenario(
    scenario: Scenario,
    *,
    trace: str | None = None,
    plot: str | None = None,
    quiet: bool = True,
    trust_code: bool = False,
) -> tuple[tuple[ScenarioAnswer, ...], list[str]]:
    """Run *scenario* and return its answers and the remarks of its runs.

    *trace* is a file for the timeline of its main run, if it has one; *plot* one for the picture of its only run.  Runs
    with the same words are run once.  The scenario's folder is the working folder during the runs.  Without
    *trust_code*, a run that writes another file, runs code or opens a connection is a fault.

    Raises InputError with the faults of all runs, or of all answers.
    """
    if trace is not None and not has_timeline(scenario):
        raise InputError(f"--trace: the runs of {scenario.name} are single operations, which have no timeline")
    files = {"--trace": trace, "--plot": plot if draws_run(scenario) else None}
    outputs = [word for option, file in files.items() if file is not None for word in (option, os.path.abspath(file))]
    drawn = next(run.arguments for run in scenario.runs if run.name == scenario.timeline)
    done: dict[tuple[str, ...], CommandOutput] = {}
    documents: dict[str, Any] = {}
    notes: list[str] = []
    faults: list[Fault] = []
    with Progress(len(scenario.runs), "simulating", quiet=quiet) as progress, _within(scenario.path.parent):
        for run in scenario.runs:
            why: Sequence[str] = ()
            if run.arguments not in done:
                extra = outputs if run.arguments == drawn else []
                brief = not (extra or _reads_advice(scenario, run))
                with data_file(trusted=trust_code, outputs=extra) as refused:
                    answered = done[run.arguments] = captured([*run.arguments[1:], *extra], brief=brief)
                why = [refused[0].message] if refused else ()
                if not refused and answered.status == 0:
                    notes += [f"{run.name}: {line}" for line in answered.said]
            if not why:
                answered = done[run.arguments]
                if answered.document is None and not _may_fail(scenario, run):
                    why = answered.said or [f"ended with the exit status {answered.status} and no JSON"]
                said: dict[str, Any] = {"error": " / ".join(answered.said) if answered.status else ""}
                said |= {"exit_status": answered.status, "warnings": [] if answered.status else answered.said}
                documents[run.name] = {**(answered.document or {}), **said}
                progress.advance(run.name)
            faults += [scenario.source.fault(("runs", run.name), f"runs.{run.name}: {line}") for line in why]
    if faults:
        raise InputError(faults)
    return answers_of(scenario, documents), notes


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    """Make *folder* the working folder, from which nothing is imported."""
    before, path = os.getcwd(), sys.path[:]
    sys.path[:] = [before if each == "" else each for each in path]
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.path[:] = path


def has_timeline(scenario: Scenario) -> bool:
    """Whether the main run of *scenario* has a timeline: not a single operation, unless it is swept over sizes."""
    words = next(run.arguments for run in scenario.runs if run.name == scenario.timeline)
    given = next((later for word, later in pairwise(words) if word == "--workload"), "")
    scheme, colon, rest = given.partition(":")
    return words[1] not in LISTS and not (colon and scheme in OPERATIONS and "sweep:" not in rest)


def draws_run(scenario: Scenario) -> bool:
    """Whether the picture of *scenario* is that of its run; the picture of several runs is that of their answers."""
    return len({run.arguments for run in scenario.runs}) == 1 and has_timeline(scenario)


def _may_fail(scenario: Scenario, run: ScenarioRun) -> bool:
    paths = (path for asked in scenario.answers for path in asked.value.paths)
    return any(path.run == run.name and path.steps and path.steps[0] in _READS_STATUS for path in paths)


def _reads_advice(scenario: Scenario, run: ScenarioRun) -> bool:
    names = {other.name for other in scenario.runs if other.arguments == run.arguments}
    expected = [asked.expected for asked in scenario.answers if asked.expected is not None]
    read = [*(asked.value for asked in scenario.answers), *(end for each in expected for end in (each.low, each.high))]
    paths = (path for expression in read if expression is not None for path in expression.paths)
    return any(path.run in names and not _OF_ADVICE.isdisjoint(path.steps) for path in paths)


def _copy(scenario: Scenario, folder: str) -> list[str]:
    source, target = scenario.path.parent, Path(folder)
    files = [Path(scenario.path.name), *needed_files(scenario)]
    try:
        there = [file for file in files if (target / file).exists()]
        if there:
            raise InputError([Fault(f"--copy {one_line(target / file)}: is there already") for file in there])
        for file in files:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file, target / file)
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or "is not a path"
        raise InputError(f"--copy {one_line(folder)}: cannot be written: {words}") from None
    return [f"wrote {target / file}" for file in files]


_WIDTH = 80
_WORDS_WIDTH = 24  # width of a value in words
_GAP = 2
_TIMES = 9.995  # an error that is told as a multiple
_FORMATS = {"s": format_duration, "B": format_size, "B/s": format_bandwidth}
_WITH_PREFIX = ("FLOP/s", "Hz", "IOP/s", "W", "T/s", "bit/s", "bit")
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def list_lines(scenarios: Sequence[Scenario], style: Style) -> list[str]:
    """Return the list of the sorted *scenarios*, with a heading for each chapter."""
    width = max((len(each.name) for each in scenarios), default=0)
    lines: list[str] = []
    for chapter, found in groupby(scenarios, lambda each: each.chapter):
        lines += [*([""] if lines else []), style.mark(chapter, "bold")]
        for each in found:
            lines += textwrap.wrap(
                f"{each.name.ljust(width)}  {each.title}", style.width or 10_000, initial_indent="  ",
                subsequent_indent=" " * (width + 4), drop_whitespace=True,
            )  # fmt: skip
    return lines


def scenario_lines(scenario: Scenario, answers: Sequence[ScenarioAnswer], style: Style) -> list[str]:
    """Return the full answer, at most 80 columns wide."""
    style = style.at_most(_WIDTH)
    lines = [*style.wrap(f"{scenario.chapter}: {scenario.title}", "bold"), "", *style.wrap(scenario.about)]
    if scenario.assumed:
        lines += style.wrap(f"assumed: {scenario.assumed}", "dim", hang=2)
    lines += ["", *_table(answers, style)]
    sources = _sources(answers, style)
    lines += ["", *sources] if sources else []
    told = dict.fromkeys((each.asked.falls_short, each.asked.name) for each in answers if each.asked.falls_short)
    short = lists_by_key(told).items()
    lines += ["", style.mark("falls short", "bold")] if short else []
    for text, names in short:
        lines += style.wrap(f"{', '.join(names)}: {text}", hang=2)
    several = len(scenario.runs) > 1
    lines += ["", style.mark(f"the commands, {'each ' * several}alone", "bold")]
    for run in scenario.runs:
        lines += [*([f"# {run.name}"] if several else []), *style.wrap_command(run.words)]
    if scenario.path in builtin_scenarios().values() and any(needed_files(scenario)):
        lines += style.wrap(f"(their files: simulate scenario {scenario.name} --copy .)")
    return lines


def value_words(value: float | str, unit: str) -> str:
    """Return *value*, given in SI units, as text in *unit* with a prefix."""
    if isinstance(value, str):
        return value
    if unit == "%":
        return f"{100 * value:.4g} %"
    if unit in _FORMATS:
        return _FORMATS[unit](value)
    for scale, prefix in _PREFIXES if unit in _WITH_PREFIX else ():
        if abs(value) >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    digits = f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:,.4g}"
    return digits if unit == "1" else f"{digits} {unit}"


def expected_words(answer: ScenarioAnswer) -> str:
    """Return the expected value of *answer* as text."""
    low, high = (None if end is None else value_words(end, answer.asked.unit) for end in (answer.low, answer.high))
    if answer.words is not None:
        return answer.words
    if low is not None and high is not None:
        return low if answer.low == answer.high else f"{low} to {high}"
    return f"at least {low}" if low is not None else f"at most {high}" if high is not None else "-"


def error_words(answer: ScenarioAnswer) -> str:
    """Return the error of *answer* as text, marked if it is more than its ``within`` allows."""
    if answer.words is not None:
        return "same" if answer.value == answer.words else "differs"
    if answer.error is None:
        return "-" if answer.holds is None else "missed"
    if answer.error == 0 and answer.low != answer.high:
        return "within"
    shown = f"{100 * answer.error:+.1f} %" if answer.error < _TIMES else f"{1 + answer.error:,.0f} times"
    return ("0.0 %" if shown[1:] == "0.0 %" else shown) + " missed" * (answer.holds is False)


def _table(answers: Sequence[ScenarioAnswer], style: Style) -> list[str]:
    cells = [("answer", "predicted", "expected", "", "error")]
    for answer in answers:
        kind = answer.asked.expected.kind if answer.asked.expected is not None else ""
        value = value_words(answer.value, answer.asked.unit)
        cells.append((answer.asked.name, value, expected_words(answer), kind, error_words(answer)))
    broken = [[[row[0]], *(_broken(text, _WORDS_WIDTH) for text in row[1:])] for row in cells]
    rest = sum(max(len(line) for row in broken for line in row[i]) + _GAP for i in range(1, len(cells[0])))
    room = max(12, (style.width or _WIDTH) - rest)
    rows: list[list[str]] = []
    for name, *row in broken:
        rows += [list(line) for line in zip_longest(_broken(name[0], room), *row, fillvalue="")]
    lines = row_lines(rows, [False, True, True, False, True])
    lines[0] = style.mark(lines[0], "bold")
    return lines


def _broken(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=" ", break_on_hyphens=False) or [""]


def _sources(answers: Sequence[ScenarioAnswer], style: Style) -> list[str]:
    cited = [(each.asked.name, each.asked.expected) for each in answers if each.asked.expected is not None]
    told = dict.fromkeys((f"{of.kind}: {of.source}", name) for name, of in cited if not of.is_plain)
    found = lists_by_key(told).items()
    lines = (text if len(found) == 1 else f"{text} ({', '.join(names)})" for text, names in found)
    return [line for text in lines for line in style.wrap(text, "dim", hang=2)]
