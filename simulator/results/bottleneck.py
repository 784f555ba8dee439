"""The link, memory bus or fabric that limits exchanges (docs/decisions/results.md): :func:`bottleneck_of`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from simulator.engine.executor import alone
from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Fragment, Perturbation, Plan
from simulator.records import sums_by_key


class LinkUse(NamedTuple):
    """Bytes over a link (or through a memory bus or a switch's fabric), and the fraction of its capacity used.

    The capacity is what slow links and neighbours leave.
    """

    names: Sequence[str]
    number: int
    bytes: float
    utilisation: float

    @property
    def name(self) -> str:
        """The name of the link or resource."""
        return self.names[self.number]

    @property
    def rounded_share(self) -> float:
        """The fraction used, with 12 decimal places."""
        return round(self.utilisation, 12)


class CapacityGiven(NamedTuple):
    """The mean fraction of its capacity that a resource gives: of the whole time, and of that when it is in use."""

    always: float = 1.0
    in_use: float = 1.0


def given_of(perturbations: Iterable[Perturbation], end_s: float) -> dict[str, CapacityGiven]:
    """Return what each resource or place of *perturbations* gives until *end_s*, but for those that give nothing."""
    since: dict[str, tuple[float, float]] = {}
    whole_s, up_s = defaultdict[str, float](float), defaultdict[str, float](float)
    ends = [Perturbation(end_s, target) for target in dict.fromkeys(p.target for p in perturbations)]
    for change in sorted([*perturbations, *ends], key=lambda change: change.at_s):
        if name := change.target:
            at_s = min(change.at_s, end_s)
            from_s, factor = since.get(name, (0.0, 1.0))
            whole_s[name] += factor * (at_s - from_s)
            up_s[name] += at_s - from_s if factor else 0.0
            since[name] = at_s, change.factor
    return {name: CapacityGiven(s / end_s, s / up_s[name]) for name, s in whole_s.items() if s > 0}


def slowed_of(machine: Machine, perturbations: Sequence[Perturbation], end_s: float) -> dict[int, CapacityGiven]:
    """Return what the resources that *perturbations* slow give until *end_s*, by number."""
    given = given_of(perturbations, end_s)
    return {r: given[name] for r, name in enumerate(machine.resource_names) if name in given} if given else {}


def binding(machine: Machine, plan: Plan, used: Mapping[int, float], slowed: Mapping[int, CapacityGiven]) -> int:
    """Return the resource that limits *plan*, given the seconds that each would be *used* at what it gives.

    It is the one used longest; seconds of a link are divided by the share of its bandwidth that *plan* can use.
    """
    most_s = max(used.values()) * (1 - 1e-9)
    least = _limited_s(machine, plan, slowed) if slowed else {}
    link = None if least else machine.link(str(plan.facts.get("bound_link")))
    if link is not None and used.get(link.resource):
        least = {link.resource: used[link.resource] / float(plan.facts.get("bound_share", 1.0))}
    longest = min(least, key=lambda r: (-round(least[r], 12), r), default=-1)
    if longest >= 0 and least[longest] >= most_s:  # on a tie, what the plan names
        return longest
    return min(resource for resource, seconds in used.items() if seconds >= most_s)


def _limited_s(machine: Machine, plan: Plan, slowed: Mapping[int, CapacityGiven]) -> dict[int, float]:
    """Return by resource the seconds that it limits a transfer of *plan* while those in *slowed* give less."""
    everywhere = {_on_first(machine, r): r for r in sorted(slowed, key=lambda r: slowed[r].always, reverse=True)}
    least: dict[int, float] = {}
    for flow in (part for task in plan.tasks for part in task.parts if isinstance(part, Flow)):
        for limit in flow.limits.links if flow.limits is not None else ():
            of = limit.resource
            of = of if flow.at is None else everywhere.get(_on_first(machine, of), of)
            s = limit.fixed_s + limit.full_s / slowed.get(of, CapacityGiven()).always
            least[of] = max(s, least.get(of, 0.0))
    return least


def _on_first(machine: Machine, resource: int) -> int:
    """Return what corresponds to *resource* on the first of equal hosts."""
    copies = machine.resource_copies
    return resource - (copies.host(resource) - copies.hosts(resource)[0]) * copies.stride(resource)


def bottleneck_of(
    machine: Machine,
    exchanges: Iterable[tuple[Fragment, int]],
    end_s: float,
    perturbations: Sequence[Perturbation] = (),
) -> LinkUse | None:
    """Return the resource that limits *exchanges* (with counts) longest, and its use until *end_s*, or None."""
    times = sums_by_key(exchanges)
    names, capacity_Bps = machine.resource_names, machine.capacity_Bps
    slowed = slowed_of(machine, perturbations, end_s)
    bound_s: dict[int, float] = {}
    for fragment, count in times.items():
        most = _bound_by(machine, fragment) if not slowed else _bound_amid(machine, fragment, slowed)
        if most >= 0:
            bound_s[most] = bound_s.get(most, 0.0) + count * alone(machine, fragment).end_s
    if not bound_s:
        return None
    most = max(bound_s, key=lambda r: (round(bound_s[r], 12), -r))
    total = sum(count * alone(machine, fragment).resource_bytes[most] for fragment, count in times.items())
    could = capacity_Bps[most] * slowed.get(most, CapacityGiven()).in_use * end_s
    return LinkUse(names, most, total, total / could if could else 0.0)


def _bound_amid(machine: Machine, fragment: Fragment, slowed: Mapping[int, CapacityGiven]) -> int:
    """Return the resource that limits *fragment* where those in *slowed* give less than their capacity; -1: none."""
    moved = alone(machine, fragment).resource_bytes
    listed = moved.carried() if slowed else moved.firsts()
    used = {r: n_bytes / machine.capacity_Bps[r] / slowed.get(r, CapacityGiven()).always for r, n_bytes in listed}
    return binding(machine, fragment.plan, used, slowed) if used else -1


@lru_cache(maxsize=4096)
def _bound_by(machine: Machine, fragment: Fragment) -> int:
    """Return the resource that limits *fragment* at full capacities; -1: none.  Cached, like its run."""
    return _bound_amid(machine, fragment, {})
