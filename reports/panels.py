"""The left half of a figure: strategies compared, links by use, or bandwidth over size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from reports.colours import BEST, INK, OTHER, strategy_series
from simulator.results.columns import DURATIONS, duration_column, percent
from simulator.results.order import best_of, by_time, grouped
from simulator.results.result import Result
from simulator.units import format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

_SHOWN_LINKS = 12
_WIDE_RANGE = 30


def draw_comparison(axes: Axes, results: Sequence[Result]) -> None:
    """Draw the times of *results*, fastest first, with the best highlighted; bounds on bare links come last."""
    results, _ = grouped(results)
    times = [r.sync_time_s for r in results]
    best, first = min(times), best_of(by_time(results))
    rows = range(len(results))
    sort, longest = (first.is_bound, first.counts_software), first.sync_time_s * (1 + 1e-6)
    alike = [r.sync_time_s <= longest and (r.is_bound, r.counts_software) == sort for r in results]
    colours = [BEST if is_alike else OTHER for is_alike in alike]
    bands = [r.band for r in results]
    ends = [max(time, band.high_s if band else time) for time, band in zip(times, bands, strict=True)]
    wide = best > 0 and max(times) > _WIDE_RANGE * best
    if wide:  # a logarithmic axis has no zero for bars to start from
        axes.hlines(rows, best / 2, times, color=OTHER, linewidth=1.2, zorder=2)
        axes.scatter(times, rows, color=colours, s=60, zorder=3)
        axes.set_xscale("log")
        axes.set_xlim(best / 2, max(ends) * 8)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(value, 3)))
    else:
        axes.barh(rows, times, color=colours, height=0.66, zorder=2)
        axes.set_xlim(0, max(ends) * 1.36 or 1.0)
        scale, unit = next(((s, u) for s, u in DURATIONS if max(times) >= s), DURATIONS[-1])
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:g} {unit}"))
    for i, (end, text) in enumerate(zip(ends, duration_column(times), strict=True)):
        weight = "bold" if colours[i] == BEST else "normal"
        axes.annotate(text, (end, i), (7, 0), textcoords="offset points", va="center", fontsize=9, fontweight=weight)
    for i, band in enumerate(bands):
        if band is not None:  # drawn as a whisker
            axes.plot([band.low_s, band.high_s], [i, i], "|-", color=INK, linewidth=1.0, markersize=6, zorder=4)
    axes.set_yticks(rows, [r.strategy for r in results], fontsize=9)
    axes.set_ylim(len(results) - 0.4, -0.6)
    words = "time, logarithmic" if wide else "time"
    axes.set_xlabel(f"{words}; line: 80 % band" if any(bands) else words, fontsize=9)
    _plain(axes)


def draw_links(axes: Axes, result: Result, colours: ScalarMappable) -> None:
    """Draw the most used links of *result*; links with equal use share a bar."""
    alike: dict[tuple[float, float], list[str]] = {}
    for use in result.links:
        if use.bytes > 0:
            alike.setdefault((round(use.utilisation, 6), round(use.bytes, 3)), []).append(use.name)
    kinds = sorted(alike.items(), key=lambda item: -item[0][0])[:_SHOWN_LINKS]
    rows = range(len(kinds))
    uses = [share * 100 for (share, _), _ in kinds]
    axes.barh(rows, uses, color=[colours.cmap(use / 100) for use in uses], height=0.66, zorder=2)
    for i, ((share, n_bytes), _) in enumerate(kinds):
        text = f"{percent(share)}, {format_size(n_bytes)}"
        axes.annotate(text, (share * 100, i), (5, 0), textcoords="offset points", va="center", fontsize=9)
    names = [f"{names[0]}\nand {len(names) - 1} alike" if len(names) > 1 else names[0] for _, names in kinds]
    axes.set_yticks(rows, names, fontsize=9)
    axes.set_ylim(max(len(kinds), 6) - 0.4, -0.6)
    axes.set_xlim(0, 145)
    axes.set_xticks(range(0, 101, 25), [f"{tick} %" for tick in range(0, 101, 25)])
    axes.set_xlabel("share of the link's capacity used", fontsize=9)
    _plain(axes)


def draw_sweep(axes: Axes, by_size: Sequence[Sequence[Result]]) -> None:
    """Draw the bus bandwidth of each strategy over size; bounds are dashed.

    Rates within a decade have an axis from zero, as a logarithmic one would have few ticks; sizes are logarithmic.
    """
    last = by_size[-1]
    rates: list[float] = []
    for name in [r.strategy for r in sorted(last, key=lambda r: -r.busbw_Bps)]:
        points = [(r.size_bytes, r.busbw_Bps / 1e9) for found in by_size for r in found if r.strategy == name]
        colour, mark = strategy_series(name)
        dashes = "-" if any(not r.is_bound for r in last if r.strategy == name) else "--"
        axes.plot(
            *zip(*points, strict=True), dashes, label=name, marker=mark, markersize=3.5, linewidth=1.6, color=colour
        )
        banded = [(r, r.band) for found in by_size for r in found if r.strategy == name]
        ends = [(r.size_bytes, b.of_rate(r.sync_time_s, r.busbw_Bps / 1e9)) for r, b in banded if b is not None]
        low, high = ([end[side] for _, end in ends] for side in (0, 1))
        axes.fill_between([size for size, _ in ends], low, high, color=colour, alpha=0.15, linewidth=0)
        rates += [rate for _, rate in points]
    axes.set_xscale("log")
    if rates and max(rates) >= 10 * min(rates) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value, 3)))
    axes.set_xlabel("size", fontsize=9)
    axes.set_ylabel("busbw, GB/s", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    axes.grid(color="#e6e9ec", zorder=0)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.tick_params(length=0, labelsize=9, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#9aa1a8")
