"""Resources under load: those never saturated, activities that meet nobody, and :class:`Capacities` at present.

Where none is saturated, no flow slows another, and one flow can represent many equal ones.  Limits that are shares of a
link's rate follow it (:class:`simulator.plan.flow.FlowLimits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from simulator.errors import SimulationError
from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Fragment, Part, Plan, Resource, Work, crossed
from simulator.sums import sums_by_key

_FULL = 1 + 1e-12  # tolerance for caps that add up to exactly the capacity


def all_parts(plan: Plan) -> Iterator[Part]:
    """Yield the parts of all activities of *plan*."""
    return (part for task in plan.tasks for part in task.parts)


def is_alike(part: Part) -> bool:
    """Return whether *part* represents equal flows on other machines."""
    return isinstance(part, Flow) and part.at is not None


def stands_for_all(machine: Machine, plan: Plan) -> bool:
    """Return whether each flow ends with all it represents: all have room, or links are shared alike everywhere."""
    flows = [part for part in all_parts(plan) if isinstance(part, Flow)]
    sites = {None if flow.at is None else flow.at.sites for flow in flows}
    others = (part for part in all_parts(plan) if not isinstance(part, Flow))
    if len(sites) > 1 or plan.perturbations or any(isinstance(part, Fragment) or part.loads for part in others):
        return False
    (only,) = sites
    return (only is not None and only.is_uniform) or len(roomy(machine, plan)) == len(_most_at_once(plan))


def roomy(machine: Machine, plan: Plan) -> set[Resource]:
    """Return the resources, or keys of roles, that flows never saturate, as the caps of all at once add up to less."""

    def is_limited(part: Part) -> bool:
        return part.cap_Bps < float("inf") if isinstance(part, Flow) else isinstance(part, Work) and not part.loads

    if not plan.moves or plan.perturbations or not all(map(is_limited, all_parts(plan))):
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
    return sums_by_key(rate for stream in most_Bps.values() for rate in stream.items())


def needs_of(plan: Plan) -> list[tuple[int, ...]]:
    """Return each activity's predecessors: those it names, which must stand before it, and its stream's last one."""
    last_on: dict[str, int] = {}
    found: list[tuple[int, ...]] = []
    for task in plan.tasks:
        number, needs, before = task.id, task.after, last_on.get(task.stream)
        if needs and not (min(needs) >= 0 and max(needs) < number):
            raise SimulationError(f"task {number} ({task.label}) waits for a task that does not stand before it")
        last_on[task.stream] = number
        found.append(needs if before is None else (*needs, before))
    return found


def undisturbed(plan: Plan, needs: Sequence[Sequence[int]], loading: Mapping[str, Iterable[int]]) -> set[int]:
    """Return the activities in *loading* that run before or after each of the other streams' activities in it."""

    def find() -> set[int]:
        found = {number for numbers in loading.values() for number in numbers if len(plan.tasks[number].parts) == 1}
        for stream, numbers in loading.items():
            ended, first = _between(needs, {number: place for place, number in enumerate(numbers)})
            found = {each for each in found if plan.tasks[each].stream == stream or ended[each] == first[each]}
        return found

    return plan.of_order.once(tuple([(stream, *numbers) for stream, numbers in loading.items()]), find)


def _between(needs: Sequence[Sequence[int]], places: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Return by activity a stream's first in *places* not ended at its begin, and its first that waits for it."""
    ended, behind = [0] * len(needs), [0] * len(needs)
    for number, own in enumerate(needs):
        before = 0
        for need in own:
            if behind[need] > before:  # noqa: PLR1730  a call takes three times as long
                before = behind[need]
        ended[number] = before
        behind[number] = places[number] + 1 if number in places else before
    first = [len(places)] * len(needs)
    for number in range(len(needs) - 1, -1, -1):
        begins = places.get(number, first[number])
        for need in needs[number]:
            if begins < first[need]:  # noqa: PLR1730  as above
                first[need] = begins
    return ended, first


class Capacities(dict[Resource, float]):
    """What the resources of *machine* give at present, by number or name; looked up on demand."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self._lost_Bps: dict[int, float] = {}

    def __missing__(self, resource: Resource) -> float:
        self[resource] = whole = self.whole(resource)
        return whole

    def whole(self, resource: Resource) -> float:
        """Return the unperturbed capacity of *resource*; 1 if it has only a name."""
        return self._machine.capacity_Bps[resource] if isinstance(resource, int) else 1.0

    def change(self, target: str, factor: float) -> tuple[Resource, ...]:
        """Let the resources named *target* continue at *factor* of their unperturbed capacity; return them."""
        numbers = [number for number, name in enumerate(self._machine.resource_names) if name == target]
        changed: tuple[Resource, ...] = (*numbers, target)
        self.update((resource, self.whole(resource) * factor) for resource in changed)
        self._lost_Bps.update((number, self.whole(number) - self[number]) for number in numbers)
        return changed

    def cap_Bps(self, flow: Flow) -> float:  # noqa: N802  units keep their case
        """Return the largest rate of *flow* at present, in B/s."""
        return flow.cap_Bps if not self._lost_Bps or flow.limits is None else flow.limits.cap_Bps(self._lost_Bps)

    def factor(self, resource: Resource) -> float:
        """Return the factor on a numbered *resource*, else 1; also 1 if it gives nothing, which stops its users."""
        if resource not in self._lost_Bps or not isinstance(resource, int):
            return 1.0
        return self[resource] / self.whole(resource) or 1.0

    def factors(self) -> dict[int, float]:
        """Return the factors other than 1, by number."""
        return {number: factor for number in sorted(self._lost_Bps) if (factor := self.factor(number)) != 1.0}
