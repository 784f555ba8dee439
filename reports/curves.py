"""Figures over sizes, of a checked log, of how a step scales, of a scenario's answers, and of a program's streams."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from reports.colours import ACTIVITIES, BEST, HELD, INK
from reports.colours import MARKED_SERIES as SERIES
from reports.file import drawn, with_foot
from simulator.programs.costs import ProgramLabel, SkippedRepetitions
from simulator.records import lists_by_key
from simulator.results import percent, rate_words
from simulator.results.changed import said
from simulator.results.confidence import BAND_HEAD
from simulator.results.program import ProgramResult
from simulator.results.single import SingleResult
from simulator.results.step_view import MODE_WORDS, SHARE_WORDS, precision_words, time_shares
from simulator.scenarios.answers import ScenarioAnswer
from simulator.scenarios.file import Scenario
from simulator.search.run import Curve
from simulator.units import format_bandwidth, format_binary, format_duration, format_size

_WIDTH = 80


@drawn
def draw_sizes(results: Sequence[SingleResult], title: str) -> Figure:
    """Return a figure of *results* over their sizes, with logarithmic axes."""
    entries = [result.to_dict() for result in results]
    figure = Figure(figsize=(7.2, 4.4))
    axes = figure.add_axes((0.12, 0.13, 0.84, 0.74))
    names = list(dict.fromkeys(entry["topology"] for entry in entries))
    for i, name in enumerate(names):
        colour, mark = SERIES[i % len(SERIES)]
        mine = [entry for entry in entries if entry["topology"] == name]
        sizes = [entry["size_bytes"] for entry in mine]
        axes.plot(sizes, [entry["time_s"] for entry in mine], mark + "-", color=colour, ms=4, lw=1.4, label=name)
        banded = [entry for entry in mine if entry["band"] is not None]
        low, high = ([entry["band"][end] for entry in banded] for end in ("low_s", "high_s"))
        axes.fill_between([entry["size_bytes"] for entry in banded], low, high, color=colour, alpha=0.15, linewidth=0)
    of = next((entry["of"] for entry in entries if "of" in entry), "")
    axes.set(yscale="log", ylabel=f"time of {of}" if of else "time")
    axes.yaxis.set(major_locator=LogLocator(subs=(1.0, 2.0, 5.0), numticks=14), minor_formatter=NullFormatter())
    axes.yaxis.set_major_formatter(lambda value, _: format_duration(value, digits=3))
    draw_over_sizes(axes)
    axes.legend()
    figure.text(0.02, 0.97, "\n".join(textwrap.wrap(title, _WIDTH)), fontsize=11.5, fontweight="bold", va="top")
    return with_foot(figure, said(results[-1].changed, begin="", of=results[-1].name_among(results)))


def draw_over_sizes(axes: Axes, label: str = "size") -> None:
    """Draw the axis of sizes, in powers of 2, and a grid; the other axis comes before."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set(major_locator=LogLocator(base=2, numticks=9), minor_formatter=NullFormatter(), label_text=label)
    axes.xaxis.set_major_formatter(lambda value, _: format_binary(value, 3))
    axes.grid()


_EXPECTED, _MEASURED, _OTHER = "#0072b2", "#d55e00", "#7a5195"  # from Okabe and Ito's colour-blind-safe palette
_TITLE_WIDTH = 72  # characters of the title in a line


@drawn
def draw_check(document: Mapping[str, Any], title: str) -> Figure:
    """Return a figure of *document*, the output of ``validate check --json``."""
    rows = document["sizes"]
    sizes = [row["size_bytes"] for row in rows]
    figure = Figure(figsize=(7.6, 4.8))
    lines = textwrap.wrap(title, _TITLE_WIDTH)
    axes = figure.add_axes((0.11, 0.12, 0.86, 0.82 - 0.04 * max(2, len(lines))))
    per_s = [row["measured_busbw_Bps"] * row["measured_s"] / 1e9 for row in rows]  # GB that cross the bus
    slow = [bus / row["healthy_to_s"] for bus, row in zip(per_s, rows, strict=True)]
    fast = [bus / row["healthy_from_s"] for bus, row in zip(per_s, rows, strict=True)]
    axes.fill_between(sizes, slow, fast, color=_EXPECTED, alpha=0.15, linewidth=0, label="healthy: the 80 % band")
    axes.plot(sizes, [row["expected_busbw_Bps"] / 1e9 for row in rows], "-", color=_EXPECTED, lw=1.6, label="expected")
    axes.plot(sizes, [row["measured_busbw_Bps"] / 1e9 for row in rows], "o", color=_MEASURED, ms=4.5, label="measured")
    bus_of = dict(zip(sizes, per_s, strict=True))
    if document["explanations"]:
        best = document["explanations"][0]
        times = [(entry["size_bytes"], bus_of[entry["size_bytes"]] / entry["time_s"]) for entry in best["times"]]
        label = textwrap.shorten(best["words"], 60, placeholder="...")
        axes.plot([t[0] for t in times], [t[1] for t in times], "--", color=_OTHER, lw=1.4, label=label)
    axes.set(ylim=(0.0, None), ylabel="bus bandwidth, GB/s")
    draw_over_sizes(axes, "size of the buffer")
    axes.legend(loc="upper left")
    figure.text(0.02, 0.97, "\n".join(lines), fontsize=11.5, fontweight="bold", va="top", color=INK)
    return figure


_MOST_TICKS = 12


@drawn
def draw_curve(curve: Curve) -> Figure:
    """Return a figure of *curve*."""
    first, last = curve.results[0], curve.results[-1]
    figure = Figure(figsize=(9.5, 6.4))
    step = first.step
    which = "weak" if curve.is_weak else "strong"
    where = _machines(first.machine, last.machine)
    head = f"{MODE_WORDS[step.options.mode]} of {step.workload} on {where}, {which} scaling, "
    head += f"{precision_words(step)}, {last.way}"
    figure.text(0.02, 0.98, "\n".join(textwrap.wrap(head[0].upper() + head[1:], 95)), fontsize=11.5,
                fontweight="bold", va="top")  # fmt: skip
    _draw_rate(figure.add_axes((0.09, 0.47, 0.66, 0.42)), curve)
    _draw_shares(figure.add_axes((0.09, 0.09, 0.66, 0.28)), curve)
    return figure


def _machines(first: str, last: str) -> str:
    fewest, most = re.match(r"(\d+) x (?=.)", first), re.match(r"(\d+) x (?=.)", last)
    return last if first == last or most is None else f"{fewest[1] if fewest else 1} to {last}"


def _draw_rate(axes: Axes, curve: Curve) -> None:
    counts = [result.device_count for result in curve.results]
    rates = [result.throughput for result in curve.results]
    bands = [result.band for result in curve.results]
    ideal = [rates[0] * count / counts[0] for count in counts]
    axes.plot(counts, ideal, "--", color=INK, linewidth=0.8, label="as the first")
    if all(band is not None for band in bands):
        ends = [band.of_rate(r.step_time_s, r.throughput) for band, r in zip(bands, curve.results, strict=True) if band]
        low, high = ([end[side] for end in ends] for side in (0, 1))
        axes.fill_between(counts, low, high, color=BEST, alpha=0.2, linewidth=0, label=BAND_HEAD)
    axes.plot(counts, rates, "o-", color=BEST, markersize=4, label="simulated")
    for count, rate, efficiency in zip(counts, rates, curve.efficiency, strict=True):
        if len(counts) <= _MOST_TICKS:
            axes.annotate(percent(efficiency), (count, rate), (5, -10), textcoords="offset points", fontsize=8)
    knee = curve.knee
    if knee is not None:
        axes.axvspan(knee.before, knee.after, color=ACTIVITIES["data"], alpha=0.1, linewidth=0)
        text = "\n".join(textwrap.wrap(f"bends at {knee.after:,}: {knee.cause}", 26))
        axes.text(1.03, 0.05, text, transform=axes.transAxes, fontsize=8.5, va="bottom", color="#a04000")
    axes.set_yscale("log", base=2)
    axes.set_ylabel(f"{curve.results[0].step.sample} a second")
    axes.yaxis.set_major_formatter(lambda value, _: rate_words(value))
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0))
    _mark_counts(axes, counts)


def _draw_shares(axes: Axes, curve: Curve) -> None:
    counts = [result.device_count for result in curve.results]
    found = [{name: seconds / r.step_time_s for name, seconds in time_shares(r).items()} for r in curve.results]
    names = [name for name in ACTIVITIES if any(shares.get(name, 0.0) >= 0.005 for shares in found)]
    heights = [[100 * shares.get(name, 0.0) for shares in found] for name in names]
    words = [SHARE_WORDS[name].replace("-parallel exchange", " exchange") for name in names]
    if len(counts) > 1:
        axes.stackplot(counts, heights, labels=words, colors=[ACTIVITIES[name] for name in names])
    axes.set(ylim=(0, 100), ylabel="of the step, %", xlabel="GPUs")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.02, 1.0))
    _mark_counts(axes, counts)


def _mark_counts(axes: Axes, counts: list[int]) -> None:
    shown = counts if len(counts) <= _MOST_TICKS else counts[:: -(-len(counts) // _MOST_TICKS)]
    axes.set_xscale("log", base=2)
    axes.xaxis.set(major_locator=FixedLocator(shown), minor_locator=NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(labelsize=8.5)


_PREDICTED, _WANTED = "#0072b2", "#e69f00"  # from Okabe and Ito's palette
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
    runs = lists_by_key(dict.fromkeys((what, run) for answer in answers for run, what in answer.changed))
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
            axes.plot([low, high], [row, row], color=_WANTED, lw=4, solid_capstyle="butt")
        for end, mark in ((low, "|" if low == high else ">"), (high, "|" if low == high else "<")):
            if end is not None and end > 0:
                axes.plot([end], [row], mark, color=_WANTED, ms=15 if mark == "|" else 6, mew=3)
    if max([*values, *ends]) > 20 * min([*values, *ends]):
        axes.set_xscale("log")
        axes.xaxis.set(major_locator=LogLocator(numticks=8), minor_formatter=NullFormatter())
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
