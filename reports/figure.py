"""The figure of a collective: the comparison of strategies on the left, the machine on the right."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure

from reports.file import figure_file
from reports.layout import lay_out_view
from reports.machine import draw_legend, draw_machine, legend_height, use_colours
from reports.panels import draw_comparison, draw_links, draw_sweep
from reports.view import make_view
from simulator.results.order import best_of
from simulator.results.reason import verdict
from simulator.results.result import Result
from simulator.results.sweep import winners
from simulator.units import format_bandwidth, format_duration, format_size

_HEAD_LINES = 6  # above the left panel, which they make lower
_LETTER_IN = 0.083  # inches per letter of a label beside a bar


def draw(by_size: Sequence[Sequence[Result]], kind: str) -> bytes:
    """Return a figure of the results of each size (fastest first) as a file: svg, png or pdf (*kind*)."""
    return figure_file(lambda: figure_of(by_size), kind)


def figure_of(by_size: Sequence[Sequence[Result]]) -> Figure:
    """Return the figure that :func:`draw` writes."""
    results = by_size[-1]
    best = best_of(results)
    view = make_view(best)
    layout = lay_out_view(view)
    left, right, bottom, top = layout.extent
    machine_width = max(6.6, min(12.5, 0.66 * (right - left + 1.7) + 0.9))
    legend = legend_height(view)
    names = [] if len(by_size) > 1 else _names(results, best)
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


def _names(results: Sequence[Result], best: Result) -> list[str]:
    """Return the labels to the left of the bars."""
    if len(results) > 1:
        return [result.strategy for result in results]
    return [use.name for use in best.links if use.bytes > 0]


def _answer(best: Result, *, over_sizes: bool) -> str:
    """Return the best strategy and its time in words; for several sizes, at the largest."""
    takes = "takes" if best.counts_software else "needs at least"
    rate = f", {format_bandwidth(best.busbw_Bps, 3)} of bus bandwidth" if best.busbw_Bps else ""
    at = f" for {format_size(best.size_bytes)}" if over_sizes else ""
    return f"{best.strategy} {takes} {format_duration(best.sync_time_s)}{at}{rate}"
