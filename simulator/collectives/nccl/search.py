"""NCCL's search within one machine: the number of channels and their speed.

After NVIDIA/nccl@5067397c (2.30.7) ``src/graph/search.cc`` (ncclTopoCompute), but by capacities instead of step by
step: for one candidate speed after another, fastest first, as many rings as the links can carry beside each other are
packed, over path classes that are loosened in NCCL's order.  The first speed at which the rings take all that a GPU has
ends the search; otherwise it goes on down to half the speed of the best found so far.

Readings, where the rules leave room:

* Rings return to the network device that they came from (NCCL's crossNic 0); on eight H100 with
  eight adapters that gives 8 x 45.  Rings that enter by one and leave by another device, which
  NCCL may try as well, are not considered.
* Channels count as all the same if one order of the GPUs yields as many as all orders together.
* Trees have the ring's channels; only their speed inside a machine may be higher, raised step
  by step while it is below twice the network's.
* Packing is exact on small machines; where many orders compete (eight GPUs all linked directly)
  it is the better of first fit and a bounded search, and may miss a channel.
* All speeds and classes share one budget of steps; at its end the best found so far stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.orders import closed_rings, rings_through_network
from simulator.collectives.nccl.paths import SeenMachine, rank_of
from simulator.collectives.search.budget import Budget
from simulator.collectives.search.packing import pack

__all__ = ["Found", "Search"]

_MAX_SEARCHED = t.MAX_CHANNELS // 2
_NOTHING_FOUND = 0.1  # GB/s
_SPARE = 0.49  # below this share of the best speed no slower one is tried
_PACKED_UP_TO = 2_000  # candidates x links of each; beyond that first fit alone
_ORDER_STEPS = 200_000  # of trying orders of the GPUs, of the whole search
_PACKING_STEPS = (160_000, 40_000)  # of packing rings beside each other: of the whole search, and each time
_LOC, _NVL, _NVB, _PIX, _P2C, _PXN, _SYS = (rank_of[k] for k in ("loc", "nvl", "nvb", "pix", "p2c", "pxn", "sys"))


Orders = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A solution: ``n_channels`` of ``speed`` GB/s each, over paths of these classes or better.

    ``orders`` are the GPUs as the rings pass them, each ring as often as it is a channel, ``relayed`` their hops
    through a neighbour (from, neighbour, to).
    ``nvls`` has the number of heads (GPUs that sum for all) and a channel's speed inside and to the network.
    ``whole``: the search came to its end, and not to that of its budget.
    """

    n_channels: int
    speed: float
    kind_intra: int
    kind_inter: int
    same: bool
    orders: Orders = ()
    relayed: Orders = ()
    tree_intra: float = 0.0
    nvls: tuple[int, float, float] = (0, 0.0, 0.0)
    whole: bool = True

    @property
    def total(self) -> float:
        """All channels together, GB/s."""
        return self.n_channels * self.speed


class Search:
    """The search in one machine of a communicator.

    *seen*: its links and paths.
    *capability_min*: of the oldest GPU in all machines: it decides which speeds are tried.
    *several*: whether there are several machines, so that rings go through the network.
    """

    def __init__(self, seen: SeenMachine, capability_min: int, several: bool) -> None:
        self.seen = seen
        self.lowest = capability_min
        self.several = several
        self.speeds = t.search_speeds(capability_min, inter=several)
        self.capacity = dict(enumerate(seen.capacity))
        self.total = max(seen.total.values()) / 1000
        gpus, nets = set(seen.gpus), set(seen.nets)
        self.between = {(a, b): p for (a, b), p in seen.paths.items() if a in gpus and b in gpus}
        self.outward = {(a, b): p for (a, b), p in seen.paths.items() if a in gpus and b in nets}
        targets = self.outward if several else self.between
        self.widest = max((p.bandwidth for p in targets.values()), default=0) / 1000
        self._ordering = Budget(_ORDER_STEPS)
        self._packing = Budget(_PACKING_STEPS[0])
        self._kept: dict[tuple[float, float, int, int], tuple[Orders, bool]] = {}
        first: dict[int, set[int]] = {gpu: set() for gpu in seen.gpus}
        for (a, _), path in seen.paths.items():
            if a in first:
                first[a].add(path.hops[0])
        self._least_leaving = min(sum(seen.capacity[link] for link in links) for links in first.values())
        ports: dict[int, int] = {}
        for (_, net), path in self.outward.items():
            ports[net] = max(ports.get(net, 0), path.bandwidth)
        self._ports = tuple(ports.values())

    def found(self) -> Found:
        """Return the solution; where there is none, one slow ring in the order of ranks."""
        if len(self.seen.gpus) == 1 and not self.several:
            return Found(1, self.speeds[0], _LOC, _PIX, True, (self.seen.gpus,), tree_intra=self.speeds[0])
        best = self._rings()
        if best is None:
            return Found(1, _NOTHING_FOUND, _SYS, _SYS, True, (self.seen.gpus,), tree_intra=_NOTHING_FOUND)
        best = replace(self._doubled(best), relayed=self._relayed(best.orders))
        best = replace(best, tree_intra=self._tree_intra(best), nvls=self._nvls())
        return replace(best, whole=not (self._ordering.ended or self._packing.ended))

    # -- rings -----------------------------------------------------------------------

    def _rings(self) -> Found | None:
        least = 2 if self._is_split() else 1  # as trees want two channels across a slow middle
        start = [i for i, s in enumerate(self.speeds) if s <= self.widest and s * least <= self.total]
        best: Found | None = None
        for speed in self.speeds[start[0] if start else -1 :]:
            if best is not None and speed / best.speed <= _SPARE:
                break
            classes: tuple[int, int] | None = self._strictest()
            while classes is not None:
                orders, same = self._most((speed, speed), *classes)
                n = len(orders)
                if n >= least and (best is None or n * speed > best.total):
                    best = Found(n, speed, *classes, same, orders)
                if best is not None and best.total >= self.total:
                    return best
                classes = self._looser(*classes, best)
        return best

    def _strictest(self) -> tuple[int, int]:
        """Return the best classes, inside and to the network, that any path has."""
        inside = min((p.kind for p in self.between.values()), default=_LOC)
        return inside, min((p.kind for p in self.outward.values()), default=_PIX)

    def _looser(self, intra: int, inter: int, best: Found | None) -> tuple[int, int] | None:
        """Return the next classes to try, or None: none looser than a solution has."""
        farthest = max((p.kind for p in self.outward.values()), default=_PIX)  # beyond it there is nothing to find
        limit = inter if self.several else max((p.kind for p in self.between.values()), default=_LOC)
        if intra < limit and (best is None or intra < best.kind_intra):
            return intra + 1, inter
        if self.several and inter < farthest and (best is None or inter < best.kind_inter or inter < _PXN):
            return self._strictest()[0], inter + 1
        return None

    def _is_split(self) -> bool:
        """Whether there are two groups of GPUs with NVLink that no NVLink joins."""
        group = {gpu: gpu for gpu in self.seen.gpus}
        for i, a in enumerate(self.seen.gpus):
            mine = group[a]
            for b in self.seen.gpus[i + 1 :]:
                if (a, b) in self.between and self.between[a, b].kind == _NVL:
                    group[b] = mine
        members = list(group.values())
        return sum(members.count(g) > 1 for g in set(members)) == 2

    def _most(self, speeds: tuple[float, float], intra: int, inter: int) -> tuple[Orders, bool]:
        """Return the most rings that fit beside each other over these classes, and whether all can be the same.

        *speeds* are a ring's inside the machine and to the network.
        """
        # Classes that no path has change nothing.
        intra = max((p.kind for p in self.between.values() if p.kind <= intra), default=intra)
        inter = max((p.kind for p in self.outward.values() if p.kind <= inter), default=inter)
        key = (*speeds, intra, inter)
        if key not in self._kept:
            self._kept[key] = self._packed(speeds, intra, inter)
        return self._kept[key]

    def _packed(self, speeds: tuple[float, float], intra: int, inter: int) -> tuple[Orders, bool]:
        if self.several:
            rings = list(rings_through_network(self.seen, speeds, intra, inter, self.capacity, self._ordering))
        else:
            rings = list(closed_rings(self.seen, speeds[0], intra, self.capacity, self._ordering))
        needs = [ring.needs(*speeds) for ring in rings]
        room = [min(self.capacity[link] // need for link, need in taken.items()) for taken in needs]
        order = sorted((i for i in range(len(rings)) if room[i]), key=lambda i: (-room[i], len(needs[i]), i))
        if not order:
            return (), True
        bound = self._bound(speeds)
        alike: dict[tuple[int, ...], list[int]] = {}
        for i in order:
            alike.setdefault(rings[i].order, []).append(i)
        same = best = max((self._first_fit(group, needs, bound) for group in alike.values()), key=len)
        if len(best) < bound and len(alike) > 1:
            best = max(best, self._first_fit(order, needs, bound), key=len)
            if len(best) < bound and sum(map(len, needs)) <= _PACKED_UP_TO:
                steps = self._packing.part(_PACKING_STEPS[1])
                packed = pack([needs[i] for i in order], self.capacity, bound, steps)
                best = max(best, [order[i] for i in packed], key=len)
        found = [rings[i].order for i in best]
        if len(found) < bound and not self.several and not self.seen.has_switch and intra <= _NVB:
            found = max(found, self._grown(speeds[0], intra, bound), key=len)
        return tuple(found), len(found) == len(same)

    def _bound(self, speeds: tuple[float, float]) -> int:
        """Return how many channels the GPUs' links and the network's ports allow at most."""
        bound = min(_MAX_SEARCHED, self._least_leaving // round(min(speeds) * 1000))
        if self.several:
            bound = min(bound, sum(width // round(speeds[1] * 1000) for width in self._ports))
        return bound

    def _first_fit(self, order: Sequence[int], needs: Sequence[Mapping[int, int]], bound: int) -> list[int]:
        """Return which candidates fit at once when each in *order* is taken as often as it fits."""
        free = dict(self.capacity)
        chosen: list[int] = []
        for i in order:
            times = min(bound - len(chosen), *(free[link] // need for link, need in needs[i].items()))
            chosen += [i] * times
            for link, need in needs[i].items():
                free[link] -= need * times
        return chosen

    def _grown(self, speed: float, intra: int, bound: int) -> list[tuple[int, ...]]:
        """Return rings found one after another, each in what the others left."""
        free = dict(self.capacity)
        found: list[tuple[int, ...]] = []
        while len(found) < bound:
            for ring in closed_rings(self.seen, speed, intra, free, self._ordering):
                taken = ring.needs(speed, speed)
                if all(need <= free[link] for link, need in taken.items()):
                    break
            else:
                break
            found.append(ring.order)
            for link, need in taken.items():
                free[link] -= need
        return found

    # -- after the rings --------------------------------------------------------------

    def _relayed(self, orders: Orders) -> Orders:
        """Return the hops of rings that lead through a neighbour."""
        hops = dict.fromkeys(hop for order in orders for hop in [*pairwise(order), (order[-1], order[0])])
        ways = {(a, b): self.seen.paths[a, b].via for a, b in hops if (a, b) in self.seen.paths}
        return tuple((a, via, b) for (a, b), via in ways.items() if via is not None)

    def _doubled(self, best: Found) -> Found:
        """Return fast channels as twice as many of half the speed."""
        if best.speed < 25 or (self.lowest > 80 and best.speed < 50 and best.n_channels > 4):
            return best
        n = min(2 * best.n_channels, _MAX_SEARCHED)
        return replace(best, n_channels=n, speed=best.speed / -(-n // best.n_channels))

    def _tree_intra(self, best: Found) -> float:
        """Return the speed inside the machine of a tree with the rings' channels."""
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
        """Return heads and speeds of NVLS: each head's GPU sums what all send, and sends it to all.

        A GPU so takes its part of every head's channel, and twice that of its own.
        """
        n = len(self.seen.gpus)
        if not self.seen.has_switch or self.lowest < 90 or n <= 2:
            return 0, 0.0, 0.0
        nvlink = min(self.seen.total.values()) / 1000
        if self.several:
            return self._nvls_heads(nvlink)
        heads = min(n, t.MAX_NVLS_HEADS)
        for i, speed in enumerate(self.speeds):
            if speed <= self.widest and speed * (heads + 1) <= nvlink:
                return heads, speed, self._raised(i, speed, float("inf"))
        return 0, 0.0, 0.0

    def _nvls_heads(self, nvlink: float) -> tuple[int, float, float]:
        """Return the same where each head's sum goes on to the network over a device near it."""
        near: dict[int, float] = {}
        for (gpu, _), path in self.outward.items():
            if path.kind <= _P2C:
                near[gpu] = max(near.get(gpu, 0.0), path.bandwidth / 1000)
        heads, chosen, index = 0, 0.0, 0
        for i, speed in enumerate(self.speeds):
            if heads and speed / chosen <= _SPARE:
                break
            wide = sum(width >= speed for width in near.values())
            n = min(wide, len(self.seen.nets), t.MAX_NVLS_HEADS, int(nvlink / speed + 1e-9) - 1)
            if speed <= self.widest and n > heads:
                heads, chosen, index = n, speed, i
        if not heads:
            return 0, 0.0, 0.0
        return heads, chosen, self._raised(index, chosen, min(width for width in near.values() if width >= chosen))

    def _raised(self, index: int, speed: float, limit: float) -> float:
        """Return the speed to the network, raised while it is below twice *speed* and fits."""
        inter = speed
        while index > 0 and inter < 2 * speed and self.speeds[index - 1] <= limit:
            index -= 1
            inter = self.speeds[index]
        return inter
