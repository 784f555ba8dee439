"""Positions of the symbols in a drawing of a machine, in rows of the PCIe tree's order, lines not crossed."""

from collections.abc import Iterable

from reports.view import HOST_LINKS, DrawnEdge, Symbol, View
from simulator.records import dataclass, lists_by_key

HALF_HEIGHT = 0.19  # of a symbol's box
_ASIDE = (0.55, -0.55, 0.75, -0.75, 1.1, -1.1)  # offsets to try for lines that would pass behind another symbol
_SOCKET_GAP = 0.35
_HOST_GAP = 0.9
_NIC_STEP = 1.0
_SWITCH_STEP = 1.4

Point = tuple[float, float]
Curve = tuple[Point, Point, Point, Point]  # a cubic Bezier curve


@dataclass(frozen=True, slots=True)
class DrawingLayout:
    """Positions of all symbols, ends of each arc between GPUs as offsets, and extent (left, right, bottom, top)."""

    positions: tuple[tuple[float, float], ...]
    ports: dict[DrawnEdge, tuple[float, float]]
    extent: tuple[float, float, float, float]


def lay_out_view(view: View) -> DrawingLayout:
    """Return the positions of *view*'s symbols; deterministic."""
    parents, depths = _tree(view)
    height = max((depths[i] for i, s in enumerate(view.symbols) if s.kind == "pcie-switch"), default=0)
    rows = {"gpu": 0.0, "cpu": height + 1.0, "nic": height + 2.0, "network-switch": height + 3.0, "nvlink-switch": -1.3}
    levels = _levels(view)
    xs = _columns(view, parents, levels)
    ys = []
    for i, symbol in enumerate(view.symbols):
        y = float(height - depths[i] + 1) if symbol.kind == "pcie-switch" else rows.get(symbol.kind, 0.0)
        ys.append(y + levels.get(i, 0))
    longest = max((abs(xs[edge.a] - xs[edge.b]) for edge in _arcs(view)), default=0.0)
    extent = min(xs), max(xs), min(*ys, -arc_depth(longest)), max(ys)
    return DrawingLayout(tuple(zip(xs, ys, strict=True)), _ports(view, xs), extent)


def _arcs(view: View) -> list[DrawnEdge]:
    return [e for e in view.edges if view.symbols[e.a].kind == "gpu" and view.symbols[e.b].kind == "gpu"]


def arc_depth(distance: float) -> float:
    """Return the distance of an arc's lowest point from its row, for symbols *distance* apart."""
    return 0.35 + 0.28 * distance if distance else 0.0


def _ports(view: View, xs: list[float]) -> dict[DrawnEdge, tuple[float, float]]:
    """Spread the arcs of each GPU over its width, so that arcs to one side do not cross near their ends."""
    arcs = _arcs(view)
    at: dict[tuple[DrawnEdge, int], float] = {}
    for i in {end for edge in arcs for end in (edge.a, edge.b)}:
        away = {edge: xs[edge.b if edge.a == i else edge.a] - xs[i] for edge in arcs if i in (edge.a, edge.b)}
        order = sorted(away, key=lambda edge: (away[edge] >= 0, -away[edge]))  # those to the left come first
        step = min(0.13, 0.56 / max(1, len(order) - 1))
        for k, edge in enumerate(order):
            at[edge, i] = step * (k - (len(order) - 1) / 2)
    return {edge: (at[edge, edge.a], at[edge, edge.b]) for edge in arcs}


def _tree(view: View) -> tuple[dict[int, int], dict[int, int]]:
    around: dict[int, list[int]] = {i: [] for i in range(len(view.symbols))}
    for edge in view.edges:
        if edge.kind in HOST_LINKS:
            around[edge.a].append(edge.b)
            around[edge.b].append(edge.a)
    depths = {i: 0 for i, symbol in enumerate(view.symbols) if symbol.kind == "cpu"}
    parents: dict[int, int] = {}
    level = list(depths)
    if not level:  # without a CPU, the switches are the roots
        level = [i for i, symbol in enumerate(view.symbols) if symbol.kind == "pcie-switch"]
        depths = dict.fromkeys(level, 1)
    while level:
        following = []
        for i in level:
            for j in sorted(around[i]):
                if j not in depths:
                    depths[j], parents[j] = depths[i] + 1, i
                    if view.symbols[j].kind == "pcie-switch":
                        following.append(j)
        level = following
    for i in around:
        depths.setdefault(i, 1)
    return parents, depths


def _levels(view: View) -> dict[int, int]:
    switches = [i for i, symbol in enumerate(view.symbols) if symbol.kind == "network-switch"]
    left = set(switches)
    level = [i for i in switches if any(view.symbols[j].kind != "network-switch" for j in _neighbours(view, i))]
    found: dict[int, int] = {}
    while level:
        found |= dict.fromkeys(level, max(found.values(), default=-1) + 1)
        left -= set(level)
        level = [i for i in switches if i in left and not set(_neighbours(view, i)).isdisjoint(level)]
    return found


def _columns(view: View, parents: dict[int, int], levels: dict[int, int]) -> list[float]:
    xs: dict[int, float] = {}
    children = lists_by_key((parent, child) for child, parent in sorted(parents.items()))
    place = 0.0

    def put(i: int) -> None:
        nonlocal place
        below = [c for c in children.get(i, []) if view.symbols[c].kind != "nic"]
        for child in sorted(below, key=lambda c: _first_gpu(view, children, c)):
            put(child)
        if below:
            xs[i] = (min(xs[c] for c in below) + max(xs[c] for c in below)) / 2
        else:
            xs[i] = place
            place += 1

    for host in sorted({symbol.host for symbol in view.symbols if symbol.host >= 0}):
        here = [i for i, symbol in enumerate(view.symbols) if symbol.host == host]
        roots = [i for i in here if i not in parents and view.symbols[i].kind in ("cpu", "gpu", "pcie-switch")]
        for root in sorted(roots, key=lambda i: _first_gpu(view, children, i)):
            put(root)
            place += _SOCKET_GAP
        place += _HOST_GAP
    nics = [i for i, symbol in enumerate(view.symbols) if symbol.kind == "nic"]
    for i in nics:  # each above its parent in the PCIe tree
        xs[i] = xs.get(parents.get(i, -1), 0.0)
    _spread(xs, nics, _NIC_STEP)
    for i, symbol in enumerate(view.symbols):
        if symbol.kind == "nvlink-switch":
            xs[i] = _mean(xs[j] for j in _neighbours(view, i) if view.symbols[j].kind == "gpu")
    _spread(xs, [i for i, s in enumerate(view.symbols) if s.kind == "nvlink-switch"], 2.0)
    for level in sorted(set(levels.values())):
        row = [i for i in levels if levels[i] == level]
        for i in row:
            xs[i] = _mean(xs[j] for j in _neighbours(view, i) if levels.get(j, -1) < level and j in xs)
        _spread(xs, row, _SWITCH_STEP)
    return [xs.get(i, 0.0) for i in range(len(view.symbols))]


def _spread(xs: dict[int, float], row: list[int], step: float) -> None:
    blocks: list[tuple[list[int], float]] = []  # adjacent symbols, with the position of their middle
    for i in sorted(row, key=lambda i: (xs[i], i)):
        blocks.append(([i], xs[i]))
        while len(blocks) > 1:
            (first, a), (second, b) = blocks[-2:]
            if b - a >= step * (len(first) + len(second)) / 2 - 1e-9:
                break
            blocks[-2:] = [(first + second, (a * len(first) + b * len(second)) / (len(first) + len(second)))]
    for members, middle in blocks:
        for k, i in enumerate(members):
            xs[i] = middle + step * (k - (len(members) - 1) / 2)


def _first_gpu(view: View, children: dict[int, list[int]], i: int) -> int:
    if view.symbols[i].kind == "gpu":
        return i
    return min((_first_gpu(view, children, c) for c in children.get(i, [])), default=len(view.symbols) + i)


def _neighbours(view: View, i: int) -> list[int]:
    return [e.b if e.a == i else e.a for e in view.edges if i in (e.a, e.b)]


def _mean(values: Iterable[float]) -> float:
    some = list(values)
    return sum(some) / len(some) if some else 0.0


def edge_curve(view: View, edge: DrawnEdge, layout: DrawingLayout) -> Curve:
    """Return the cubic curve of *edge*: an arc for GPUs of one row, a bend around an unrelated symbol, else a line."""
    (xa, ya), (xb, yb) = layout.positions[edge.a], layout.positions[edge.b]
    if ya == yb and view.symbols[edge.a].kind == "gpu":
        xa, xb = xa + layout.ports[edge][0], xb + layout.ports[edge][1]
        ya -= HALF_HEIGHT
        low = ya - arc_depth(abs(xb - xa)) / 0.75
        return (xa, ya), (xa + (xb - xa) * 0.12, low), (xb - (xb - xa) * 0.12, low), (xb, ya)
    if ya == yb and any(y == ya and min(xa, xb) < x < max(xa, xb) for x, y in layout.positions):
        high = ya + 0.7
        return (xa, ya), (xa + (xb - xa) * 0.2, high), (xb - (xb - xa) * 0.2, high), (xb, ya)
    if {view.symbols[edge.a].kind, view.symbols[edge.b].kind} == {"gpu", "nvlink-switch"}:
        down = HALF_HEIGHT if ya > yb else -HALF_HEIGHT  # from below the GPU, past its neighbours
        middle = (ya + yb) / 2
        return (xa, ya - down), (xa, middle), (xb, middle), (xb, yb + down)
    straight = _bent(xa, ya, xb, yb, 0.0)
    curves = (_bent(xa, ya, xb, yb, aside) for aside in (0.0, *_ASIDE))
    return next((curve for curve in curves if not _hides(curve, view, edge, layout)), straight)


def _bent(xa: float, ya: float, xb: float, yb: float, aside: float) -> Curve:
    first = (2 * xa + xb) / 3 + aside * 4 / 3, (2 * ya + yb) / 3
    second = (xa + 2 * xb) / 3 + aside * 4 / 3, (ya + 2 * yb) / 3
    return (xa, ya), first, second, (xb, yb)


def _hides(curve: Curve, view: View, edge: DrawnEdge, layout: DrawingLayout) -> bool:
    points = [point_on(curve, i / 48) for i in range(49)]
    return any(
        abs(x - px) < half_width(symbol) and abs(y - py) < HALF_HEIGHT
        for i, (symbol, (px, py)) in enumerate(zip(view.symbols, layout.positions, strict=True))
        if i not in (edge.a, edge.b)
        for x, y in points
    )


def half_width(symbol: Symbol) -> float:
    """Return half of the width of *symbol*'s box: less than half a column, so that lines can pass beside it."""
    return min(0.47, max(0.36, 0.055 * len(symbol.label) + 0.08))


def point_on(curve: Curve, t: float) -> Point:
    """Return the point of *curve* at *t*, from 0 to 1."""
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    x, y = (sum(w * end for w, end in zip(weights, ends, strict=True)) for ends in zip(*curve, strict=True))
    return x, y
