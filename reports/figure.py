"""The figure of a collective: the comparison of strategies on the left, the machine on the right; and its panels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from reports.colours import BEST, INK, OTHER, strategy_series
from reports.file import drawn
from reports.layout import lay_out_view
from reports.machine import draw_legend, draw_machine, legend_height, use_colours
from reports.view import make_view
from simulator.results.columns import duration_column, percent
from simulator.results.reason import verdict
from simulator.results.result import Result, best_of, by_time, grouped
from simulator.results.sweep import winners
from simulator.units import DURATIONS, format_bandwidth, format_duration, format_size

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
        axes.xaxis.set_major_formatter(lambda value, _: format_duration(value, 3))
    else:
        axes.barh(rows, times, color=colours, height=0.66, zorder=2)
        axes.set_xlim(0, max(ends) * 1.36 or 1.0)
        scale, unit = next(((s, u) for s, u in DURATIONS if max(times) >= s), DURATIONS[-1])
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / scale:g} {unit}")
    for i, (end, text) in enumerate(zip(ends, duration_column(times), strict=True)):
        weight = "bold" if colours[i] == BEST else "normal"
        axes.annotate(text, (end, i), (7, 0), textcoords="offset points", va="center", fontsize=9, fontweight=weight)
    for i, band in enumerate(bands):
        if band is not None:  # drawn as a whisker
            axes.plot([band.low_s, band.high_s], [i, i], "|-", color=INK, linewidth=1.0, markersize=6, zorder=4)
    axes.set_yticks(rows, [r.strategy for r in results], fontsize=9)
    axes.set_ylim(len(results) - 0.4, -0.6)
    words = "time, logarithmic" if wide else "time"
    axes.set_xlabel(f"{words}; line: 80 % band" if any(bands) else words)


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
    axes.set_xlabel("share of the link's capacity used")


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
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(LogLocator(numticks=6))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: format_size(value, 3))
    axes.set_xlabel("size")
    axes.set_ylabel("busbw, GB/s")
    axes.legend()
    axes.grid()


_HEAD_LINES = 6  # above the left panel, which they make lower
_LETTER_IN = 0.083  # inches per letter of a label beside a bar


@drawn
def draw(by_size: Sequence[Sequence[Result]]) -> Figure:
    """Return a figure of the results of each size (fastest first)."""
    results = by_size[-1]
    best = best_of(results)
    view = make_view(best)
    layout = lay_out_view(view)
    left, right, bottom, top = layout.extent
    machine_width = max(6.6, min(12.5, 0.66 * (right - left + 1.7) + 0.9))
    legend = legend_height(view)
    names: list[str] = []  # to the left of the bars
    if len(by_size) == 1:
        names = [r.strategy for r in results] if len(results) > 1 else [use.name for use in best.links if use.bytes > 0]
    margin = max(1.55, 0.3 + _LETTER_IN * max((len(name) for name in names), default=0))
    width = margin + 4.05 + machine_width
    compares = len(results) > 1 and len(by_size) == 1
    letters = int(width * 13.2)
    said = textwrap.wrap(best.changed.said(best.strategy), letters) if best.changed is not None else []
    said += textwrap.wrap(verdict(results), letters) if compares else []
    foot = 0.35 + 0.16 * len(said)
    height = max(4.8, 0.3 * len(results) + 2.2, 0.62 * (top - bottom + 1.2) + 1.3 + legend + foot)
    figure = Figure(figsize=(width, height))
    beside = margin + 4.15  # where the machine begins
    low, tall = foot + 0.6, height - foot - 1.5
    panel = figure.add_axes((margin / width, low / height, 3.7 / width, tall / height))
    size_in = machine_width - 0.9, height - 1.05 - foot - legend
    drawing = figure.add_axes((beside / width, (foot + legend) / height, size_in[0] / width, size_in[1] / height))
    scale = figure.add_axes((1 - 0.62 / width, (low + 0.2) / height, 0.12 / width, (tall - 0.55) / height))
    colours = use_colours()
    gpus = f"{best.n_ranks} GPUs" if best.n_ranks != 1 else "1 GPU"
    if len(by_size) > 1:
        draw_sweep(panel, by_size)
        head = f"bus bandwidth over size; {winners(by_size)}"
    elif len(results) > 1:
        draw_comparison(panel, results)
        head = f"time to {best.collective} {format_size(best.size_bytes)}"
        if not best.is_bound and any(r.is_bound for r in results):
            head += "; grey: on bare links, without software"
    else:
        draw_links(panel, best, colours)
        head = f"links by use, {format_size(best.size_bytes)}"
    draw_machine(drawing, view, layout, colours, size_in)
    draw_legend(figure, view, beside, foot + legend, size_in[0])
    bar = figure.colorbar(colours, cax=scale)
    scale.set_title("use", fontsize=9)
    bar.set_ticks(range(0, 101, 25), labels=[f"{tick} %" for tick in range(0, 101, 25)], fontsize=8)
    bar.outline.set_visible(False)
    y = 1 - 0.55 / height
    title = f"{best.machine}: {best.collective} over {gpus}, {_answer(best, over_sizes=len(by_size) > 1)}"
    figure.text(0.25 / width, 1 - 0.16 / height, title, fontsize=12, fontweight="bold", va="top")
    wrapped = textwrap.wrap(head, int((margin + 3.5) / 0.082), max_lines=_HEAD_LINES, placeholder=" ...")
    figure.text(0.25 / width, y, "\n".join(wrapped), fontsize=10, va="top", linespacing=1.1)
    lower = 0.17 * max(0, len(wrapped) - 2)  # there is room for two lines above the panel
    panel.set_position((margin / width, low / height, 3.7 / width, (tall - lower) / height))
    parts = [f"links under {best.strategy}, by use of the busier direction"]
    if len(by_size) > 1:
        parts[0] += f" at {format_size(best.size_bytes)}"
    beneath = textwrap.wrap("; ".join([*parts, *([view.note] if view.note else [])]), int((width - beside) / 0.082))
    figure.text(beside / width, y, "\n".join(beneath), fontsize=10, va="top", linespacing=1.1)
    if said:
        figure.text(0.25 / width, 0.12 / height, "\n".join(said), fontsize=9, va="bottom")
    return figure


def _answer(best: Result, *, over_sizes: bool) -> str:
    """Return the best strategy and its time in words; for several sizes, at the largest."""
    takes = "takes" if best.counts_software else "needs at least"
    rate = f", {format_bandwidth(best.busbw_Bps, 3)} of bus bandwidth" if best.busbw_Bps else ""
    at = f" for {format_size(best.size_bytes)}" if over_sizes else ""
    return f"{best.strategy} {takes} {format_duration(best.sync_time_s)}{at}{rate}"
