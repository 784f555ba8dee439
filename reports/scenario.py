"""The figure of a scenario: each answer as a bar beside its expected value; and of a program: its streams over time."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from reports.colours import ACTIVITIES, HELD
from reports.file import drawn, with_foot
from simulator.programs.costs import ProgramLabel, SkippedRepetitions
from simulator.results.changed import said
from simulator.results.program import ProgramResult
from simulator.scenarios.answers import ScenarioAnswer
from simulator.scenarios.file import Scenario
from simulator.sums import lists_by_key
from simulator.units import format_bandwidth, format_duration, format_size

_PREDICTED, _EXPECTED = "#0072b2", "#e69f00"  # from Okabe and Ito's palette
_FORMATS = {"s": format_duration, "B": format_size, "B/s": format_bandwidth}
_ROW, _HEAD, _FOOT = 0.34, 0.62, 0.55  # inches: height of an answer, of the header, and below each group


@drawn
def draw_answers(scenario: Scenario, answers: Sequence[ScenarioAnswer]) -> Figure:
    """Return a figure of numeric *answers*, an axis a unit; expectations are marked."""
    numeric = (each for each in answers if not isinstance(each.value, str) and each.value > 0)
    by_unit = lists_by_key((each.asked.unit, each) for each in numeric)
    height = _HEAD + sum(_FOOT + _ROW * len(group) for group in by_unit.values()) + 0.3
    figure = Figure(figsize=(9.0, height))
    figure.text(0.02, 1 - 0.2 / height, scenario.title, fontsize=11.5, fontweight="bold", va="top")
    top = height - _HEAD
    for unit, group in by_unit.items():
        tall = _ROW * len(group)
        _draw_group(figure.add_axes((0.33, (top - tall) / height, 0.62, tall / height)), unit, group)
        top -= tall + _FOOT
    figure.text(0.33, 0.1 / height, "bars: predicted", color=_PREDICTED, fontsize=8.5)
    figure.text(0.52, 0.1 / height, "marks: ideal, measured or published", color="#9a6a00", fontsize=8.5)
    runs: dict[str, dict[str, None]] = {}
    for run, what in (each for answer in answers for each in answer.changed):
        runs.setdefault(what, {})[run] = None
    changed = "; ".join(f"in {', '.join(of)}: {what}" for what, of in runs.items())
    return with_foot(figure, f"changed {changed}" if changed else "")


def _draw_group(axes: Axes, unit: str, group: Sequence[ScenarioAnswer]) -> None:
    values = [float(answer.value) for answer in group]
    ends = [end for answer in group for end in (answer.low, answer.high) if end is not None and end > 0]
    rows = range(len(group))
    axes.barh(rows, values, height=0.62, color=_PREDICTED)
    for row, answer in zip(rows, group, strict=True):
        low, high = answer.low, answer.high
        if low is not None and high is not None and high > low:
            axes.plot([low, high], [row, row], color=_EXPECTED, lw=4, solid_capstyle="butt")
        for end, mark in ((low, "|" if low == high else ">"), (high, "|" if low == high else "<")):
            if end is not None and end > 0:
                axes.plot([end], [row], mark, color=_EXPECTED, ms=15 if mark == "|" else 6, mew=3)
    if max([*values, *ends]) > 20 * min([*values, *ends]):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=10, numticks=8))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, 1.08 * max([*values, *ends]))
    shown, of = _FORMATS.get(unit), 100 if unit == "%" else 1

    def words(value: float, _: object) -> str:
        if shown is not None:
            return shown(value, 3)
        return f"{of * value:,.0f}" if 1e4 <= of * value < 1e12 else f"{of * value:,.4g}"

    axes.xaxis.set_major_formatter(words)
    if shown is None and unit != "1":
        axes.set_xlabel(unit, fontsize=8.5)
    labels = ["\n".join(textwrap.wrap(answer.asked.name, 38)) for answer in group]
    axes.set_yticks(list(rows), labels=labels, fontsize=8.5)
    axes.invert_yaxis()
    axes.grid(axis="x")


_ACTIVITIES = {"issue": "host", "python": "python", "wait": "waiting", "kernel": "computing", "copy": "copies"}
_COLOURS = {use: ACTIVITIES[activity] for use, activity in _ACTIVITIES.items()}
_WORDS = {"issue": "issuing", "python": "Python", "wait": "waiting", "kernel": "operators", "copy": "copies"}
_MOST_BARS = 1000  # bars drawn at most; the figure says so where it shows only the first ones


@drawn
def draw_program(result: ProgramResult) -> Figure:
    """Return a figure of *result*."""
    height = 1.9 + 0.34 * len(result.streams) + (1.6 if result.held else 0.0)
    figure = Figure(figsize=(10.5, height))
    figure.text(0.02, 1 - 0.2 / height, f"{result.name} on {result.machine}", fontsize=12, fontweight="bold", va="top")
    told = f"host returns after {format_duration(result.issued_s)}, all done after {format_duration(result.done_s)}"
    scales = ((1.0, "s"), (1e3, "ms"), (1e6, "us"))
    scale, unit = next(((s, unit) for s, unit in scales if result.done_s * s >= 1), (1e9, "ns"))
    streams_height = 0.34 * len(result.streams) + 0.1
    streams = figure.add_axes((0.16, 1 - (0.95 + streams_height) / height, 0.8, streams_height / height))
    used, until = _draw_streams(streams, result, scale)
    streams.set_xlim(0, until or 1)
    if until < result.done_s * scale:
        told += f", of which the first {format_duration(until / scale, 3)} are drawn"
    figure.text(0.02, 1 - 0.52 / height, told, fontsize=10, va="top")
    if result.held:
        held = figure.add_axes((0.16, 0.75 / height, 0.8, 1.3 / height), sharex=streams)
        times, sizes = [at * scale for at, _ in result.held], [size for _, size in result.held]
        held.fill_between(times, sizes, color=HELD["working"], lw=0)
        held.set_ylim(0, 1.15 * result.held_bytes)
        held.set_yticks([0, result.held_bytes], labels=["0", format_size(result.held_bytes, 3)], fontsize=8)
        held.set_ylabel("queued\nholds", fontsize=8, rotation=0, ha="right", va="center")
        streams.tick_params(labelbottom=False)
        held.set_xlabel(unit)
    else:
        streams.set_xlabel(unit)
    patches = [Patch(color=_COLOURS[use], label=_WORDS[use]) for use in _COLOURS if use in used]
    figure.legend(handles=patches, loc="lower right", ncols=len(patches) or 1)
    return with_foot(figure, said(result.changed, begin=""))


def _draw_streams(axes: Axes, result: ProgramResult, scale: float) -> tuple[set[str], float]:
    """Draw bars, skipped repetitions as one a use; return the uses drawn, and the end in scaled time."""
    names = list(result.streams)
    used: set[str] = set()
    bars: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for task, span in result.timeline.ran():
        if task.stream not in result.streams or span.end_s <= span.start_s:
            continue
        row = names.index(task.stream)
        if isinstance(task.about, SkippedRepetitions):
            at_s = span.start_s
            for use, _, seconds in task.about.busy_s:
                bars.setdefault((row, use), []).append((at_s * scale, seconds * scale))
                at_s += seconds
        elif isinstance(task.about, ProgramLabel) and task.about.use in _COLOURS:
            bars.setdefault((row, task.about.use), []).append((span.start_s * scale, span.length_s * scale))
    starts = sorted(at for pieces in bars.values() for at, _ in pieces)
    until = starts[_MOST_BARS] if len(starts) > _MOST_BARS else result.done_s * scale
    for (row, what), pieces in bars.items():
        used.add(what)
        drawn = [(at, length) for at, length in pieces if at < until]
        axes.broken_barh(drawn, (row - 0.38, 0.76), color=_COLOURS[what], lw=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), labels=names)
    return used, until
