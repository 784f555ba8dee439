"""Max-min fair shares of capacities among flows, by progressive filling.

All flows of a connected set grow at the same rate until a resource is full or a flow reaches its cap; the flows
concerned are frozen there, and the others grow on.  (Bertsekas, Gallager, Data Networks, section 6.5.2, with weights: a
flow uses ``weight`` times its rate of a resource.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

__all__ = ["fair_rates"]

_SLACK = 1 + 1e-12  # resources that fill up together are frozen together in spite of rounding


def fair_rates(
    loads: Sequence[Sequence[tuple[Any, float]]],
    caps_Bps: Sequence[float],
    capacity_Bps: Mapping[Any, float] | Sequence[float],
) -> list[float]:
    """Return the max-min fair rate of each flow, in the unit of *capacity_Bps*.

    *loads*: the resources of each flow as (resource, use per unit of rate).
    *caps_Bps*: the largest rate of each flow; may be infinite if the flow loads a resource.
    *capacity_Bps*: the capacity of each resource.

    A flow that nothing limits has an infinite rate.
    """
    n = len(loads)
    if n == 1:  # the common case: alone in its part of the network
        rate = caps_Bps[0]
        for resource, w in loads[0]:
            level = capacity_Bps[resource] / w
            rate = min(rate, level)
        return [rate]
    rates = [float("inf")] * n
    free: dict[Any, float] = {}
    weight: dict[Any, float] = {}
    users: dict[Any, list[int]] = {}
    n_open: dict[Any, int] = {}
    for i, load in enumerate(loads):
        for resource, w in load:
            if resource not in free:
                free[resource] = capacity_Bps[resource]
                weight[resource] = 0.0
                users[resource] = []
                n_open[resource] = 0
            weight[resource] += w
            users[resource].append(i)
            n_open[resource] += 1
    # The level at which each resource is full, and a heap of these, which may hold outdated entries too.
    levels = {r: free[r] / weight[r] for r in free}
    place = {r: i for i, r in enumerate(free)}
    heap = [(level, place[r], r) for r, level in levels.items()]
    heapify(heap)
    open_flows = dict.fromkeys(range(n))
    capped = sorted(range(n), key=lambda i: caps_Bps[i])
    next_cap = 0
    while open_flows:
        while heap and levels.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        level = heap[0][0] if heap else float("inf")
        while capped[next_cap] not in open_flows:
            next_cap += 1
        lowest_cap = caps_Bps[capped[next_cap]]
        share = min(level, lowest_cap)
        if share == float("inf"):
            break  # nothing limits the others
        frozen: dict[int, None] = {}
        if lowest_cap <= share * _SLACK:
            j = next_cap
            while j < n and caps_Bps[capped[j]] <= share * _SLACK:
                if capped[j] in open_flows:
                    frozen[capped[j]] = None
                j += 1
        if level <= share * _SLACK:
            full: list[tuple[int, Any]] = []
            while heap and heap[0][0] <= share * _SLACK:
                known, at, resource = heappop(heap)
                if levels.get(resource) == known:
                    full.append((at, resource))
            for _, resource in sorted(full):
                frozen.update(dict.fromkeys(i for i in users[resource] if i in open_flows))
        changed: dict[Any, None] = {}
        for i in frozen:
            rate = min(share, caps_Bps[i])
            rates[i] = rate
            del open_flows[i]
            for resource, w in loads[i]:
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
            heappush(heap, (levels[resource], place[resource], resource))
    return rates
