"""An answer as one self-contained HTML page: its words, tables that sort, the machine, a timeline to zoom, sources."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from reports.colours import ACTIVITIES, OTHER, USE, kernel_colour
from reports.layout import HALF_HEIGHT, DrawingLayout, Point, edge_curve, half_width, lay_out_view
from reports.view import DrawnEdge, View, make_view, view_of
from simulator.records import lists_by_key
from simulator.results import Heading, PlainTable, html_text
from simulator.results.bottleneck import CapacityGiven, slowed_of
from simulator.results.result import Result
from simulator.results.training_run import TrainingRun

_MOST_EVENTS = 50_000  # the longest are kept
_MOST_POINTS = 20_000  # of all counters together
_LARGER = 1.1  # figures, the smallest letters of which have 8 pt
_EXCHANGES = ("comm", "gpu_memcpy")


class Drawing(NamedTuple):
    """A figure as SVG, and what it shows."""

    svg: Markup
    caption: str


Block = str | PlainTable | Drawing


class Page(NamedTuple):
    """What a page shows; ``result`` is that whose machine is drawn."""

    blocks: Sequence[Block]  # the answer's, the title first
    command: str  # that asks again
    result: Any = None
    trace: str = ""  # the timeline
    figure: bytes = b""  # the answer's as SVG
    sources: Sequence[tuple[str, str, str, str]] = ()  # (part, figure, value, source) of each figure of the machine


def page_of(page: Page) -> str:
    """Return *page* as HTML; equal pages give equal text."""
    title, *blocks = _joined(page.blocks)
    timeline = _timeline(page.trace) if page.trace else {}
    data = json.dumps(timeline, separators=(",", ":")).replace("<", "\\u003c")  # no text in it can leave its element
    return _template().render(
        name=str(title).removeprefix("# "),
        blocks=blocks,
        **_machine_drawing(page.result),
        timeline=Markup(data) if timeline else "",
        left_out=timeline.get("left_out"),
        figure=inline_svg(page.figure, larger=_LARGER) if page.figure else "",
        sources=PlainTable(("part", "figure", "value", "source"), page.sources, (False,) * 4),
        command=page.command,
    )


def _joined(blocks: Sequence[Block]) -> list[Block]:
    found: list[Block] = []
    runs_on = False
    for block in blocks:
        last = found[-1] if found else None
        is_line = isinstance(block, str) and not isinstance(block, Heading)
        if is_line and isinstance(last, str) and runs_on and block and len(found) > 1:
            found[-1] = f"{last}\n{block}"
        elif block:
            found.append(block)
        runs_on = is_line and bool(block)
    return found


def _timeline(trace: str) -> dict[str, Any]:
    """Return slices (start, length, name, details, colour, critical) and counters of *trace*, each text once."""
    events = json.loads(trace)["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices, points = ([event for event in events if event["ph"] == kind] for kind in "XC")
    left_out = max(0, len(slices) - _MOST_EVENTS) + max(0, len(points) - _MOST_POINTS)
    if len(slices) > _MOST_EVENTS:
        slices = sorted(slices, key=lambda event: -event["dur"])[:_MOST_EVENTS]
    texts: dict[str, int] = {}
    tracks: dict[tuple[int, int], list[list[int]]] = {key: [] for key in threads}
    for event in sorted(slices, key=lambda event: (event["pid"], event["tid"], event["ts"])):
        row = [round(event["ts"] * 1e3), round(event["dur"] * 1e3)]
        row += [texts.setdefault(text, len(texts)) for text in (event["name"], _details(event), _colour(event))]
        tracks[event["pid"], event["tid"]].append([*row, int(bool(event["args"].get("critical")))])
    counters: dict[tuple[int, str], list[float]] = {}
    for event in points[:_MOST_POINTS]:
        (value,) = event["args"].values()
        counters.setdefault((event["pid"], event["name"]), []).extend((round(event["ts"] * 1e3), value))
    said = {(pid, tid): f"{names.get(pid, '')} {threads[pid, tid]}" for pid, tid in tracks}
    return {
        "texts": list(texts),
        "tracks": [{"name": said[track], "slices": rows} for track, rows in tracks.items() if rows],
        "counters": _distinct({name: rows for (_, name), rows in counters.items()}),
        "left_out": left_out,
    }


def _distinct(counters: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    alike = lists_by_key((tuple(points), name) for name, points in counters.items())
    names = (f"{each[0]} and {len(each) - 1} alike" if len(each) > 1 else each[0] for each in alike.values())
    return [{"name": name, "points": points} for name, points in zip(names, alike, strict=True)]


_SAID = ("class", "bound by", "algorithm", "path", "transport", "part", "micro-batch")


def _details(event: Mapping[str, Any]) -> str:
    args = event["args"]
    said = [f"{key}: {args[key]}" for key in _SAID if args.get(key) not in (None, "")]
    numbers = {key: args[key] for key in ("bytes", "FLOP") if isinstance(args.get(key), int | float)}
    return "; ".join([*said, *(f"{number:,} {key}" for key, number in numbers.items() if number)])


def _colour(event: Mapping[str, Any]) -> str:
    if "class" in event["args"]:
        return kernel_colour(event["args"]["class"])
    if event["cat"] in _EXCHANGES or "bytes" in event["args"]:
        return ACTIVITIES["exchange"]
    return ACTIVITIES["host"] if event["cat"] == "cpu_op" else OTHER


_UNIT = 78.0  # pixels between two GPUs
_MARGIN = 0.7


def _machine_drawing(result: Any) -> dict[str, Any]:
    """Return what the template draws of the machine of *result*, links coloured by their use; no ``view``: nothing."""
    if isinstance(result, Result):
        return _drawing(make_view(result), result.machine)
    if isinstance(result, TrainingRun):
        machine = result.timeline.machine
        if gpus := result.question.gpus or range(len(machine.gpus)):
            return _drawing(view_of(machine, list(gpus), _uses(result), result.bottleneck), result.machine)
    return {"view": None}


def _uses(result: TrainingRun) -> dict[str, float]:
    """Return how much of the step each link is in use, by name, at the rate that it gives while it can be used."""
    timeline, whole_s = result.timeline, result.step_time_s
    machine = timeline.machine
    slowed = slowed_of(machine, timeline.plan.perturbations, timeline.end_s)
    links = [machine.links[i] for i, _ in timeline.link_bytes.carried() if whole_s > 0]
    could = {
        link: machine.capacity_Bps[link.resource] * slowed.get(link.resource, CapacityGiven()).in_use * whole_s
        for link in links
    }
    uses = {link.name: timeline.resource_bytes[link.resource] / most for link, most in could.items()}
    busiest = result.bottleneck  # of a pipeline, whose timeline has no bytes within passes, the one that is known
    return uses if busiest is None else {**uses, busiest.name: busiest.utilisation}


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
    use = "down" if edge.is_down else f"{edge.use * 100:.1f} % in use"
    return {
        "said": f"{view.symbols[edge.a].label} - {view.symbols[edge.b].label}: {edge.words}, each direction, {use}",
        "path": f"M{a} C{b} {c} {d}",
        "colour": USE[min(5, 1 + int(edge.use * 5)) if edge.use > 0 else 0],
        "width": 2.0 + 2.5 * edge.weight + (2.0 if edge.is_bottleneck else 0.0),
        "is_down": edge.is_down,
    }


@lru_cache(maxsize=1)
def _template() -> Template:
    """Return what renders a page: characters of texts that would be obeyed or hidden are escaped."""
    how: dict[str, Any] = dict.fromkeys(("autoescape", "trim_blocks", "lstrip_blocks", "keep_trailing_newline"), True)
    how["finalize"] = lambda value: value if hasattr(value, "__html__") else Markup(html_text(str(value)))
    environment = Environment(loader=PackageLoader("reports", "html"), undefined=StrictUndefined, **how)
    return environment.get_template("page.html")


def inline_svg(svg: bytes, name: str = "", label: str = "", larger: float = 1.0) -> Markup:
    """Return *svg* from its root on, *larger* times as large, with the *name* in its identifiers and *label* told."""
    root, end, rest = svg.decode().partition("<svg ")[2].partition(">")

    def scaled(match: re.Match[str]) -> str:
        return f' {match[1]}="{float(match[2]) * larger:.0f}pt"'

    if larger != 1.0:
        root = re.sub(r' (width|height)="([\d.]+)pt"', scaled, f" {root}").strip()
    text = f"<svg {root}{end}{rest}"
    if name:
        text = re.sub(r"<(metadata|title|desc)>.*?</\1>", "", text, flags=re.DOTALL)
        text = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{name}-", text)
        text = text.replace('role="img" ', "", 1)
        text = text.replace("<svg ", f'<svg role="img" aria-label="{html_text(label)}" ', 1)
    return Markup(text.rstrip() if name else text)
