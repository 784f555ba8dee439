"""Candidate rings of NCCL's search: orders of a machine's GPUs, and their loads on its links.

The orders follow NVIDIA/nccl@5067397c ``src/graph/search.cc``.  On NVLink switches, only the given order and its
reverse are tried; over direct NVLinks every order is possible, with direct and wide hops first; over PCIe, the order of
the ranks and the nearest-neighbour orders are tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from simulator.collectives.nccl.paths import SeenMachine, rank_of
from simulator.collectives.search import Budget, greedy_order
from simulator.records import dataclass
from simulator.sums import sums_by_key

_MAX_ORDERS = 120
_MAX_STEPS = 20_000  # per enumeration of orders
_ALL_ORDERS_UP_TO = 16  # GPUs
_MAX_STARTS = 4
_NVB = rank_of["nvb"]

Free = Mapping[int, int]
Following = tuple[tuple[int, tuple[int, ...]], ...]  # for each GPU those that may follow it, the nearest first


@dataclass(frozen=True, slots=True)
class RingCandidate:
    """A candidate ring, with its load on each directed link inside the machine and to the network.

    Loads are fractions of a channel's speed.
    """

    order: tuple[int, ...]
    inside: tuple[tuple[int, float], ...]
    outside: tuple[tuple[int, float], ...]

    def needs(self, intra: float, inter: float) -> dict[int, int]:
        """Return the MB/s that the ring takes from each link, given the speeds inside and to the network in GB/s."""
        sides = (self.inside, intra), (self.outside, inter)
        taken = sums_by_key((link, share * speed * 1000) for loads, speed in sides for link, share in loads)
        return {link: round(need) for link, need in taken.items()}


def hops_round(order: Sequence[int]) -> list[tuple[int, int]]:
    """Return the hops of a ring in *order*, the one from the last to the first included."""
    return [*pairwise(order), (order[-1], order[0])]


def closed_rings(seen: SeenMachine, speed: float, intra: int, free: Free, budget: Budget) -> Iterator[RingCandidate]:
    """Yield rings inside the machine whose hops are of class *intra* or better and have *speed* (GB/s) free.

    *budget*: a step is a GPU tried as the next of an order.
    """
    following = _following(seen, speed, intra, free)
    for order in _orders(seen, seen.gpus[0], following, budget, cut=False):
        hops = hops_round(order)
        if all(_open(seen, hop, speed, intra, free) for hop in hops):
            yield RingCandidate(order, _loads(seen, hops), ())


def rings_through_network(
    seen: SeenMachine, speeds: tuple[float, float], intra: int, inter: int, free: Free, budget: Budget
) -> Iterator[RingCandidate]:
    """Yield chains of all GPUs that enter and leave by the same network device.

    *seen*: the machine.
    *speeds*: GB/s inside the machine and to the network.
    *intra*, *inter*: the worst admissible path classes.
    *free*: the free MB/s of each link.
    *budget*: as in :func:`closed_rings`.
    """
    speed, wide = speeds[0], round(speeds[1] * 1000)
    following = _following(seen, speed, intra, free)
    inside: dict[tuple[int, ...], tuple[tuple[int, float], ...] | None] = {}  # an order's loads, if its hops are open
    for net in seen.nets:
        into = {gpu: seen.paths[net, gpu] for gpu in seen.gpus if (net, gpu) in seen.paths}
        usable = {gpu: p for gpu, p in into.items() if p.kind <= inter and p.bandwidth >= wide}
        nearest = min((p.kind for p in usable.values()), default=None)
        for gpu in [g for g, p in usable.items() if p.kind == nearest][:_MAX_STARTS]:
            for order in _orders(seen, gpu, following, budget, cut=True):
                back = seen.paths.get((order[-1], net))
                if back is None or back.kind > inter or back.bandwidth < wide:
                    continue
                if order not in inside:
                    hops = list(pairwise(order))
                    is_open = following is not None or all(_open(seen, hop, speed, intra, free) for hop in hops)
                    inside[order] = _loads(seen, hops) if is_open else None
                loads = inside[order]
                if loads is not None:
                    yield RingCandidate(order, loads, usable[gpu].loads + back.loads)


def _open(seen: SeenMachine, hop: tuple[int, int], speed: float, intra: int, free: Free) -> bool:
    path = seen.paths.get(hop)
    if path is None or path.kind > intra:
        return False
    return all(free[link] >= round(share * speed * 1000) for link, share in path.loads)


def _loads(seen: SeenMachine, hops: Sequence[tuple[int, int]]) -> tuple[tuple[int, float], ...]:
    return tuple(sums_by_key(load for hop in hops for load in seen.paths[hop].loads).items())


def _following(seen: SeenMachine, speed: float, intra: int, free: Free) -> Following | None:
    """Return the GPUs that may follow each, by admissible and free hops; None where only some orders are tried."""
    gpus = seen.gpus
    if seen.has_switch or intra > _NVB or not 1 < len(gpus) <= _ALL_ORDERS_UP_TO:
        return None
    found = []
    for a in gpus:
        near = [b for b in gpus if b != a and _open(seen, (a, b), speed, intra, free)]
        reach = {b: (seen.paths[a, b].kind, -seen.paths[a, b].bandwidth, b) for b in near}
        found.append((a, tuple(sorted(near, key=reach.__getitem__))))
    return tuple(found)


def _orders(
    seen: SeenMachine, start: int, following: Following | None, budget: Budget, *, cut: bool
) -> Iterator[tuple[int, ...]]:
    """Yield orders of the GPUs that begin with *start*; *cut* if the last GPU is not joined to the first.

    With *following*, all orders come, depth first, up to a fixed number, while *budget* lasts.
    """
    if following is not None:
        spent = 0
        found, steps = _enumerated(start, following)
        for order, at_step in found:
            if not budget.spend(at_step - spent):
                return
            spent = at_step
            yield order
        budget.spend(steps - spent)
        return
    near = [] if seen.has_switch else [_nearest(seen, first) for first in ((start,) if cut else seen.gpus)]
    turned = [order[order.index(start) :] + order[: order.index(start)] for order in (seen.gpus, *near)]
    yield from dict.fromkeys((turned[0], turned[0][:1] + turned[0][:0:-1], *turned[1:]))


def _nearest(seen: SeenMachine, start: int) -> tuple[int, ...]:
    """Return the greedy order in which each GPU is followed by the nearest remaining one."""

    def distance(here: int, gpu: int) -> tuple[int, int, int]:
        path = seen.paths.get((here, gpu))
        return (path.kind, -path.bandwidth, len(path.hops)) if path is not None else (len(rank_of), 0, 0)

    return greedy_order(start, seen.gpus, distance)


@lru_cache(maxsize=256)
def _enumerated(start: int, following: Following) -> tuple[list[tuple[tuple[int, ...], int]], int]:
    """Return each order with the number of steps until it is found, and all steps; at most as many as are allowed.

    Most speeds of a search, and most faults of a machine, leave the same hops open.
    """
    after = dict(following)
    found: list[tuple[tuple[int, ...], int]] = []
    steps = 0
    trail = [start]
    choices = [iter(after[start])]
    while choices and len(found) < _MAX_ORDERS and steps < _MAX_STEPS:
        steps += 1
        gpu = next(choices[-1], None)
        if gpu is None:
            choices.pop()
            trail.pop()
        elif gpu in trail:
            continue
        elif len(trail) + 1 == len(after):
            found.append(((*trail, gpu), steps))
        else:
            trail.append(gpu)
            choices.append(iter(after[gpu]))
    return found, steps
