"""Resources that flows never saturate: there no flow slows another, and one flow can represent many equal ones."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Fragment, Part, Plan, Resource, Work, crossed

_FULL = 1 + 1e-12  # tolerance for caps that add up to exactly the capacity


def parts_of(plan: Plan) -> Iterator[Part]:
    """Yield the parts of all activities of *plan*."""
    return (part for task in plan.tasks for part in task.parts)


def is_alike(part: Part) -> bool:
    """Return whether *part* represents equal flows on other machines."""
    return isinstance(part, Flow) and part.at is not None


def _is_capped(plan: Plan) -> bool:
    """Return whether flows are the only load, and all of them have rate caps."""
    return not plan.perturbations and all(
        part.cap_Bps < float("inf") if isinstance(part, Flow) else isinstance(part, Work) and not part.loads
        for part in parts_of(plan)
    )


def stands_for_all(machine: Machine, plan: Plan) -> bool:
    """Return whether each flow of *plan* ends at the same time as all flows that it represents.

    This holds if all flows have room within their caps, or if equal flows share their links in the same way everywhere.
    """
    flows = [part for part in parts_of(plan) if isinstance(part, Flow)]
    sites = {None if flow.at is None else flow.at.sites for flow in flows}
    if len(sites) > 1 or plan.perturbations or any(isinstance(p, Fragment) or _loads(p) for p in parts_of(plan)):
        return False
    (only,) = sites
    return (only is not None and only.is_uniform) or len(roomy(machine, plan)) == len(_most_at_once(plan))


def _loads(part: Part) -> bool:
    return isinstance(part, Work) and bool(part.loads)


def roomy(machine: Machine, plan: Plan) -> set[Resource]:
    """Return the resources that flows never saturate, because the caps of all concurrent flows add up to less.

    Resources of flows that represent others are given as keys of roles.
    """
    if not _is_capped(plan):
        return set()
    rates, n = _most_at_once(plan), len(machine.capacity_Bps)
    return {key for key, rate_Bps in rates.items() if rate_Bps <= machine.capacity_Bps[key % n] * _FULL}


def _most_at_once(plan: Plan) -> dict[int, float]:
    """Return the largest possible rate of *plan* on each resource, in B/s, with keys of roles as in :func:`roomy`."""
    most_Bps: dict[str, dict[int, float]] = {}  # by stream; a stream runs one activity at a time
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
