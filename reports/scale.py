"""The figure of a scaling curve: samples per second over devices, and where the time of a step goes."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from reports.colours import ACTIVITIES, BEST, INK
from reports.file import drawn
from simulator.results.columns import percent, rate_words
from simulator.results.confidence import BAND_HEAD
from simulator.results.step_view import MODE_WORDS, SHARE_WORDS, precision_words, time_shares
from simulator.search.scaling import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    if first == last or most is None:
        return last
    return f"{fewest[1] if fewest else 1} to {last}"


def _draw_rate(axes: Axes, curve: Curve) -> None:
    """Draw samples per second with their band, next to ideal scaling from the first point."""
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
    """Draw the device's time by activity, as shares of the step."""
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
