"""The machine on a page, drawn by ``html/machine.html``: :func:`machine_drawing` (figures: machine.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reports.colours import USE
from reports.layout import HALF_HEIGHT, DrawingLayout, Point, edge_curve, half_width, lay_out_view
from reports.view import DrawnEdge, View, make_view, view_of
from simulator.results.result import Result
from simulator.results.training_run import TrainingRun

_UNIT = 78.0  # pixels between two GPUs
_MARGIN = 0.7


def machine_drawing(result: Any) -> dict[str, Any]:
    """Return what the template draws of the machine of *result*, links coloured by their use; no ``view``: nothing."""
    if isinstance(result, Result):
        return _drawing(make_view(result), result.machine)
    if isinstance(result, TrainingRun):
        machine = result.timeline.machine
        if gpus := result.question.gpus or range(len(machine.gpus)):
            return _drawing(view_of(machine, list(gpus), _uses(result), result.bottleneck), result.machine)
    return {"view": None}


def _uses(result: TrainingRun) -> dict[str, float]:
    """Return how much of the step each link is in use, by name."""
    timeline, whole_s = result.timeline, result.step_time_s
    links = timeline.machine.links
    moved = timeline.link_bytes.carried()
    return {links[i].name: n_bytes / (links[i].nominal_Bps * whole_s) for i, n_bytes in moved if whole_s > 0}


def _drawing(view: View, name: str) -> dict[str, Any]:
    layout = lay_out_view(view)
    left, right, bottom, top = layout.extent

    def at(point: Point) -> Point:
        return (point[0] - left + _MARGIN) * _UNIT, (top - point[1] + _MARGIN) * _UNIT

    return {
        "view": view,
        "machine": name,
        "size": at((right + _MARGIN, bottom - _MARGIN)),
        "links": [_link(view, edge, layout, at) for edge in sorted(view.edges, key=lambda edge: edge.use)],
        "symbols": [
            (symbol, *at(place), half_width(symbol) * _UNIT)
            for symbol, place in zip(view.symbols, layout.positions, strict=True)
        ],
        "half_height": HALF_HEIGHT * _UNIT,
        "scale": USE,
        "words": "; ".join(filter(None, (view.busiest and f"busiest: {view.busiest}", view.note, view.more))),
    }


def _link(view: View, edge: DrawnEdge, layout: DrawingLayout, at: Callable[[Point], Point]) -> dict[str, Any]:
    a, b, c, d = ("{:.1f} {:.1f}".format(*at(point)) for point in edge_curve(view, edge, layout))
    use = "out of use" if edge.is_down else f"{edge.use * 100:.1f} % in use"
    return {
        "said": f"{view.symbols[edge.a].label} - {view.symbols[edge.b].label}: {edge.words}, each direction, {use}",
        "path": f"M{a} C{b} {c} {d}",
        "colour": USE[min(5, 1 + int(edge.use * 5)) if edge.use > 0 else 0],
        "width": 2.0 + 2.5 * edge.weight + (2.0 if edge.is_bottleneck else 0.0),
        "is_down": edge.is_down,
    }
