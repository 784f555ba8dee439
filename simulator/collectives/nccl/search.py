"""NCCL's search in a machine: orders of GPUs, channels and their speed (docs/decisions/collectives.md)."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, pairwise, permutations

from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.paths import SeenMachine, rank_of
from simulator.collectives.search import Budget, greedy_order, pack
from simulator.records import dataclass, lists_by_key, replace, sums_by_key

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


_MAX_SEARCHED = t.MAX_CHANNELS // 2
_NOTHING_FOUND = 0.1  # GB/s
_SPARE = 0.49  # speeds at or below this fraction of the best solution's are not tried
_PACKED_UP_TO = 2_000  # candidates x links each; beyond that only first fit
_ORDER_STEPS = 200_000  # to enumerate orders of the GPUs, in the whole search
_PACKING_STEPS = (160_000, 40_000)  # to pack rings: in the whole search, and per packing
_LOC, _NVL, _NVB, _PIX, _P2C, _PXN, _SYS = (rank_of[k] for k in ("loc", "nvl", "nvb", "pix", "p2c", "pxn", "sys"))


Orders = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ChannelSolution:
    """A solution: ``n_channels`` of ``speed`` GB/s each, over paths of the given classes or better."""

    n_channels: int
    speed: float
    kind_intra: int
    kind_inter: int
    same: bool  # all channels can use the same order
    orders: Orders = ()  # of GPUs, of each ring, repeated for each of its channels
    relayed: Orders = ()  # hops through a neighbour as (from, neighbour, to)
    tree_intra: float = 0.0  # speed of trees inside the machine, in GB/s
    nvls: tuple[int, float, float] = (0, 0.0, 0.0)  # heads, a channel's speed inside and to the network
    whole: bool = True  # not cut off by its budget

    @property
    def total(self) -> float:
        """The speed of all channels together, in GB/s."""
        return self.n_channels * self.speed


@lru_cache(maxsize=64)
def solution(seen: SeenMachine, capability_min: int, *, several: bool) -> ChannelSolution:
    """Return the solution in *seen*; machines that NCCL sees alike are searched once in a process."""
    return Search(seen, capability_min, several).found()


def doubled(best: ChannelSolution, capability_min: int) -> ChannelSolution:
    """Return the solution with fast channels split into twice as many of half the speed."""
    if best.speed < 25 or (capability_min > 80 and best.speed < 50 and best.n_channels > 4):
        return best
    n = min(2 * best.n_channels, _MAX_SEARCHED)
    return replace(best, n_channels=n, speed=best.speed / -(-n // best.n_channels))


class Search:
    """The search in one machine, as *seen*, for the *capability_min* of any; rings pass the network if *several* do."""

    def __init__(self, seen: SeenMachine, capability_min: int, several: bool) -> None:
        self.seen = seen
        self.lowest = capability_min
        self.several = several
        self.speeds = t.search_speeds(capability_min, inter=several)
        self.capacity = dict(enumerate(seen.capacity))
        self.total = max(seen.total.values()) / 1000
        leaving = [(ends, path) for ends, path in seen.paths.items() if ends[0] in seen.gpus]
        self.between = {ends: path for ends, path in leaving if ends[1] in seen.gpus}
        self.outward = {ends: path for ends, path in leaving if ends[1] in seen.nets}
        self.widest = max((p.bandwidth for p in (self.outward if several else self.between).values()), default=0) / 1000
        # The best and worst path classes that exist, inside the machine and to the network.
        kinds = [{p.kind for p in paths.values()} for paths in (self.between, self.outward)]
        self._strictest = min(kinds[0], default=_LOC), min(kinds[1], default=_PIX)
        self._loosest = max(kinds[0], default=_LOC), max(kinds[1], default=_PIX)
        self._ordering = Budget(_ORDER_STEPS)
        self._packing = Budget(_PACKING_STEPS[0])
        self._kept: dict[tuple[float, float, int, int], tuple[Orders, bool]] = {}
        first: dict[int, set[int]] = {gpu: set() for gpu in seen.gpus}
        for (a, _), path in leaving:
            first[a].add(path.hops[0])
        self._least_leaving = min(sum(seen.capacity[link] for link in links) for links in first.values())
        ports = lists_by_key((net, path.bandwidth) for (_, net), path in self.outward.items())
        self._ports = tuple(map(max, ports.values()))

    def found(self) -> ChannelSolution:
        """Return the solution; if there is none, one slow ring in rank order."""
        if len(self.seen.gpus) == 1 and not self.several:
            return ChannelSolution(1, self.speeds[0], _LOC, _PIX, True, (self.seen.gpus,), tree_intra=self.speeds[0])
        best = self._rings()
        if best is None:
            return ChannelSolution(1, _NOTHING_FOUND, _SYS, _SYS, True, (self.seen.gpus,), tree_intra=_NOTHING_FOUND)
        best = doubled(best, self.lowest)
        hops = dict.fromkeys(hop for order in best.orders for hop in hops_round(order))
        ways = {hop: self.seen.paths[hop].via for hop in hops if hop in self.seen.paths}
        relayed = tuple((a, via, b) for (a, b), via in ways.items() if via is not None)
        tree_intra, nvls = self._tree_intra(best), self._nvls()
        whole = not (self._ordering.ended or self._packing.ended)
        return replace(best, relayed=relayed, tree_intra=tree_intra, nvls=nvls, whole=whole)

    def _rings(self) -> ChannelSolution | None:
        least = 2 if self._is_split() else 1  # trees need two channels across a slow middle
        start = [i for i, s in enumerate(self.speeds) if s <= self.widest and s * least <= self.total]
        best: ChannelSolution | None = None
        for speed in self.speeds[start[0] if start else -1 :]:
            if best is not None and speed / best.speed <= _SPARE:
                break
            classes: tuple[int, int] | None = self._strictest
            while classes is not None:
                orders, same = self._most((speed, speed), *classes)
                n = len(orders)
                if n >= least and (best is None or n * speed > best.total):
                    best = ChannelSolution(n, speed, *classes, same, orders)
                if best is not None and best.total >= self.total:
                    return best
                classes = self._looser(*classes, best)
        return best

    def _looser(self, intra: int, inter: int, best: ChannelSolution | None) -> tuple[int, int] | None:
        if intra < (inter if self.several else self._loosest[0]) and (best is None or intra < best.kind_intra):
            return intra + 1, inter
        if self.several and inter < self._loosest[1] and (best is None or inter < max(best.kind_inter, _PXN)):
            return self._strictest[0], inter + 1
        return None

    def _is_split(self) -> bool:
        group = {gpu: gpu for gpu in self.seen.gpus}
        for a, b in combinations(self.seen.gpus, 2):
            if (a, b) in self.between and self.between[a, b].kind == _NVL:
                group[b] = group[a]
        return sum(size > 1 for size in Counter(group.values()).values()) == 2

    def _most(self, speeds: tuple[float, float], intra: int, inter: int) -> tuple[Orders, bool]:
        """Return orders of the most rings at once at *speeds* (GB/s, inside and out), and whether one suffices."""
        # Round classes down to ones that paths have, for the cache.
        intra = max((p.kind for p in self.between.values() if p.kind <= intra), default=intra)
        inter = max((p.kind for p in self.outward.values() if p.kind <= inter), default=inter)
        key = (*speeds, intra, inter)
        if key not in self._kept:
            self._kept[key] = self._packed(speeds, intra, inter)
        return self._kept[key]

    def _packed(self, speeds: tuple[float, float], intra: int, inter: int) -> tuple[Orders, bool]:
        among = RingOrders(self.seen, speeds[0], intra, self.capacity, self._ordering)
        rings = list(among.through_network(speeds[1], inter) if self.several else among.closed())
        needs = [ring.needs(*speeds) for ring in rings]
        room = [min(self.capacity[link] // need for link, need in taken.items()) for taken in needs]
        order = sorted((i for i in range(len(rings)) if room[i]), key=lambda i: (-room[i], len(needs[i]), i))
        if not order:
            return (), True
        # The links of GPUs and the ports of the network allow no more channels.
        bound = min(_MAX_SEARCHED, self._least_leaving // round(min(speeds) * 1000))
        if self.several:
            bound = min(bound, sum(width // round(speeds[1] * 1000) for width in self._ports))
        alike = lists_by_key((rings[i].order, i) for i in order)
        same = best = max((self._first_fit(group, needs, bound) for group in alike.values()), key=len)
        if len(best) < bound and len(alike) > 1:
            best = max(best, self._first_fit(order, needs, bound), key=len)
            if len(best) < bound and sum(map(len, needs)) <= _PACKED_UP_TO:
                packed = pack([needs[i] for i in order], self.capacity, bound, self._packing.part(_PACKING_STEPS[1]))
                best = max(best, [order[i] for i in packed], key=len)
        found = [rings[i].order for i in best]
        if len(found) < bound and not self.several and not self.seen.has_switch and intra <= _NVB:
            found = max(found, self._grown(speeds[0], intra, bound), key=len)
        return tuple(found), len(found) == len(same)

    def _first_fit(self, order: Sequence[int], needs: Sequence[Mapping[int, int]], bound: int) -> list[int]:
        free = dict(self.capacity)
        chosen: list[int] = []
        for i in order:
            times = min(bound - len(chosen), *(free[link] // need for link, need in needs[i].items()))
            chosen += [i] * times
            for link, need in needs[i].items():
                free[link] -= need * times
        return chosen

    def _grown(self, speed: float, intra: int, bound: int) -> list[tuple[int, ...]]:
        free = dict(self.capacity)
        found: list[tuple[int, ...]] = []
        while len(found) < bound:
            for ring in RingOrders(self.seen, speed, intra, free, self._ordering).closed():
                taken = ring.needs(speed, speed)
                if all(need <= free[link] for link, need in taken.items()):
                    found.append(ring.order)
                    free.update((link, free[link] - need) for link, need in taken.items())
                    break
            else:
                break
        return found

    def _tree_intra(self, best: ChannelSolution) -> float:
        if not self.several or len(self.seen.gpus) == 1:
            return best.speed
        intra = best.speed
        faster = [s for s in self.speeds if s > best.speed]
        while faster and intra < 2 * best.speed:
            tried = faster.pop()
            if len(self._most((tried, best.speed), best.kind_intra, best.kind_inter)[0]) < best.n_channels:
                break
            intra = tried
        return intra

    def _nvls(self) -> tuple[int, float, float]:
        """Return NVLS's (heads, speed inside, speed to the network) of a channel in GB/s; a head takes a second."""
        n = len(self.seen.gpus)
        if not self.seen.has_switch or self.lowest < 90 or n <= 2:
            return 0, 0.0, 0.0
        nvlink = min(self.seen.total.values()) / 1000
        if self.several:
            return self._nvls_heads(nvlink)
        heads = min(n, t.MAX_NVLS_HEADS)
        for speed in self.speeds:
            if speed <= self.widest and speed * (heads + 1) <= nvlink:
                return heads, speed, self._raised(speed, math.inf)
        return 0, 0.0, 0.0

    def _nvls_heads(self, nvlink: float) -> tuple[int, float, float]:
        """Return the same for several machines, where each head's sum continues to a network device near it."""
        widths = ((gpu, path.bandwidth / 1000) for (gpu, _), path in self.outward.items() if path.kind <= _P2C)
        near = {gpu: max(each) for gpu, each in lists_by_key(widths).items()}
        heads, chosen = 0, 0.0
        for speed in self.speeds:
            if heads and speed / chosen <= _SPARE:
                break
            wide = sum(width >= speed for width in near.values())
            n = min(wide, len(self.seen.nets), t.MAX_NVLS_HEADS, int(nvlink / speed + 1e-9) - 1)
            if speed <= self.widest and n > heads:
                heads, chosen = n, speed
        if not heads:
            return 0, 0.0, 0.0
        return heads, chosen, self._raised(chosen, min(width for width in near.values() if width >= chosen))

    def _raised(self, speed: float, limit: float) -> float:
        inter = speed
        for faster in self.speeds[: self.speeds.index(speed)][::-1]:
            if inter >= 2 * speed or faster > limit:
                break
            inter = faster
        return inter
