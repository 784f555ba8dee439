"""The figure of a collective: the comparison of strategies on the left, the machine, coloured by use, on the right."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from reports.colours import BEST, DEVICES, INK, OTHER, USE, strategy_series
from reports.file import drawn
from reports.layout import HALF_HEIGHT, Curve, DrawingLayout, edge_curve, half_width, lay_out_view, point_on
from reports.view import DrawnEdge, Symbol, View, make_view
from simulator.records import lists_by_key
from simulator.results import WORDS, duration_column, percent
from simulator.results.reason import verdict
from simulator.results.result import Result, best_of, by_time, grouped
from simulator.results.sweep import winners
from simulator.units import DURATIONS, format_bandwidth, format_duration, format_size

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
        axes.set(xscale="log", xlim=(best / 2, max(ends) * 8))
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
    words = "time, logarithmic" if wide else "time"
    axes.set(ylim=(len(results) - 0.4, -0.6), xlabel=f"{words}; line: 80 % band" if any(bands) else words)


def draw_links(axes: Axes, result: Result, colours: ScalarMappable) -> None:
    """Draw the most used links of *result*; links with equal use share a bar."""
    used = (use for use in result.links if use.bytes > 0)
    alike = lists_by_key(((round(use.utilisation, 6), round(use.bytes, 3)), use.name) for use in used)
    kinds = sorted(alike.items(), key=lambda item: -item[0][0])[:_SHOWN_LINKS]
    rows, uses = range(len(kinds)), [share * 100 for (share, _), _ in kinds]
    axes.barh(rows, uses, color=[colours.cmap(use / 100) for use in uses], height=0.66, zorder=2)
    for i, ((share, n_bytes), _) in enumerate(kinds):
        text = f"{percent(share)}, {format_size(n_bytes)}"
        axes.annotate(text, (share * 100, i), (5, 0), textcoords="offset points", va="center", fontsize=9)
    names = [f"{names[0]}\nand {len(names) - 1} alike" if len(names) > 1 else names[0] for _, names in kinds]
    axes.set_yticks(rows, names, fontsize=9)
    axes.set(ylim=(max(len(kinds), 6) - 0.4, -0.6), xlim=(0, 145), xlabel="share of the link's capacity used")
    axes.set_xticks(range(0, 101, 25), [f"{tick} %" for tick in range(0, 101, 25)])


def draw_sweep(axes: Axes, by_size: Sequence[Sequence[Result]]) -> None:
    """Draw each strategy's bus bandwidth over size, bounds dashed; rates within a decade have an axis from zero."""
    rates: list[float] = []
    for last in sorted(by_size[-1], key=lambda r: -r.busbw_Bps):
        name = last.strategy
        mine = [r for found in by_size for r in found if r.strategy == name]
        sizes, own = [r.size_bytes for r in mine], [r.busbw_Bps / 1e9 for r in mine]
        colour, mark = strategy_series(name)
        dashes = "-" if any(not r.is_bound for r in by_size[-1] if r.strategy == name) else "--"
        axes.plot(sizes, own, dashes, label=name, marker=mark, markersize=3.5, linewidth=1.6, color=colour)
        banded = [(r, r.band) for r in mine]
        ends = [(r.size_bytes, *b.of_rate(r.sync_time_s, r.busbw_Bps / 1e9)) for r, b in banded if b is not None]
        at, low, high = ([end[side] for end in ends] for side in range(3))
        axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        rates += own
    axes.set(xscale="log", xlabel="size", ylabel="busbw, GB/s")
    if rates and max(rates) >= 10 * min(rates) > 0:
        axes.set_yscale("log")
        axes.yaxis.set(major_locator=LogLocator(subs=(1.0, 2.0, 5.0), numticks=12), minor_locator=NullLocator())
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.xaxis.set(major_locator=LogLocator(numticks=6), minor_locator=NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: format_size(value, 3))
    axes.legend()
    axes.grid()


_HEAD_LINES = 6  # above the left panel, which they make lower
_BAR_LETTER_IN = 0.083  # inches per letter of a label beside a bar


@drawn
def draw(by_size: Sequence[Sequence[Result]]) -> Figure:
    """Return a figure of the results of each size (fastest first)."""
    results = by_size[-1]
    best = best_of(results)
    view = make_view(best)
    layout = lay_out_view(view)
    left, right, bottom, top = layout.extent
    machine_width = max(6.6, min(12.5, 0.66 * (right - left + 1.7) + 0.9))
    legend = _LINE_IN * (1 + max(len(_links(view)), len(view.models)))
    names: list[str] = []  # to the left of the bars
    if len(by_size) == 1:
        names = [r.strategy for r in results] if len(results) > 1 else [use.name for use in best.links if use.bytes > 0]
    margin = max(1.55, 0.3 + _BAR_LETTER_IN * max((len(name) for name in names), default=0))
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
    colours = ScalarMappable(Normalize(0, 100), LinearSegmentedColormap.from_list("use", USE[1:]))  # in percent
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
    at = f" for {format_size(best.size_bytes)}" if len(by_size) > 1 else ""
    rate = f", {format_bandwidth(best.busbw_Bps, 3)} of bus bandwidth" if best.busbw_Bps else ""
    takes = f"{'takes' if best.counts_software else 'needs at least'} {format_duration(best.sync_time_s)}{at}{rate}"
    gpus = f"{best.n_ranks} GPU{'s' * (best.n_ranks != 1)}"
    title = f"{best.machine}: {best.collective} over {gpus}, {best.strategy} {takes}"
    figure.text(0.25 / width, 1 - 0.16 / height, title, fontsize=12, fontweight="bold", va="top")
    wrapped = textwrap.wrap(head, int((margin + 3.5) / 0.082), max_lines=_HEAD_LINES, placeholder=" ...")
    figure.text(0.25 / width, y, "\n".join(wrapped), fontsize=10, va="top", linespacing=1.1)
    lower = 0.17 * max(0, len(wrapped) - 2)  # there is room for two lines above the panel
    panel.set_position((margin / width, low / height, 3.7 / width, (tall - lower) / height))
    under = f"links under {best.strategy}, by use of the busier direction"
    under += f" at {format_size(best.size_bytes)}" if len(by_size) > 1 else ""
    beneath = textwrap.wrap("; ".join(filter(None, (under, view.note))), int((width - beside) / 0.082))
    figure.text(beside / width, y, "\n".join(beneath), fontsize=10, va="top", linespacing=1.1)
    if said:
        figure.text(0.25 / width, 0.12 / height, "\n".join(said), fontsize=9, va="bottom")
    return figure


_DOWN = (0.0, (3.0, 2.0))  # dashes of links that are down
_NETWORK = "network-switch"
_MOST_IN = 0.85  # largest distance of two GPUs, in inches
_LINE_IN = 0.165  # line spacing of the legend
_SMALL_LETTER_IN = 0.064  # width of a letter in the legend
_MORE_LETTERS = 30  # in a line about the nodes that are not drawn
_MOST_SORTS = 8  # sorts of links in the legend
_LETTER_IN = 0.085  # width of a letter in the bottleneck's label


def draw_machine(
    axes: Axes, view: View, layout: DrawingLayout, colours: ScalarMappable, size_in: tuple[float, float]
) -> None:
    """Draw *view* at the positions of *layout* into *axes* of *size_in* inches (width, height)."""
    axes.set_axis_off()
    left, right, bottom, top = layout.extent
    step_x = min(_MOST_IN, size_in[0] / (right - left + 1.7))
    step_y = min(_MOST_IN, size_in[1] / (top - bottom + 1.2))
    half_x, half_y = size_in[0] / step_x / 2, size_in[1] / step_y / 2
    middle_x, middle_y = (left + right) / 2, (bottom + top) / 2
    limits = middle_x - half_x, middle_x + half_x, middle_y - half_y, middle_y + half_y
    axes.set(xlim=limits[:2], ylim=limits[2:])
    curves = [edge_curve(view, edge, layout) for edge in view.edges]
    for edge, curve in sorted(zip(view.edges, curves, strict=True), key=lambda item: item[0].use):
        width = _width(edge)
        if edge.is_bottleneck:
            axes.add_patch(_line(curve, INK, width + 3.6, 4.0))
        if edge.is_down:
            axes.add_patch(_line(curve, INK, width, 1.9, _DOWN))
        else:
            colour = colours.cmap(edge.use) if edge.use > 0 else USE[0]
            axes.add_patch(_line(curve, colour, width, 4.1 if edge.is_bottleneck else 2.0 + edge.use))
    placed = list(zip(view.symbols, layout.positions, strict=True))
    for symbol, (x, y) in placed:
        _draw_symbol(axes, symbol, x, y)
    hosts = sorted({symbol.host for symbol in view.symbols if symbol.host >= 0})
    for host in hosts if len(hosts) > 1 else ():
        xs = [x for symbol, (x, _) in placed if symbol.host == host]
        axes.text((min(xs) + max(xs)) / 2, bottom - 0.42, f"node {host}", ha="center", fontsize=9)
    if view.more:
        x, y = next(place for symbol, place in placed if symbol.kind == _NETWORK)
        axes.text(x + 0.62, y, textwrap.fill(view.more, _MORE_LETTERS), va="center", fontsize=8.5)
    if view.busiest:
        _label_bottleneck(axes, view, layout, curves, limits, step_x)


def _width(edge: DrawnEdge) -> float:
    return (2.6 if edge.use > 0 else 1.1) * (0.55 + 0.9 * edge.weight)


def draw_legend(figure: Figure, view: View, left_in: float, top_in: float, width_in: float) -> None:
    """Write, under the machine, the parts of its devices and the kind, count and rate of each sort of link."""
    width, height = figure.get_size_inches()

    def write(x_in: float, line: int, text: str, **how: object) -> None:
        place = x_in / width, (top_in - _LINE_IN * line) / height
        figure.text(*place, text, fontsize=8, va="top", **how)  # type: ignore[arg-type]

    links_in = left_in + width_in * 0.52
    if view.models:
        write(left_in, 0, "devices", fontweight="bold")
    write(links_in, 0, "links, each direction", fontweight="bold")
    for line, text in enumerate(view.models, 1):
        write(left_in, line, textwrap.shorten(text, int(width_in * 0.5 / _SMALL_LETTER_IN), placeholder=" ..."))
    for line, (text, edge) in enumerate(_links(view).items(), 1):
        y = (top_in - _LINE_IN * (line + 0.42)) / height
        ends = [links_in / width, (links_in + 0.3) / width]
        sample = Line2D(ends, [y, y], linewidth=_width(edge), color=INK, linestyle=_DOWN if edge.is_down else None)
        figure.add_artist(sample)
        write(links_in + 0.38, line, text)


def _links(view: View) -> dict[str, DrawnEdge]:
    found: dict[str, DrawnEdge] = {}
    for edge in sorted(view.edges, key=lambda edge: (list(WORDS["links"]).index(edge.kind), -edge.count)):
        found.setdefault(f"{'down: ' * edge.is_down}{edge.words}", edge)
    return dict(list(found.items())[:_MOST_SORTS])


def _label_bottleneck(
    axes: Axes, view: View, layout: DrawingLayout, curves: list[Curve], limits: tuple[float, ...], step_in: float
) -> None:
    marked = [curve for edge, curve in zip(view.edges, curves, strict=True) if edge.is_bottleneck]
    placed = zip(view.symbols, layout.positions, strict=True)
    marked += [(place,) * 4 for symbol, place in placed if symbol.is_bottleneck]
    if not marked:
        axes.text(0.5, 0.0, view.busiest, transform=axes.transAxes, ha="center", fontsize=9, fontweight="bold")
        return
    x, y = point_on(marked[0], 0.5)
    half, tall = len(view.busiest) * _LETTER_IN / step_in / 2 + 0.1, 0.2
    lines = np.array([point_on(curve, i / 32) for curve in curves for i in range(33)])
    boxes = np.array(layout.positions)
    across = np.linspace(limits[0] + half, limits[1] - half, 41)
    down = np.linspace(limits[2] + tall, limits[3] - tall, 41)
    cx, cy = (grid.ravel() for grid in np.meshgrid(across, down))
    on_lines = (np.abs(cx[:, None] - lines[:, 0]) < half) & (np.abs(cy[:, None] - lines[:, 1]) < tall)
    on_boxes = (np.abs(cx[:, None] - boxes[:, 0]) < half + 0.5) & (np.abs(cy[:, None] - boxes[:, 1]) < tall + 0.25)
    hidden = on_lines.sum(axis=1) + 100 * on_boxes.sum(axis=1)
    cost = 3.0 * hidden + 0.8 * np.abs(cx - x) + 2.0 * np.abs(cy - y)
    chosen = int(np.argmin(np.round(cost, 6)))
    at_x, at_y = float(cx[chosen]), float(cy[chosen])
    if abs(at_y - y) > 0.3 or abs(at_x - x) > half + 0.2:
        axes.plot([x, at_x], [y, at_y], color=INK, linewidth=0.8, zorder=7)
    axes.text(
        at_x, at_y, view.busiest, ha="center", va="center", fontsize=9, fontweight="bold", zorder=8,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": INK, "linewidth": 0.8, "alpha": 0.92},
    )  # fmt: skip


def _line(curve: Curve, colour: object, width: float, order: float, dashes: object = "solid") -> PathPatch:
    path = Path(curve, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    how = {"linestyle": dashes, "capstyle": "round" if dashes == "solid" else "butt"}
    return PathPatch(path, fill=False, edgecolor=colour, linewidth=width, zorder=order, **how)


def _draw_symbol(axes: Axes, symbol: Symbol, x: float, y: float) -> None:
    half = half_width(symbol)
    box = FancyBboxPatch(
        (x - half, y - HALF_HEIGHT), 2 * half, 2 * HALF_HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.09", mutation_aspect=1.0,
        facecolor=DEVICES.get(symbol.kind, "#ffffff") if symbol.active else "#ffffff",
        edgecolor=INK if symbol.active else "#9aa1a8",
        linewidth=2.6 if symbol.is_bottleneck else 0.9, zorder=5,
    )  # fmt: skip
    axes.add_patch(box)
    colour = INK if symbol.active else "#767d84"
    axes.text(x, y - 0.01, symbol.label, ha="center", va="center", color=colour, zorder=6,
              fontsize=8 if len(symbol.label) < 8 else 6.5)  # fmt: skip
