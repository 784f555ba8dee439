"""When each activity ran, and the bytes moved; and resources under load (docs/decisions/engine.md)."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

from simulator.errors import SimulationError
from simulator.network.machine import Machine
from simulator.plan.plan import Activity, Flow, Fragment, Part, Plan, Resource, Work, crossed
from simulator.records import dataclass, field, sums_by_key


class Span(NamedTuple):
    """When a task ran, in seconds; of a transfer, the first round's length and when each flow arrived in it."""

    task: int
    start_s: float
    end_s: float
    round_s: float = 0.0
    flow_ends_s: tuple[float, ...] = ()

    @property
    def length_s(self) -> float:
        """Seconds from its start to its end."""
        return self.end_s - self.start_s


class LinkBytes(Sequence[float]):
    """The bytes moved over each of *n* links or resources; only nonzero entries are stored."""

    def __init__(
        self, n: int, by_number: Mapping[int, float], spread: Iterable[tuple[int, int, Sequence[int], float]] = ()
    ) -> None:
        """Store *by_number*, or *spread*: equal bytes on several hosts, as (number on host 0, stride, hosts, bytes)."""
        self._n = n
        self._spread = [each for each in spread if each[-1]]
        self._kept = None if self._spread else _in_order(by_number)

    def firsts(self) -> Iterator[tuple[int, float]]:
        """Yield (number, bytes) as :meth:`carried` does, but only the first of equal entries on equal hosts."""
        if not self._spread:
            return self.carried()
        return iter(sorted((zero + hosts[0] * stride, n_bytes) for zero, stride, hosts, n_bytes in self._spread))

    @property
    def _carried(self) -> "tuple[array[int], array[float]]":
        if self._kept is None:
            on_all = {zero + host * stride: n_bytes for zero, stride, hosts, n_bytes in self._spread for host in hosts}
            self._kept = _in_order(on_all)
        return self._kept

    def carried(self) -> Iterator[tuple[int, float]]:
        """Yield (number, bytes) of all nonzero entries, in order."""
        return zip(*self._carried, strict=True)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, number: int) -> float:  # type: ignore[override]  # nobody slices
        if not 0 <= number < self._n:
            raise IndexError(number)
        if self._kept is None:
            for zero, stride, hosts, n_bytes in self._spread:
                if number == zero + hosts[0] * stride:
                    return n_bytes
        numbers, all_bytes = self._carried
        at = bisect_left(numbers, number)
        return all_bytes[at] if at < len(numbers) and numbers[at] == number else 0.0

    def __iter__(self) -> Iterator[float]:
        passed = 0
        for number, n_bytes in self.carried():
            yield from repeat(0.0, number - passed)
            yield n_bytes
            passed = number + 1
        yield from repeat(0.0, self._n - passed)


def _in_order(by_number: Mapping[int, float]) -> "tuple[array[int], array[float]]":
    numbers = array("q", sorted([number for number, n_bytes in by_number.items() if n_bytes]))
    return numbers, array("d", [by_number[number] for number in numbers])


@dataclass(frozen=True)
class Timeline:
    """An engine run's ``spans`` in the order of tasks; ``moved``: bytes of links (True) or resources, on demand."""

    machine: Machine
    plan: Plan
    spans: tuple[Span, ...]
    end_s: float
    simulation_events: int
    moved: Callable[[bool], LinkBytes] = field(compare=False)

    def ran(self, *about: type) -> Iterator[tuple[Activity, Span]]:
        """Yield each activity with when it ran; with types, only those that are about something of one of these."""
        pairs = zip(self.plan.tasks, self.spans, strict=True)
        return (pair for pair in pairs if isinstance(pair[0].about, about)) if about else pairs

    @cached_property
    def link_bytes(self) -> LinkBytes:
        """The bytes on the wire, by link."""
        return self.moved(True)

    @cached_property
    def resource_bytes(self) -> LinkBytes:
        """The bytes by resource."""
        return self.moved(False)


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
