"""Candidate rings of NCCL's search: orders of a machine's GPUs, and their loads (docs/decisions/collectives.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, permutations

from simulator.collectives.nccl.paths import SeenMachine, rank_of
from simulator.collectives.search import Budget, greedy_order
from simulator.records import dataclass
from simulator.sums import sums_by_key

_MAX_ORDERS = 120
_MAX_STEPS = 20_000  # per enumeration of orders; a step, also of a budget, is a GPU tried as the next of an order
_ALL_ORDERS_UP_TO = 16  # GPUs
_MAX_STARTS = 4
_NVB = rank_of["nvb"]

Free = Mapping[int, int]
Following = tuple[tuple[int, tuple[int, ...]], ...]  # for each GPU those that may follow it, the nearest first


@dataclass(frozen=True, slots=True)
class RingCandidate:
    """A candidate ring, with its load on each directed link, inside and to the network, in a channel's speed."""

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


class RingOrders:
    """The orders of a machine's GPUs over hops of class *intra* or better with *speed* (GB/s) *free* (MB/s by link)."""

    def __init__(self, seen: SeenMachine, speed: float, intra: int, free: Free, budget: Budget) -> None:
        self._seen, self._speed, self._intra, self._free, self._budget = seen, speed, intra, free, budget
        gpus = seen.gpus
        self._following: Following | None = None  # where only some orders are tried
        if not seen.has_switch and intra <= _NVB and 1 < len(gpus) <= _ALL_ORDERS_UP_TO:
            hops = [hop for hop in permutations(gpus, 2) if self._open(hop)]
            hops.sort(key=lambda hop: (seen.paths[hop].kind, -seen.paths[hop].bandwidth, hop[1]))
            self._following = tuple((gpu, tuple(b for a, b in hops if a == gpu)) for gpu in gpus)

    def closed(self) -> Iterator[RingCandidate]:
        """Yield rings inside the machine."""
        for order in self._orders(self._seen.gpus[0], self._seen.gpus):
            hops = hops_round(order)
            if all(map(self._open, hops)):
                yield RingCandidate(order, self._loads(hops), ())

    def through_network(self, speed: float, inter: int) -> Iterator[RingCandidate]:
        """Yield chains that leave by the device they enter, at *speed* GB/s, over paths of class *inter* or better."""
        seen, wide = self._seen, round(speed * 1000)
        inside: dict[tuple[int, ...], tuple[tuple[int, float], ...] | None] = {}  # an order's loads, if hops are open
        for net in seen.nets:
            into = {gpu: seen.paths[net, gpu] for gpu in seen.gpus if (net, gpu) in seen.paths}
            usable = {gpu: p for gpu, p in into.items() if p.kind <= inter and p.bandwidth >= wide}
            nearest = min((p.kind for p in usable.values()), default=None)
            for gpu in [g for g, p in usable.items() if p.kind == nearest][:_MAX_STARTS]:
                for order in self._orders(gpu, (gpu,)):
                    back = seen.paths.get((order[-1], net))
                    if back is None or back.kind > inter or back.bandwidth < wide:
                        continue
                    if order not in inside:
                        hops = list(pairwise(order))
                        is_open = self._following is not None or all(map(self._open, hops))
                        inside[order] = self._loads(hops) if is_open else None
                    loads = inside[order]
                    if loads is not None:
                        yield RingCandidate(order, loads, usable[gpu].loads + back.loads)

    def _open(self, hop: tuple[int, int]) -> bool:
        path, free = self._seen.paths.get(hop), self._free
        if path is None or path.kind > self._intra:
            return False
        return all(free[link] >= round(share * self._speed * 1000) for link, share in path.loads)

    def _loads(self, hops: Sequence[tuple[int, int]]) -> tuple[tuple[int, float], ...]:
        return tuple(sums_by_key(load for hop in hops for load in self._seen.paths[hop].loads).items())

    def _orders(self, start: int, firsts: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield orders from *start* on within the budget; where few are tried, greedy ones from *firsts*."""
        seen, spent = self._seen, 0
        if self._following is not None:
            found, steps = _enumerated(start, self._following)
            for order, at_step in found:
                if not self._budget.spend(at_step - spent):
                    return
                spent = at_step
                yield order
            self._budget.spend(steps - spent)
            return

        def distance(here: int, gpu: int) -> tuple[int, int, int]:
            path = seen.paths.get((here, gpu))
            return (path.kind, -path.bandwidth, len(path.hops)) if path is not None else (len(rank_of), 0, 0)

        near = [] if seen.has_switch else [greedy_order(first, seen.gpus, distance) for first in firsts]
        turned = [order[order.index(start) :] + order[: order.index(start)] for order in (seen.gpus, *near)]
        yield from dict.fromkeys((turned[0], turned[0][:1] + turned[0][:0:-1], *turned[1:]))


@lru_cache(maxsize=256)
def _enumerated(start: int, following: Following) -> tuple[list[tuple[tuple[int, ...], int]], int]:
    """Return each order with the steps until it is found, and all steps; most speeds leave the same hops open."""
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
