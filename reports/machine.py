"""Draw a machine, its links coloured by use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from reports.layout import Layout, arc_depth
from reports.view import Edge, Symbol, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BEST", "INK", "WARNING", "draw_machine", "use_colours"]

INK = "#22262b"
WARNING = "#b3261e"  # of what does not fit
BEST = "#1f6f8b"
_UNUSED = "#d3d7db"
_FILL = {
    "gpu": "#dcebd5",
    "cpu": "#d8e3f0",
    "nic": "#f0e6d2",
    "network-switch": "#f0e6d2",
    "nvlink-switch": "#e9e9ec",
    "pcie-switch": "#e9e9ec",
}
_HALF_HEIGHT = 0.19
_MOST_IN = 0.85  # inches from one GPU to the next, at most
_LETTER_IN = 0.085  # width of a letter of the bottleneck's label

Point = tuple[float, float]
Curve = tuple[Point, Point, Point, Point]  # a cubic Bezier curve


def use_colours() -> ScalarMappable:
    """Return the scale from no use to full use."""
    palette = LinearSegmentedColormap.from_list("use", colormaps["YlOrRd"](range(56, 256, 8)))
    return ScalarMappable(Normalize(0, 100), palette)


def draw_machine(axes: Axes, view: View, layout: Layout, colours: ScalarMappable, size_in: tuple[float, float]) -> None:
    """Draw *view* at the places of *layout* into *axes*, which are *size_in* inches wide and high."""
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
    curves = [_curve(view, edge, layout) for edge in view.edges]
    for edge, curve in sorted(zip(view.edges, curves, strict=True), key=lambda item: item[0].use):
        colour = colours.cmap(edge.use) if edge.use > 0 else _UNUSED
        width = 2.6 if edge.use > 0 else 1.1
        if edge.is_bottleneck:
            axes.add_patch(_line(curve, INK, width + 3.6, 4.0))
        axes.add_patch(_line(curve, colour, width, 4.1 if edge.is_bottleneck else 2.0 + edge.use))
    for symbol, (x, y) in zip(view.symbols, layout.positions, strict=True):
        _draw_symbol(axes, symbol, x, y)
    hosts = sorted({symbol.host for symbol in view.symbols if symbol.host >= 0})
    for host in hosts if len(hosts) > 1 else ():
        xs = [x for symbol, (x, _) in zip(view.symbols, layout.positions, strict=True) if symbol.host == host]
        axes.text((min(xs) + max(xs)) / 2, bottom - 0.42, f"node {host}", ha="center", fontsize=9)
    if view.busiest:
        _label_bottleneck(axes, view, layout, curves, limits, step_x)


def _curve(view: View, edge: Edge, layout: Layout) -> Curve:
    """Return the edge as a cubic curve: an arc below GPUs of one row, over what is between others, else a straight."""
    (xa, ya), (xb, yb) = layout.positions[edge.a], layout.positions[edge.b]
    if ya == yb and view.symbols[edge.a].kind == "gpu":
        xa, xb = xa + layout.ports[edge][0], xb + layout.ports[edge][1]
        ya -= _HALF_HEIGHT
        low = ya - arc_depth(abs(xb - xa)) / 0.75
        return (xa, ya), (xa + (xb - xa) * 0.12, low), (xb - (xb - xa) * 0.12, low), (xb, ya)
    if ya == yb and any(y == ya and min(xa, xb) < x < max(xa, xb) for x, y in layout.positions):
        high = ya + 0.7
        return (xa, ya), (xa + (xb - xa) * 0.2, high), (xb - (xb - xa) * 0.2, high), (xb, ya)
    return (xa, ya), ((2 * xa + xb) / 3, (2 * ya + yb) / 3), ((xa + 2 * xb) / 3, (ya + 2 * yb) / 3), (xb, yb)


def _point(curve: Curve, t: float) -> tuple[float, float]:
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    return (
        sum(w * x for w, (x, _) in zip(weights, curve, strict=True)),
        sum(w * y for w, (_, y) in zip(weights, curve, strict=True)),
    )


def _label_bottleneck(
    axes: Axes, view: View, layout: Layout, curves: list[Curve], limits: tuple[float, ...], step_in: float
) -> None:
    """Write the bottleneck's name where it hides least, close to the middle of its line."""
    marked = [curve for edge, curve in zip(view.edges, curves, strict=True) if edge.is_bottleneck]
    marked += [
        (place,) * 4 for symbol, place in zip(view.symbols, layout.positions, strict=True) if symbol.is_bottleneck
    ]
    if not marked:
        axes.text(0.5, 0.0, view.busiest, transform=axes.transAxes, ha="center", fontsize=9, fontweight="bold")
        return
    x, y = _point(marked[0], 0.5)
    half = len(view.busiest) * _LETTER_IN / step_in / 2
    others = [_point(curve, i / 16) for curve in curves for i in range(17)]
    boxes = [(px + dx, py) for px, py in layout.positions for dx in (-0.3, 0.0, 0.3)]
    best = (float("inf"), x, y)
    for dy in (0.0, 0.32, -0.32, 0.6, -0.6, 0.9, -0.9):
        for dx in (half + 0.2, -half - 0.2, 0.0):
            cx = min(max(x + dx, limits[0] + half), limits[1] - half)
            cy = min(max(y + dy, limits[2] + 0.15), limits[3] - 0.15)
            hidden = sum(abs(px - cx) < half + 0.05 and abs(py - cy) < 0.2 for px, py in others)
            hidden += sum(8 for px, py in boxes if abs(px - cx) < half + 0.1 and abs(py - cy) < 0.42)
            best = min(best, (hidden + abs(cx - x) * 0.8 + abs(cy - y) * 2.0, cx, cy))
    if best[0] < float("inf") and abs(best[2] - y) > 0.4:
        axes.plot([x, best[1]], [y, best[2]], color=INK, linewidth=0.8, zorder=7)
    axes.text(
        best[1], best[2], view.busiest, ha="center", va="center", fontsize=9, fontweight="bold", zorder=8,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": INK, "linewidth": 0.8, "alpha": 0.92},
    )  # fmt: skip


def _line(curve: Curve, colour: object, width: float, order: float) -> PathPatch:
    path = Path(curve, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    return PathPatch(path, fill=False, edgecolor=colour, linewidth=width, zorder=order, capstyle="round")


def _draw_symbol(axes: Axes, symbol: Symbol, x: float, y: float) -> None:
    half = (
        min(0.47, max(0.36, 0.055 * len(symbol.label) + 0.08)) if symbol.kind in ("gpu", "nic", "pcie-switch") else 0.5
    )
    box = FancyBboxPatch(
        (x - half, y - _HALF_HEIGHT), 2 * half, 2 * _HALF_HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.09", mutation_aspect=1.0,
        facecolor=_FILL.get(symbol.kind, "#ffffff") if symbol.active else "#ffffff",
        edgecolor=INK if symbol.active else "#9aa1a8",
        linewidth=2.6 if symbol.is_bottleneck else 0.9, zorder=5,
    )  # fmt: skip
    axes.add_patch(box)
    colour = INK if symbol.active else "#767d84"
    axes.text(x, y - 0.01, symbol.label, ha="center", va="center", color=colour, zorder=6,
              fontsize=8 if len(symbol.label) < 8 else 6.5)  # fmt: skip
