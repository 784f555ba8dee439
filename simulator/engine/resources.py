"""Resources under load: those never saturated, activities that meet nobody, and :class:`LostRates` when perturbed.

Where none is saturated, no flow slows another, and one flow can represent many equal ones.  Limits that are shares of a
link's rate follow it (:class:`simulator.plan.flow.FlowLimits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from simulator.errors import SimulationError
from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Fragment, Part, Plan, Resource, Work, crossed

_FULL = 1 + 1e-12  # tolerance for caps that add up to exactly the capacity


def all_parts(plan: Plan) -> Iterator[Part]:
    """Yield the parts of all activities of *plan*."""
    return (part for task in plan.tasks for part in task.parts)


def is_alike(part: Part) -> bool:
    """Return whether *part* represents equal flows on other machines."""
    return isinstance(part, Flow) and part.at is not None


def stands_for_all(machine: Machine, plan: Plan) -> bool:
    """Return whether each flow of *plan* ends at the same time as all flows that it represents.

    This holds if all flows have room within their caps, or if equal flows share their links in the same way everywhere.
    """
    flows = [part for part in all_parts(plan) if isinstance(part, Flow)]
    sites = {None if flow.at is None else flow.at.sites for flow in flows}
    others = (part for part in all_parts(plan) if not isinstance(part, Flow))
    if len(sites) > 1 or plan.perturbations or any(isinstance(part, Fragment) or part.loads for part in others):
        return False
    (only,) = sites
    return (only is not None and only.is_uniform) or len(roomy(machine, plan)) == len(_most_at_once(plan))


def roomy(machine: Machine, plan: Plan) -> set[Resource]:
    """Return the resources that flows never saturate, because the caps of all concurrent flows add up to less.

    Resources of flows that represent others are given as keys of roles.
    """
    if plan.perturbations or not all(
        part.cap_Bps < float("inf") if isinstance(part, Flow) else isinstance(part, Work) and not part.loads
        for part in all_parts(plan)
    ):
        return set()  # flows are not the only load, or some have no cap
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


def needs_of(plan: Plan) -> list[tuple[int, ...]]:
    """Return the predecessors of each activity: those that it names, and the one before it on its stream.

    Raises SimulationError if one of them does not stand before it.
    """
    last_on: dict[str, int] = {}
    found: list[tuple[int, ...]] = []
    for task in plan.tasks:
        needs = (*task.after, last_on[task.stream]) if task.stream in last_on else task.after
        if needs and not (min(needs) >= 0 and max(needs) < task.id):
            raise SimulationError(f"task {task.id} ({task.label}) waits for a task that does not stand before it")
        last_on[task.stream] = task.id
        found.append(needs)
    return found


def undisturbed(plan: Plan, needs: Sequence[Sequence[int]], loading: Mapping[str, Iterable[int]]) -> set[int]:
    """Return the activities in *loading* that run before or after each of the other streams' activities in it."""
    found = {number for numbers in loading.values() for number in numbers if len(plan.tasks[number].parts) == 1}
    for stream, numbers in loading.items():
        ended, first = _between(needs, {number: place for place, number in enumerate(numbers)})
        found = {each for each in found if plan.tasks[each].stream == stream or ended[each] == first[each]}
    return found


def _between(needs: Sequence[Sequence[int]], places: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Return two places for each activity: of a stream's first that has not ended at its begin, and that waits for it.

    *needs* lists the predecessors of each activity, *places* has the stream's activities, in order.
    """
    ended, behind = [0] * len(needs), [0] * len(needs)
    for number, own in enumerate(needs):
        ended[number] = before = max([behind[need] for need in own], default=0)
        behind[number] = places[number] + 1 if number in places else before
    first = [len(places)] * len(needs)
    for number in range(len(needs) - 1, -1, -1):
        begins = places.get(number, first[number])
        for need in needs[number]:
            first[need] = min(first[need], begins)
    return ended, first


class LostRates:
    """The rates that the resources of *machine* lack now; more than the machine's own where negative."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._now_Bps: dict[int, float] = {}
        self._everywhere_Bps: dict[int, float] = {}  # of what corresponds to these on equal hosts
        self._paces: dict[Fragment, float] = {}

    def change(self, resource: int, lost_Bps: float) -> None:
        """Let *resource* lack *lost_Bps* from now on."""
        self._now_Bps[resource] = lost_Bps
        copies = self._machine.resource_copies
        self._everywhere_Bps = {}
        for number, lost in sorted(self._now_Bps.items(), key=lambda each: each[1]):  # the most counts
            first = number - (copies.host(number) - copies.hosts(number)[0]) * copies.stride(number)
            for place in range(len(copies.hosts(number))):
                self._everywhere_Bps[first + place * copies.stride(number)] = lost
        self._paces.clear()

    def cap_Bps(self, flow: Flow) -> float:  # noqa: N802  units keep their case
        """Return the largest rate of *flow* now, in B/s."""
        if not self._now_Bps or flow.limits is None:
            return flow.cap_Bps
        return flow.limits.cap_Bps(self._now_Bps if flow.at is None else self._everywhere_Bps)

    def pace(self, fragment: Fragment, alone_s: float) -> float:
        """Return the largest pace of *fragment* now, relative to that on the machine unperturbed, *alone_s* seconds.

        Its transfers take longer where their limits follow the links; the rest takes as long.
        """
        if not self._now_Bps or alone_s <= 0.0:
            return 1.0
        if fragment not in self._paces:
            later_s = self._limited_s(fragment, now=True) - self._limited_s(fragment, now=False)
            self._paces[fragment] = alone_s / (alone_s + later_s)
        return self._paces[fragment]

    def _limited_s(self, fragment: Fragment, *, now: bool) -> float:
        """Return the seconds that the limited flows of *fragment* take; streams run at once."""
        streams: dict[str, float] = {}
        for task in fragment.plan.tasks:
            for_s = 0.0
            for flow in task.parts:
                if isinstance(flow, Flow) and flow.limits is not None and flow.wire_bytes:
                    for_s = max(for_s, flow.limits.wire_bytes / (self.cap_Bps(flow) if now else flow.cap_Bps))
            streams[task.stream] = streams.get(task.stream, 0.0) + for_s
        return max(streams.values(), default=0.0)
