"""Draws a machine with its links coloured by utilisation."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from reports.colours import DEVICES, INK, USE
from reports.layout import HALF_HEIGHT, Curve, DrawingLayout, edge_curve, half_width, point_on
from reports.view import DrawnEdge, Symbol, View
from simulator.results.words import LINK_WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOWN = (0.0, (3.0, 2.0))  # dashes of links that are out of use
_NETWORK = "network-switch"
_MOST_IN = 0.85  # largest distance of two GPUs, in inches
_LINE_IN = 0.165  # line spacing of the legend
_SMALL_LETTER_IN = 0.064  # width of a letter in the legend
_MORE_LETTERS = 30  # in a line about the nodes that are not drawn
_MOST_SORTS = 8  # sorts of links in the legend
_LETTER_IN = 0.085  # width of a letter in the bottleneck's label


def use_colours() -> ScalarMappable:
    """Return the colour scale of utilisation, in percent."""
    return ScalarMappable(Normalize(0, 100), LinearSegmentedColormap.from_list("use", USE[1:]))


def draw_machine(
    axes: Axes, view: View, layout: DrawingLayout, colours: ScalarMappable, size_in: tuple[float, float]
) -> None:
    """Draw *view* at the positions of *layout* into *axes* of *size_in* inches (width, height)."""
    axes.set_axis_off()
    left, right, bottom, top = layout.extent
    step_x = min(_MOST_IN, size_in[0] / (right - left + 1.7))
    step_y = min(_MOST_IN, size_in[1] / (top - bottom + 1.2))
    middle_x, middle_y = (left + right) / 2, (bottom + top) / 2
    limits = (
        middle_x - size_in[0] / step_x / 2,
        middle_x + size_in[0] / step_x / 2,
        middle_y - size_in[1] / step_y / 2,
        middle_y + size_in[1] / step_y / 2,
    )
    axes.set_xlim(*limits[:2])
    axes.set_ylim(*limits[2:])
    curves = [edge_curve(view, edge, layout) for edge in view.edges]
    for edge, curve in sorted(zip(view.edges, curves, strict=True), key=lambda item: item[0].use):
        colour = colours.cmap(edge.use) if edge.use > 0 else USE[0]
        width = _width(edge)
        if edge.is_bottleneck:
            axes.add_patch(_line(curve, INK, width + 3.6, 4.0))
        if edge.is_down:
            axes.add_patch(_line(curve, INK, width, 1.9, _DOWN))
            continue
        axes.add_patch(_line(curve, colour, width, 4.1 if edge.is_bottleneck else 2.0 + edge.use))
    for symbol, (x, y) in zip(view.symbols, layout.positions, strict=True):
        _draw_symbol(axes, symbol, x, y)
    hosts = sorted({symbol.host for symbol in view.symbols if symbol.host >= 0})
    for host in hosts if len(hosts) > 1 else ():
        xs = [x for symbol, (x, _) in zip(view.symbols, layout.positions, strict=True) if symbol.host == host]
        axes.text((min(xs) + max(xs)) / 2, bottom - 0.42, f"node {host}", ha="center", fontsize=9)
    if view.more:
        x, y = next(
            place for symbol, place in zip(view.symbols, layout.positions, strict=True) if symbol.kind == _NETWORK
        )
        axes.text(x + 0.62, y, textwrap.fill(view.more, _MORE_LETTERS), va="center", fontsize=8.5)
    if view.busiest:
        _label_bottleneck(axes, view, layout, curves, limits, step_x)


def _width(edge: DrawnEdge) -> float:
    """Return the line width, in points: wider for links in use, and for edges of more links of their kind."""
    return (2.6 if edge.use > 0 else 1.1) * (0.55 + 0.9 * edge.weight)


def legend_height(view: View) -> float:
    """Return the height of the legend, in inches."""
    return _LINE_IN * (1 + max(len(_links(view)), len(view.models)))


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
    """Return the kind, count and rate of each sort of link in words, with an edge of that sort."""
    found: dict[str, DrawnEdge] = {}
    for edge in sorted(view.edges, key=lambda edge: (list(LINK_WORDS).index(edge.kind), -edge.count)):
        found.setdefault(f"{'out of use: ' * edge.is_down}{edge.words}", edge)
    return dict(list(found.items())[:_MOST_SORTS])


def _label_bottleneck(
    axes: Axes, view: View, layout: DrawingLayout, curves: list[Curve], limits: tuple[float, ...], step_in: float
) -> None:
    """Write the bottleneck's name near the middle of its line, where it covers least."""
    marked = [curve for edge, curve in zip(view.edges, curves, strict=True) if edge.is_bottleneck]
    marked += [
        (place,) * 4 for symbol, place in zip(view.symbols, layout.positions, strict=True) if symbol.is_bottleneck
    ]
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
    best = float(cost[chosen]), float(cx[chosen]), float(cy[chosen])
    if abs(best[2] - y) > 0.3 or abs(best[1] - x) > half + 0.2:
        axes.plot([x, best[1]], [y, best[2]], color=INK, linewidth=0.8, zorder=7)
    axes.text(
        best[1], best[2], view.busiest, ha="center", va="center", fontsize=9, fontweight="bold", zorder=8,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": INK, "linewidth": 0.8, "alpha": 0.92},
    )  # fmt: skip


def _line(curve: Curve, colour: object, width: float, order: float, dashes: object = "solid") -> PathPatch:
    path = Path(curve, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    cap = "round" if dashes == "solid" else "butt"
    return PathPatch(
        path, fill=False, edgecolor=colour, linewidth=width, zorder=order, capstyle=cap, linestyle=dashes
    )  # fmt: skip


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
