"""The machine on a page: SVG whose links and devices show their figures under the pointer (figures: machine.py)."""

from __future__ import annotations

from typing import Any

from reports.layout import HALF_HEIGHT, DrawingLayout, edge_curve, half_width, lay_out_view
from reports.view import DrawnEdge, Symbol, View, make_view, view_of
from simulator.results import html_text
from simulator.results.result import Result
from simulator.results.training_run import TrainingRun

_UNIT = 78.0  # pixels between two GPUs
_MARGIN = 0.7
_SCALE = ("#d9dde1", "#fed976", "#feb24c", "#fd8d3c", "#f03b20", "#bd0026")  # of use: none, below 20 %, ... to 100 %


def machine_svg(result: Any) -> str:
    """Return the machine of *result* as SVG, links coloured by their use; "" for an answer without a machine."""
    if isinstance(result, Result):
        return _svg(make_view(result), result.machine)
    if isinstance(result, TrainingRun):
        machine = result.timeline.machine
        gpus = result.question.gpus or range(len(machine.gpus))
        return _svg(view_of(machine, list(gpus), _uses(result), result.bottleneck), result.machine) if gpus else ""
    return ""


def _uses(result: TrainingRun) -> dict[str, float]:
    """Return how much of the step each link is in use, by name."""
    timeline, whole_s = result.timeline, result.step_time_s
    links = timeline.machine.links
    moved = timeline.link_bytes.carried()
    return {links[i].name: n_bytes / (links[i].nominal_Bps * whole_s) for i, n_bytes in moved if whole_s > 0}


def _svg(view: View, name: str) -> str:
    layout = lay_out_view(view)
    left, right, bottom, top = layout.extent
    width, height = (right - left + 2 * _MARGIN) * _UNIT, (top - bottom + 2 * _MARGIN) * _UNIT

    def at(x: float, y: float) -> str:
        return f"{(x - left + _MARGIN) * _UNIT:.1f} {(top - y + _MARGIN) * _UNIT:.1f}"

    edges = sorted(view.edges, key=lambda edge: edge.use)
    lines = [_edge(view, edge, layout, at) for edge in edges]
    boxes = [_box(symbol, *layout.positions[i], at) for i, symbol in enumerate(view.symbols)]
    words = [part for part in (view.busiest and f"busiest: {view.busiest}", view.note, view.more) if part]
    return (
        f'<svg class="machine" role="img" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}"><title>{html_text(name)}</title>{"".join(lines)}{"".join(boxes)}</svg>'
        f"<figcaption>Links by use: {_legend()}. {html_text('; '.join(words))}</figcaption>"
    )


def _legend() -> str:
    words = ("unused", *(f"to {20 * i} %" for i in range(1, 6)))
    return " ".join(f'<span class="use" style="background:{c}"></span> {w}' for c, w in zip(_SCALE, words, strict=True))


def _edge(view: View, edge: DrawnEdge, layout: DrawingLayout, at: Any) -> str:
    a, b, c, d = (at(*point) for point in edge_curve(view, edge, layout))
    step = min(5, 1 + int(edge.use * 5)) if edge.use > 0 else 0
    ends = f"{view.symbols[edge.a].label} - {view.symbols[edge.b].label}"
    said = f"{ends}: {edge.words}, each direction"
    said += ", out of use" if edge.is_down else f", {edge.use * 100:.1f} % in use"
    dashes = ' stroke-dasharray="6 4"' if edge.is_down else ""
    wide = 2.0 + 2.5 * edge.weight + (2.0 if edge.is_bottleneck else 0.0)
    return (
        f'<g class="link"><title>{html_text(said)}</title><path class="aim" d="M{a} C{b} {c} {d}"/>'
        f'<path d="M{a} C{b} {c} {d}" stroke="{_SCALE[step]}" stroke-width="{wide:.1f}"{dashes}/></g>'
    )


def _box(symbol: Symbol, x: float, y: float, at: Any) -> str:
    half = half_width(symbol)
    x0, y0 = at(x - half, y + HALF_HEIGHT).split()
    cx, cy = at(x, y).split()
    kind = f"device {symbol.kind}{'' if symbol.active else ' idle'}{' bound' if symbol.is_bottleneck else ''}"
    size = 12 if len(symbol.label) < 9 else 11
    label = html_text(symbol.label)
    return (
        f'<g class="{kind}"><title>{label}</title><rect x="{x0}" y="{y0}" width="{2 * half * _UNIT:.1f}" '
        f'height="{2 * HALF_HEIGHT * _UNIT:.1f}" rx="6"/>'
        f'<text x="{cx}" y="{cy}" font-size="{size}">{label}</text></g>'
    )
