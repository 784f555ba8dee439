"""Positions of the symbols in a drawing of a machine.

Rows from the top: the network's switches by level, NICs, CPUs, PCIe switches, GPUs, NVSwitches.  GPUs are in the order
of the PCIe tree, with gaps between sockets, so that no lines of the tree cross; links between two devices of one row
are arcs.
Coordinates are in units of the distance between two GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable

from reports.view import HOST_LINKS, DrawnEdge, View
from simulator.records import dataclass

_SOCKET_GAP = 0.35
_HOST_GAP = 0.9
_NIC_STEP = 1.0
_SWITCH_STEP = 1.4


@dataclass(frozen=True, slots=True)
class DrawingLayout:
    """A position for each symbol, and the extent (left, right, bottom, top) of all.

    ``ports`` gives the horizontal offset of both ends of each arc between GPUs from the centres of the GPUs.
    """

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
    positions = []
    for i, symbol in enumerate(view.symbols):
        y = float(height - depths[i] + 1) if symbol.kind == "pcie-switch" else rows.get(symbol.kind, 0.0)
        y += levels.get(i, 0)
        positions.append((xs[i], y))
    left, right = min(x for x, _ in positions), max(x for x, _ in positions)
    bottom, top = min(y for _, y in positions), max(y for _, y in positions)
    arcs = [
        abs(xs[e.a] - xs[e.b])
        for e in view.edges
        if view.symbols[e.a].kind == "gpu" and view.symbols[e.b].kind == "gpu"
    ]
    return DrawingLayout(
        tuple(positions), _ports(view, xs), (left, right, min(bottom, -arc_depth(max(arcs, default=0.0))), top)
    )


def arc_depth(distance: float) -> float:
    """Return the distance of an arc's lowest point from its row, for symbols *distance* apart."""
    return 0.35 + 0.28 * distance if distance else 0.0


def _ports(view: View, xs: list[float]) -> dict[DrawnEdge, tuple[float, float]]:
    """Spread the arcs of each GPU over its width, so that arcs to one side do not cross near their ends."""
    arcs = [e for e in view.edges if view.symbols[e.a].kind == "gpu" and view.symbols[e.b].kind == "gpu"]
    at: dict[tuple[DrawnEdge, int], float] = {}
    for i in {end for edge in arcs for end in (edge.a, edge.b)}:
        away = {edge: xs[edge.b if edge.a == i else edge.a] - xs[i] for edge in arcs if i in (edge.a, edge.b)}
        leftward = sorted((edge for edge in away if away[edge] < 0), key=lambda e: -away[e])
        rightward = sorted((edge for edge in away if away[edge] >= 0), key=lambda e: -away[e])
        order = [*leftward, *rightward]
        step = min(0.13, 0.56 / max(1, len(order) - 1))
        for k, edge in enumerate(order):
            at[edge, i] = step * (k - (len(order) - 1) / 2)
    return {edge: (at[edge, edge.a], at[edge, edge.b]) for edge in arcs}


def _tree(view: View) -> tuple[dict[int, int], dict[int, int]]:
    """Return the parent of each symbol in the PCIe tree, and its depth below a CPU."""
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
    """Return the level of each switch of the network: the lowest is next to other devices."""
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
    children: dict[int, list[int]] = {}
    for child, parent in sorted(parents.items()):
        children.setdefault(parent, []).append(child)
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

    hosts = sorted({symbol.host for symbol in view.symbols if symbol.host >= 0})
    for host in hosts:
        here = [i for i, symbol in enumerate(view.symbols) if symbol.host == host]
        roots = [i for i in here if i not in parents and view.symbols[i].kind in ("cpu", "gpu", "pcie-switch")]
        for root in sorted(roots, key=lambda i: _first_gpu(view, children, i)):
            put(root)
            place += _SOCKET_GAP
        place += _HOST_GAP
    _place_nics(view, parents, xs)
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


def _place_nics(view: View, parents: dict[int, int], xs: dict[int, float]) -> None:
    """Place each NIC above its parent in the PCIe tree."""
    nics = [i for i, symbol in enumerate(view.symbols) if symbol.kind == "nic"]
    for i in nics:
        xs[i] = xs.get(parents.get(i, -1), 0.0)
    _spread(xs, nics, _NIC_STEP)


def _spread(xs: dict[int, float], row: list[int], step: float) -> None:
    """Move the symbols of *row* apart to at least *step*, as close to their positions as possible."""
    blocks: list[tuple[list[int], float]] = []  # adjacent symbols, with the position of their middle
    for i in sorted(row, key=lambda i: (xs[i], i)):
        blocks.append(([i], xs[i]))
        while len(blocks) > 1:
            (first, a), (second, b) = blocks[-2:]
            if b - a >= step * (len(first) + len(second)) / 2 - 1e-9:
                break
            middle = (a * len(first) + b * len(second)) / (len(first) + len(second))
            blocks[-2:] = [(first + second, middle)]
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
