"""A scenario's answers as text: description, table, shortfalls, and the commands for single runs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from simulator.cli.table import row_lines
from simulator.console.style import Style
from simulator.scenarios.answers import ScenarioAnswer
from simulator.scenarios.catalogue import builtin_scenarios, needed_files
from simulator.scenarios.file import Scenario
from simulator.units import format_bandwidth, format_duration, format_size

_WIDTH = 80
_WORDS_WIDTH = 24  # width of a value in words
_GAP = 2
_FORMATS = {"s": format_duration, "B": format_size, "B/s": format_bandwidth}
_WITH_PREFIX = ("FLOP/s", "Hz", "IOP/s", "W", "T/s", "bit/s", "bit")
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def list_lines(scenarios: Sequence[Scenario], style: Style) -> list[str]:
    """Return the list of the sorted *scenarios*, with a heading for each chapter."""
    width = max((len(each.name) for each in scenarios), default=0)
    lines: list[str] = []
    chapter = None
    for each in scenarios:
        if each.chapter != chapter:
            chapter = each.chapter
            lines += [*([""] if lines else []), style.mark(chapter, "bold")]
        text = f"{each.name.ljust(width)}  {each.title}"
        lines += textwrap.wrap(
            text, style.width or 10_000, initial_indent="  ", subsequent_indent=" " * (width + 4), drop_whitespace=True
        )
    return lines


def scenario_lines(scenario: Scenario, answers: Sequence[ScenarioAnswer], style: Style) -> list[str]:
    """Return the full answer, at most 80 columns wide."""
    style = style.at_most(_WIDTH)
    lines = style.wrap(f"{scenario.chapter}: {scenario.title}", "bold")
    lines += ["", *style.wrap(scenario.about)]
    if scenario.assumed:
        lines += style.wrap(f"assumed: {scenario.assumed}", "dim", hang=2)
    lines += ["", *_table(answers, style)]
    sources = _sources(answers, style)
    lines += ["", *sources] if sources else []
    short = [answer for answer in answers if answer.asked.falls_short]
    if short:
        lines += ["", style.mark("falls short", "bold")]
        for text, names in _grouped([(answer.asked.falls_short, answer.asked.name) for answer in short]):
            lines += style.wrap(f"{', '.join(names)}: {text}", hang=2)
    alone = "alone" if len(scenario.runs) == 1 else "each alone"
    lines += ["", style.mark(f"the commands, {alone}", "bold")]
    for run in scenario.runs:
        lines += [*([f"# {run.name}"] if len(scenario.runs) > 1 else []), *_command(run.words, style)]
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
    if unit in _WITH_PREFIX:
        for scale, prefix in _PREFIXES:
            if abs(value) >= scale:
                return f"{value / scale:.4g} {prefix}{unit}"
    digits = f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:,.4g}"
    return digits if unit == "1" else f"{digits} {unit}"


def expected_words(answer: ScenarioAnswer) -> str:
    """Return the expected value of *answer* as text."""
    unit = answer.asked.unit
    if answer.words is not None:
        return answer.words
    if answer.low is not None and answer.high is not None:
        low, high = value_words(answer.low, unit), value_words(answer.high, unit)
        return low if answer.low == answer.high else f"{low} to {high}"
    if answer.low is not None:
        return f"at least {value_words(answer.low, unit)}"
    return f"at most {value_words(answer.high, unit)}" if answer.high is not None else "-"


def error_words(answer: ScenarioAnswer) -> str:
    """Return the error of *answer* as text, marked if it is more than its ``within`` allows."""
    if answer.words is not None:
        return "same" if answer.value == answer.words else "differs"
    if answer.error is None:
        return "-" if answer.holds is None else "missed"
    if answer.error == 0 and answer.low != answer.high:
        return "within"
    shown = f"{100 * answer.error:+.1f} %"
    shown = "0.0 %" if shown in ("+0.0 %", "-0.0 %") else shown
    return f"{shown} missed" if answer.holds is False else shown


def _table(answers: Sequence[ScenarioAnswer], style: Style) -> list[str]:
    """Return the table; names and words are wrapped if it is too wide."""
    header = ("answer", "predicted", "expected", "", "error")
    cells = [header]
    for answer in answers:
        expected = answer.asked.expected
        value = value_words(answer.value, answer.asked.unit)
        kind = expected.kind if expected is not None else ""
        cells.append((answer.asked.name, value, expected_words(answer), kind, error_words(answer)))
    broken = [[[row[0]], *(_broken(text, _WORDS_WIDTH) for text in row[1:])] for row in cells]
    rest = sum(max(len(line) for row in broken for line in row[i]) + _GAP for i in range(1, len(header)))
    room = max(12, (style.width or _WIDTH) - rest)
    rows: list[list[str]] = []
    for row in broken:
        row[0] = _broken(row[0][0], room)
        rows += [list(line) for line in zip_longest(*row, fillvalue="")]
    lines = row_lines(rows, [False, True, True, False, True])
    lines[0] = style.mark(lines[0], "bold")
    return lines


def _broken(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=" ", break_on_hyphens=False) or [""]


def _command(words: str, style: Style) -> list[str]:
    """Return a shell command, on as many lines as its options need."""
    pieces = re.split(r" (?=--)", words)
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + 1 + len(piece) <= (style.width or _WIDTH) - 2:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"    {piece}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _sources(answers: Sequence[ScenarioAnswer], style: Style) -> list[str]:
    """Return a line for each source, with the answers that cite it."""
    entries = []
    for answer in answers:
        expected = answer.asked.expected
        if expected is not None:
            said = f"{expected.kind}: {expected.source}" if not expected.is_plain else ""
            entries.append((said, answer.asked.name))
    lines: list[str] = []
    found = [group for group in _grouped(entries) if group[0]]
    for text, names in found:
        lines += style.wrap(text if len(found) == 1 else f"{text} ({', '.join(names)})", "dim", hang=2)
    return lines


def _grouped(entries: Sequence[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Return the texts in order, each with the names it belongs to."""
    found: dict[str, list[str]] = {}
    for text, name in entries:
        names = found.setdefault(text, [])
        if name not in names:
            names.append(name)
    return list(found.items())
