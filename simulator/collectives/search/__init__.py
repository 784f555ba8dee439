"""Searches for cycles in a machine's link graph, and what it carries at once (docs/decisions/collectives.md)."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any, Generic, NamedTuple, TypeVar

from simulator.network.machine import Link, Machine
from simulator.records import dataclass, lists_by_key, sums_by_key
from simulator.topology.parts import GPU_LINKS


class Budget:
    """A number of steps.  ``ended`` tells whether they ran out; a search then returns its best result so far."""

    def __init__(self, steps: int, whole: "Budget | None" = None) -> None:
        self._left = steps
        self._whole = whole
        self.ended = False

    def part(self, steps: int) -> "Budget":
        """Return a budget of *steps* for one of several searches that share this budget; it ends when either ends."""
        return Budget(steps, self)

    def spend(self, steps: int = 1) -> bool:
        """Take *steps*; return False if none are left."""
        self._left -= steps
        if self._left < 0 or (self._whole is not None and not self._whole.spend(steps)):
            self.ended = True
        return not self.ended


def say_ended(notes: list[str], whole: Sequence[bool]) -> None:
    """Add a note, once, if any of the searches ended at its budget; *whole* tells for each whether it was complete."""
    said = "the search for rings ended at its budget of steps: these are the best found, others may be faster"
    if not all(whole) and said not in notes:
        notes.append(said)


def greedy_order(start: int, among: Sequence[int], distance: Callable[[int, int], Any]) -> tuple[int, ...]:
    """Return the order of *among* from *start* on in which each is followed by the nearest remaining one."""
    order, left = [start], [each for each in among if each != start]
    while left:
        order.append(min(left, key=partial(distance, order[-1])))
        left.remove(order[-1])
    return tuple(order)


Edge = TypeVar("Edge", bound=Hashable)


def pack(candidates: Sequence[Mapping[Edge, int]], units: Mapping[Edge, int], bound: int, budget: Budget) -> list[int]:
    """Return indices into *candidates* as often as taken of *units*, by depth-first search to *bound* or *budget*."""
    packing = _Packing([list(one.items()) for one in candidates], dict(units), bound, budget)
    packing.visit(0, sum(units.values()))
    return packing.best


class _Packing(Generic[Edge]):
    """The state of the search: the ``taken`` candidates, the units still ``free``, and the best answer so far."""

    def __init__(self, needs: list[list[tuple[Edge, int]]], free: dict[Edge, int], bound: int, budget: Budget) -> None:
        self._needs, self._free, self._bound, self._budget = needs, free, bound, budget
        self._sizes = [sum(need for _, need in one) for one in needs]
        self._least = list(accumulate(reversed(self._sizes), min))[::-1]  # smallest size from each candidate on
        self._taken: list[int] = []
        self.best: list[int] = []

    def visit(self, start: int, left: int) -> bool:
        """Extend the current answer with candidates from *start* on, *left* units being free; return True to stop."""
        if len(self._taken) > len(self.best):
            self.best = list(self._taken)
        if len(self.best) >= self._bound:
            return True
        for i, most in self._following(start):
            if len(self._taken) + left // self._least[i] <= len(self.best):
                break
            for times in range(most, 0, -1):
                self._take(i, times)
                self._taken.extend([i] * times)
                over = self.visit(i + 1, left - self._sizes[i] * times)
                del self._taken[len(self._taken) - times :]
                self._take(i, -times)
                if over:
                    return True
        return self._budget.ended

    def _take(self, i: int, times: int) -> None:
        for edge, need in self._needs[i]:
            self._free[edge] -= need * times

    def _following(self, start: int) -> Iterator[tuple[int, int]]:
        needs, free, budget = self._needs, self._free, self._budget
        looked_at = start
        for i in range(start, len(needs)):
            times = self._bound - len(self._taken)
            for edge, need in needs[i]:
                fits = free[edge] // need
                if fits < times:
                    times = fits
                    if not fits:
                        break
            else:
                if not budget.spend(i - looked_at + len(needs[i])):
                    return
                looked_at = i + 1
                yield i, times
        budget.spend(len(needs) - looked_at)


MOST_AT_ONCE = 64  # rings or trees; each is a channel, and NCCL runs at most 64 channels
_MOST_UNITS = 2 * MOST_AT_ONCE  # units per GPU that this many rings can use


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """Links: ``units[a][b]`` of ``unit_Bps`` from a to b; if not ``whole``, slower ones are left out."""

    unit_Bps: float
    units: dict[int, dict[int, int]]
    whole: bool = True

    def between(self, a: int, b: int) -> int:
        """Return the number of units from node *a* to node *b*."""
        return self.units.get(a, {}).get(b, 0)


def link_graph(machine: Machine, gpus: tuple[int, ...]) -> LinkGraph | None:
    """Return the graph of direct links among *gpus* and their GPU neighbours, or None if there are none."""

    def leaving(nodes: Iterable[int]) -> list[Link]:
        found = (link for node in nodes for link in machine.outgoing[node] if link.kind in GPU_LINKS)
        return [link for link in found if machine.nodes[link.dst].kind == "gpu"]

    near = leaving(gpus)
    if not near:
        return None
    links = leaving(sorted({link.dst for link in near} | set(gpus)))
    speeds = sorted({link.unit_Bps for link in links})
    graph = _counted(links, speeds[0])
    if _least(graph, gpus) <= _MOST_UNITS:
        return graph
    reach = {speed: speed * min(_least(_counted(links, speed), gpus), _MOST_UNITS) for speed in speeds}
    graph = _counted(links, max(speeds, key=reach.__getitem__))
    units = {a: {b: min(n, _MOST_UNITS) for b, n in row.items()} for a, row in graph.units.items()}
    return LinkGraph(graph.unit_Bps, units, whole=False)


def _counted(links: Iterable[Link], unit_Bps: float) -> LinkGraph:
    counts = ((link, int(link.bandwidth_Bps / unit_Bps * (1 + 1e-9))) for link in links)
    rows = lists_by_key((link.src, (link.dst, n)) for link, n in counts if n)
    return LinkGraph(unit_Bps, {src: sums_by_key(row) for src, row in rows.items()})


def _least(graph: LinkGraph, gpus: tuple[int, ...]) -> int:
    return min(sum(graph.units.get(gpu, {}).values()) for gpu in gpus)


LISTED_UP_TO = 16  # GPUs; with more, only the given order is tried
# A step is a GPU visited while cycles are listed, or a cycle tested for room while they are packed.
_MAX_STEPS = 150_000  # of the whole search
_LISTED_STEPS = (20_000, 5_000, 5_000)  # to list the cycles with zero, one and two relays
_PACKED_STEPS = 30_000  # per packing
_GROWN_STEPS = 2_000  # to find one more cycle in the remaining links
_MAX_CYCLES = 5_000
_MAX_PACKED = 200  # cycles with relays that take part in a packing

_Order = tuple[int, ...]
Cycle = list[_Order]  # its hops: (from, to), or (from, relay, to)


class Cycles(NamedTuple):
    """The most cycles ``fitting`` at once, both ways; the first that fits ``one_way``; ``whole``: all were searched."""

    fitting: list[Cycle]
    one_way: Cycle | None
    whole: bool


def best_cycles(nodes: tuple[int, ...], graph: LinkGraph) -> Cycles:
    """Return the cycles over *nodes* to use at once, with no more relays than the largest set needs."""
    units = {(min(a, b), max(a, b)): n for a, row in graph.units.items() for b, n in row.items()}
    degree = min(sum(graph.units.get(node, {}).values()) for node in nodes)
    bound = min(degree if len(nodes) == 2 else degree // 2, MOST_AT_ONCE)
    best: list[Cycle] = []
    cycles: list[Cycle] = []
    needs: list[Counter[tuple[int, int]]] = []
    one_way: Cycle | None = None
    whole = True
    all_steps = Budget(_MAX_STEPS)
    for n_relays, steps in enumerate(_LISTED_STEPS):
        if len(best) >= bound:
            break
        budget = all_steps.part(steps)
        # Order: cycles without relays before those with relays, then wide before narrow.
        listed = _listed(nodes, graph, n_relays, budget)
        whole = whole and not budget.ended
        if one_way is None:
            ways = ((cycle, Counter(way for hop in cycle for way in pairwise(hop))) for cycle in listed)
            one_way = next((c for c, used in ways if all(graph.between(*way) >= n for way, n in used.items())), None)
        used = [(cycle, _uses(cycle)) for cycle in listed]
        wide = [(cycle, edges, min(units[edge] // n for edge, n in edges.items())) for cycle, edges in used]
        wide = sorted((one for one in wide if one[2]), key=lambda one: -one[2])
        wide = wide[: _MAX_PACKED if n_relays else _MAX_CYCLES]
        if wide:
            cycles += [cycle for cycle, _, _ in wide]
            needs += [edges for _, edges, _ in wide]
            packing = all_steps.part(_PACKED_STEPS)
            taken = pack(needs, units, bound, packing)
            whole = whole and not packing.ended
            if len(taken) > len(best):
                best = [cycles[i] for i in taken]
        if not whole and n_relays == 0 and len(best) < bound:
            best = max(best, _grown(nodes, graph, bound, all_steps), key=len)
    return Cycles(best, one_way, graph.whole and (whole or len(best) >= bound))


def _grown(nodes: tuple[int, ...], graph: LinkGraph, bound: int, budget: Budget) -> list[Cycle]:
    """Return cycles without relays, found one after another, each in the links left by the previous ones."""
    left = {a: dict(row) for a, row in graph.units.items()}
    found: list[Cycle] = []
    while len(found) < bound:
        rest = LinkGraph(graph.unit_Bps, left)
        tried = (_listed(nodes, rest, 0, budget.part(_GROWN_STEPS), 1, narrow=first) for first in (True, False))
        cycle = next((cycles[0] for cycles in tried if cycles), None)
        if cycle is None:
            break
        found.append(cycle)
        for a, b in (way for hop in cycle for way in (hop, hop[::-1])):
            left[a][b] -= 1
            if not left[a][b]:
                del left[a][b]
    return found


def _uses(cycle: Cycle) -> Counter[tuple[int, int]]:
    hops = cycle[:1] if len(cycle) == 2 else cycle  # one link, used in both directions
    return Counter([(a, b) if a < b else (b, a) for hop in hops for a, b in pairwise(hop)])


def _listed(
    nodes: _Order, graph: LinkGraph, n_relays: int, budget: Budget, limit: int = _MAX_CYCLES, *, narrow: bool = False
) -> list[Cycle]:
    """List at most *limit* cycles over *nodes*, each one way, with *n_relays* hops over another GPU, *narrow* first."""
    if len(nodes) > LISTED_UP_TO:
        ring = list(zip(nodes, nodes[1:] + nodes[:1], strict=True))
        return [[*ring]] if n_relays == 0 and all(graph.between(a, b) for a, b in ring) else []
    if len(nodes) == 2:
        a, b = nodes
        if n_relays == 0:
            return [[(a, b), (b, a)]] if graph.between(a, b) else []
        hops = [(a, via, b) for via in sorted(graph.units) if graph.between(a, via) and graph.between(via, b)]
        return [[hop, hop[::-1]] for hop in hops] if n_relays == 2 and not graph.between(a, b) else []
    start, units = nodes[0], graph.units
    straight = {a: [(a, b) for b in sorted(row, key=lambda b: (-row[b], b))] for a, row in units.items()}
    relayed: dict[int, Cycle] = {}
    for a in nodes if n_relays else ():
        near = sorted(units.get(a, ()))
        apart = [b for b in sorted(set(nodes) - {a}) if b not in near]
        relayed[a] = [(a, via, b) for b in apart for via in near if via != b and graph.between(via, b)]
    found: list[Cycle] = []
    taken: Cycle = []

    def steps(here: int, there: set[int], relays_left: int) -> Cycle:
        hops: Cycle = [hop for hop in straight.get(here, ()) if hop[1] in there]
        if narrow:
            hops.sort(key=lambda hop: (-units[here][hop[1]], len(there.intersection(units.get(hop[1], ())))))
        return hops + [hop for hop in relayed[here] if hop[2] in there] if relays_left else hops

    def visit(here: int, left: set[int], relays_left: int) -> None:
        if len(found) >= limit or not budget.spend():
            return
        if not left:
            for hop in steps(here, {start}, relays_left):
                if relays_left != len(hop) - 2:
                    continue
                cycle = [*taken, hop]
                if cycle[0][-1] <= cycle[-1][0]:  # of both directions, the one with the smaller second node
                    found.append(cycle)
            return
        for hop in steps(here, left, relays_left):
            taken.append(hop)
            visit(hop[-1], left - {hop[-1]}, relays_left - (len(hop) - 2))
            taken.pop()

    visit(start, set(nodes) - {start}, n_relays)
    return found


_MOST_TRAILS = 100_000  # the search takes less for every number of GPUs but six
_Orders = tuple[_Order, ...]  # of GPUs, by number


@cache
def separate_rings(n_gpus: int) -> _Orders:
    """Return the most rings (Tillson, 1980: one fewer than GPUs, but for 4 and 6) that share no directed link."""
    if not 3 <= n_gpus <= LISTED_UP_TO:
        return ()
    best: _Orders = ()
    trails = 0

    def orders(trail: tuple[int, ...], used: frozenset[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
        nonlocal trails
        trails += 1
        if trails > _MOST_TRAILS:
            return
        if len(trail) == n_gpus:
            if (trail[-1], 0) not in used:
                yield trail
            return
        for gpu in range(1, n_gpus):
            if gpu not in trail and (trail[-1], gpu) not in used:
                yield from orders((*trail, gpu), used)

    def visit(second: int, used: frozenset[tuple[int, int]], found: _Orders) -> bool:
        """Add rings from GPU 0 to *second* first, and on, to those *found*; return whether all were found."""
        nonlocal best
        if len(found) > len(best):
            best = found
        return second == n_gpus or any(
            visit(second + 1, used.union(zip(order, (*order[1:], 0), strict=True)), (*found, order))
            for order in orders((0, second), used)
        )

    visit(1, frozenset(), ())
    return best


def separate_chains(n_gpus: int) -> _Orders:
    """Return *n_gpus* chains, an even number, that use each directed link once (Walecki's zigzag)."""
    if n_gpus % 2:
        return ()
    steps = [(k + 1) // 2 if k % 2 else n_gpus - k // 2 for k in range(n_gpus)]
    return tuple(tuple((start + step) % n_gpus for step in steps) for start in range(n_gpus))
