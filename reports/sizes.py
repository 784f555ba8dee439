"""Figures of curves: a single operation over sizes, a log that is checked, and how a step scales over devices.

The log has measured points, the expected curve of bus bandwidth with its band, and the explanation that fits best.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from reports.colours import ACTIVITIES, BEST, INK
from reports.colours import MARKED_SERIES as SERIES
from reports.file import drawn, with_foot
from simulator.results.changed import said
from simulator.results.columns import percent, rate_words
from simulator.results.confidence import BAND_HEAD
from simulator.results.single import SingleResult
from simulator.results.step_view import MODE_WORDS, SHARE_WORDS, precision_words, time_shares
from simulator.search.scaling import Curve
from simulator.units import format_duration, format_size

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
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=14))
    axes.yaxis.set_major_formatter(lambda value, _: format_duration(value, digits=3))
    axes.yaxis.set_minor_formatter(NullFormatter())
    draw_over_sizes(axes)
    of = next((entry["of"] for entry in entries if "of" in entry), "")
    axes.set_ylabel(f"time of {of}" if of else "time")
    axes.legend()
    figure.text(0.02, 0.97, "\n".join(textwrap.wrap(title, _WIDTH)), fontsize=11.5, fontweight="bold", va="top")
    return with_foot(figure, said(results[-1].changed, begin="", of=results[-1].name_among(results)))


def draw_over_sizes(axes: Axes, label: str = "size") -> None:
    """Draw the axis of sizes, in powers of 2, and a grid; the other axis comes before."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.xaxis.set_major_formatter(lambda value, _: _binary(value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)
    axes.grid()


def _binary(n_bytes: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.3g} {unit}"
    return format_size(n_bytes, digits=3)


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
    expected = [row["expected_busbw_Bps"] / 1e9 for row in rows]
    axes.plot(sizes, expected, "-", color=_EXPECTED, lw=1.6, label="expected")
    measured = [row["measured_busbw_Bps"] / 1e9 for row in rows]
    axes.plot(sizes, measured, "o", color=_MEASURED, ms=4.5, label="measured")
    bus_of = dict(zip(sizes, per_s, strict=True))
    for each in document["explanations"][:1]:
        times = [(entry["size_bytes"], bus_of[entry["size_bytes"]] / entry["time_s"]) for entry in each["times"]]
        label = textwrap.shorten(each["words"], 60, placeholder="...")
        axes.plot([t[0] for t in times], [t[1] for t in times], "--", color=_OTHER, lw=1.4, label=label)
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("bus bandwidth, GB/s")
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
    """Return the name of a range of machines from *first* to *last*: 1 to 32 x dgx-h100."""
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
    axes.set_ylim(0, 100)
    axes.set_ylabel("of the step, %")
    axes.set_xlabel("GPUs")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.02, 1.0))
    _mark_counts(axes, counts)


def _mark_counts(axes: Axes, counts: list[int]) -> None:
    shown = counts if len(counts) <= _MOST_TICKS else counts[:: -(-len(counts) // _MOST_TICKS)]
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(labelsize=8.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
