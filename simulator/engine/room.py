"""Which resources flows never fill: there nobody slows anybody, and one of many alike stands for all."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Part, Plan, Resource, Work, crossed

__all__ = ["has_room_for_all", "is_alike", "parts_of", "roomy"]

_FULL = 1 + 1e-12  # what caps fill to the last bit is not overfull


def parts_of(plan: Plan) -> Iterator[Part]:
    """Yield the parts of all activities of *plan*."""
    return (part for task in plan.tasks for part in task.parts)


def is_alike(part: Part) -> bool:
    """Whether *part* stands for flows alike on other machines."""
    return isinstance(part, Flow) and part.at is not None


def _is_capped(plan: Plan) -> bool:
    """Whether nothing but flows loads anything, and all of these have caps."""
    return not plan.perturbations and all(
        part.cap_Bps < float("inf") if isinstance(part, Flow) else isinstance(part, Work) and not part.loads
        for part in parts_of(plan)
    )


def has_room_for_all(machine: Machine, plan: Plan) -> bool:
    """Whether all flows of *plan* are alike on the same machines, and what they load they never fill."""
    sites = {part.at and part.at.sites for part in parts_of(plan) if isinstance(part, Flow)}
    if len(sites) > 1 or not _is_capped(plan):
        return False
    rates, n = _most_at_once(plan), len(machine.capacity_Bps)
    return all(rate_Bps <= machine.capacity_Bps[key % n] * _FULL for key, rate_Bps in rates.items())


def roomy(machine: Machine, plan: Plan) -> set[Resource]:
    """Return the resources that flows never fill, since all that can be under way at once stay below by their caps.

    There nobody slows anybody.
    """
    if not _is_capped(plan):
        return set()
    rates = _most_at_once(plan)
    return {r for r, rate_Bps in rates.items() if rate_Bps <= machine.capacity_Bps[r] * _FULL}


def _most_at_once(plan: Plan) -> dict[int, float]:
    """Return at which rate the flows of *plan* use each resource at most; of flows that are alike, by keys of roles."""
    most_Bps: dict[str, dict[int, float]] = {}  # by stream, which has one activity under way at a time
    for task in plan.tasks:
        own: dict[int, float] = {}
        known = own.get
        for flow in task.parts:
            if not isinstance(flow, Flow):
                continue
            rate_Bps = flow.cap_Bps * flow.count
            if flow.at is None:
                for resource, share in flow.route.loads:
                    own[resource] = known(resource, 0.0) + rate_Bps * share
                continue
            for load in crossed(flow, of_links=False):
                for key, times in load.keys:
                    own[key] = known(key, 0.0) + times * rate_Bps * load.share
        stream = most_Bps.setdefault(task.stream, own)
        if stream is not own:
            stream.update({r: max(rate_Bps, stream.get(r, 0.0)) for r, rate_Bps in own.items()})
    total_Bps: dict[int, float] = {}
    for stream in most_Bps.values():
        for resource, rate_Bps in stream.items():
            total_Bps[resource] = total_Bps.get(resource, 0.0) + rate_Bps
    return total_Bps
