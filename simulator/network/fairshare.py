"""Max-min fair shares of capacities among flows, by progressive filling (docs/decisions/host.md)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from simulator.records import lists_by_key, sums_by_key

Loads = Sequence[tuple[Any, float]]  # resources, each with its use per unit of a flow's rate
_Capacities = Mapping[Any, float] | Sequence[float]
_SLACK = 1 + 1e-12  # resources that fill up together are frozen together in spite of rounding


def fair_rates(loads: Sequence[Loads], caps_Bps: Sequence[float], capacity_Bps: _Capacities) -> list[float]:
    """Return the max-min fair rate of each flow, up to *caps_Bps*, in the unit of *capacity_Bps*; perhaps infinite."""
    if len(loads) == 1:  # the common case: alone in its part of the network
        return [min([caps_Bps[0], *(capacity_Bps[resource] / w for resource, w in loads[0])])]
    filling = _Filling(loads, caps_Bps, capacity_Bps)
    while filling.open_flows:
        level, lowest_cap = filling.lowest()
        share = min(level, lowest_cap)
        if share == float("inf"):
            break  # nothing limits the others
        frozen = dict.fromkeys(filling.capped(share)) if lowest_cap <= share * _SLACK else {}
        if level <= share * _SLACK:
            frozen.update(dict.fromkeys(filling.filled(share)))
        filling.freeze(frozen, share)
    return filling.rates


class _Filling:
    """The state of progressive filling: flows that are still open, and what each resource has left for them."""

    def __init__(self, loads: Sequence[Loads], caps_Bps: Sequence[float], capacity_Bps: _Capacities) -> None:
        self._loads, self._caps_Bps = loads, caps_Bps
        self.rates = [float("inf")] * len(loads)
        self.open_flows = dict.fromkeys(range(len(loads)))
        self._weight: dict[Any, float] = sums_by_key(each for load in loads for each in load)
        self._users = lists_by_key((resource, i) for i, load in enumerate(loads) for resource, _ in load)
        self._free = {resource: capacity_Bps[resource] for resource in self._users}
        self._n_open = {resource: len(users) for resource, users in self._users.items()}
        # The level at which each resource is full, and a heap of these, which may hold outdated entries too.
        self._levels = {r: free / self._weight[r] for r, free in self._free.items()}
        self._place = {r: i for i, r in enumerate(self._free)}
        self._heap = [(level, self._place[r], r) for r, level in self._levels.items()]
        heapify(self._heap)
        self._by_cap = sorted(range(len(loads)), key=lambda i: caps_Bps[i])
        self._next = 0  # in _by_cap; the flows before it are frozen

    def lowest(self) -> tuple[float, float]:
        """Return the lowest level at which a resource is full, infinite if no open flow loads any, and a flow's cap."""
        heap, levels = self._heap, self._levels
        while heap and levels.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        while self._by_cap[self._next] not in self.open_flows:
            self._next += 1
        return heap[0][0] if heap else float("inf"), self._caps_Bps[self._by_cap[self._next]]

    def capped(self, share: float) -> Iterator[int]:
        """Yield the open flows that reach their cap at *share*."""
        for place in range(self._next, len(self._by_cap)):
            i = self._by_cap[place]
            if self._caps_Bps[i] > share * _SLACK:
                return
            if i in self.open_flows:
                yield i

    def filled(self, share: float) -> Iterator[int]:
        """Yield the open flows of the resources that are full at *share*, in the order of the resources."""
        heap, full = self._heap, []
        while heap and heap[0][0] <= share * _SLACK:
            known, at, resource = heappop(heap)
            if self._levels.get(resource) == known:
                full.append((at, resource))
        for _, resource in sorted(full):
            yield from (i for i in self._users[resource] if i in self.open_flows)

    def freeze(self, flows: Iterable[int], share: float) -> None:
        """Give *flows* their rate at *share*, and what they use to nobody else."""
        free, weight, n_open, levels = self._free, self._weight, self._n_open, self._levels
        changed: dict[Any, None] = {}
        for i in flows:
            rate = min(share, self._caps_Bps[i])
            self.rates[i] = rate
            del self.open_flows[i]
            for resource, w in self._loads[i]:
                free[resource] = max(0.0, free[resource] - rate * w)
                weight[resource] -= w
                n_open[resource] -= 1
                if n_open[resource]:
                    changed[resource] = None
                else:  # tested by count, as rounding may leave the weight above zero
                    levels.pop(resource)
                    changed.pop(resource, None)
        for resource in changed:
            levels[resource] = free[resource] / weight[resource]
            heappush(self._heap, (levels[resource], self._place[resource], resource))
