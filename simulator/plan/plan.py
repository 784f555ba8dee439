"""The plan: a directed acyclic graph of activities on streams (docs/decisions/engine.md)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

from simulator.errors import InputError
from simulator.kept import Kept
from simulator.network.route import Route
from simulator.plan.flow import Carries, FlowLimits, Load, PairGroup, together
from simulator.records import dataclass, field, named_tuple, replace

# A numbered capacity of the machine, or a named resource with capacity 1 (the multiprocessors of a GPU).
Resource = int | str

_MOST_APART = 300_000  # flows of an activity, in 1 GB


@dataclass(frozen=True, slots=True)
class Flow:
    """``count`` equal flows of ``bytes`` each along one route."""

    route: Route
    bytes: float
    count: int = 1
    overhead: float = 1.0  # bytes on the wire per byte of the user's (flags of protocols)
    cap_Bps: float = float("inf")  # of each flow's rate on the wire
    latency_s: float = 0.0  # in addition to the route's
    at: PairGroup | None = None  # of equal flows between all machine pairs of a way
    limits: FlowLimits | None = field(default=None, compare=False, repr=False)

    @property
    def wire_bytes(self) -> float:
        """Bytes on the wire of each of the ``count`` flows."""
        return self.bytes * self.overhead

    def apart(self) -> "tuple[Flow, ...]":
        """Return the flows that it represents, one by one."""
        if self.at is None:
            return (self,)
        limits: Iterable[FlowLimits | None] = repeat(None, len(self.at.pairs))
        if self.limits is not None:
            own = self.limits.links
            numbered = replace(self.route, loads=tuple((limit.resource, place) for place, limit in enumerate(own)))
            loads = (route.loads for route in self.at.sites.apart(numbered, self.at))
            there = (tuple([own[int(place)]._replace(resource=number) for number, place in each]) for each in loads)
            limits = [self.limits._replace(links=links) for links in there]
        routes = self.at.sites.apart(self.route, self.at)
        return tuple(
            Flow(route, self.bytes, self.count, self.overhead, self.cap_Bps, self.latency_s, limits=each)
            for route, each in zip(routes, limits, strict=True)
        )


def crossed(flow: Flow, *, of_links: bool = True) -> Iterable[Load]:
    """Return the loads of *flow* on links or, if not *of_links*, on resources."""
    if flow.at is not None:
        return flow.at.sites.loads(flow.route, flow.at, of_links=of_links)
    shares = flow.route.links if of_links else flow.route.loads
    return [Load(number, share, ((number, 1),)) for number, share in shares]


class Work(NamedTuple):
    """Work of ``duration_s`` alone, with shares ``loads`` of resources; a share n above 1: n works of the whole."""

    duration_s: float
    loads: tuple[tuple[Resource, float], ...] = ()


@dataclass(frozen=True, eq=False)
class Fragment:
    """A plan in another, run alone once (by object), then one activity with its average rates on links."""

    plan: "Plan"
    loads: tuple[tuple[Resource, float], ...] = ()  # shares of other resources held throughout
    used_s: tuple[tuple[Resource, float], ...] = ()  # resources needed for so many seconds in all


Part = Flow | Work | Fragment


class Activity(NamedTuple):
    """Parts that start together, ``repeat`` times in succession, when stream, ``after`` and queues let them."""

    id: int
    label: str
    stream: str
    after: tuple[int, ...]
    parts: tuple[Part, ...]
    repeat: int = 1
    place: str = ""  # where it runs, if set
    takes: tuple[str, ...] = ()  # queues of which it needs a slot
    gives: tuple[str, ...] = ()  # queues to which it returns one
    about: Any = None  # for readers of the timeline
    carries: Carries | None = None  # buffer parts of its flows, for real devices

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Its flows, with those that represent several expanded; raises InputError if they are too many."""
        return tuple(part for part in self.apart().parts if isinstance(part, Flow))

    @property
    def moves(self) -> bool:
        """Whether any of its parts is a flow."""
        return any(isinstance(part, Flow) for part in self.parts)

    def apart(self) -> "Activity":
        """Return the activity with flows that represent several expanded; raises InputError if they are too many."""
        ways = [part.at for part in self.parts if isinstance(part, Flow) and part.at is not None]
        if not ways:
            return self
        if (n := sum(len(way.pairs) for way in ways)) > _MOST_APART:
            most = "more than are simulated one by one, as without folding, in traces and with passing changes of links"
            raise InputError(f"{n:,} flows at once are {most} (up to {_MOST_APART:,})")
        parts = [part.apart() if isinstance(part, Flow) else (part,) for part in self.parts]
        return self._replace(parts=tuple(each for found in parts for each in found))

    @property
    def duration_s(self) -> float:
        """Seconds of its work when alone; 0 without work."""
        return max([part.duration_s for part in self.parts if isinstance(part, Work)], default=0.0)


@dataclass(frozen=True, slots=True)
class Perturbation:
    """From ``at_s``, ``target`` has ``factor`` of its capacity (0: none); activity ``cancels`` ends then."""

    at_s: float
    target: str = ""
    factor: float = 1.0
    cancels: int | None = None


@dataclass(frozen=True)
class Plan:
    """Activities, each after earlier ones; its rings as nodes by channel, notes on choices, and slots of queues."""

    tasks: tuple[Activity, ...]
    rings: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    facts: dict[str, str | int | float] = field(default_factory=dict)
    queues: Mapping[str, int] = field(default_factory=dict)
    perturbations: tuple[Perturbation, ...] = ()
    of_order: Kept = field(default_factory=Kept, init=False, compare=False, repr=False)  # found of who waits for whom

    def with_parts(self, parts: Mapping[int, tuple[Part, ...]]) -> "Plan":
        """Return the plan with other *parts*, by activity, in which activities wait for each other as in this one."""
        tasks = [each._replace(parts=parts[each.id]) if each.id in parts else each for each in self.tasks]
        found = replace(self, tasks=tuple(tasks))
        object.__setattr__(found, "of_order", self.of_order)
        return found

    @cached_property
    def moves(self) -> bool:
        """Whether any of its activities has a flow."""
        return Flow in {type(part) for task in self.tasks for part in task.parts}

    @cached_property
    def staged(self) -> Route | None:
        """The first route on which bytes reach the network through host memory, or None."""
        flows = (part for task in self.tasks for part in task.parts if isinstance(part, Flow))
        return next((flow.route for flow in flows if flow.route.transport == "network-staged"), None)


class PlanBuilder:
    """Collects and numbers activities."""

    def __init__(self) -> None:
        self.tasks: list[Activity] = []
        self.rings: list[tuple[int, ...]] = []
        self.notes: list[str] = []
        self.facts: dict[str, str | int | float] = {}
        self.queues: dict[str, int] = {}
        self.perturbations: list[Perturbation] = []

    def add(self, label: str, parts: Iterable[Part], *, stream: str, after: Sequence[int] = (), **more: Any) -> int:
        """Add an activity and return its number; *more* are other fields of :class:`Activity`."""
        number = len(self.tasks)
        self.tasks.append(Activity(number, label, stream, tuple(after), tuple(parts), **more))
        return number

    def transfer(
        self, label: str, flows: Iterable[Flow], *, stream: str = "main", beside: Iterable[Work] = (), **more: Any
    ) -> int:
        """Add flows that start together, works *beside* them; return the number.  *more*: fields of Activity."""
        return self.add(label, (*flows, *beside), stream=stream, **more)

    def work(
        self,
        label: str,
        place: str,
        duration_s: float,
        *,
        stream: str = "main",
        after: Sequence[int] = (),
        loads: tuple[tuple[Resource, float], ...] = (),
        takes: tuple[str, ...] = (),
        gives: tuple[str, ...] = (),
        about: Any = None,
    ) -> int:
        """Add *duration_s* seconds of work at *place*, which uses *loads* meanwhile; return the activity's number."""
        tasks, number = self.tasks, len(self.tasks)
        parts = (named_tuple(Work, (duration_s, loads)),)
        fields = (number, label, stream, tuple(after), parts, 1, place, takes, gives, about, None)
        tasks.append(named_tuple(Activity, fields))
        return number

    def inline(self, plan: Plan, prefix: str, after: Sequence[int] = ()) -> list[int]:
        """Add *plan*'s activities one by one after *after*, streams with *prefix*; return those that none waits for."""
        offset = len(self.tasks)
        ends: dict[int, None] = {}
        for task in plan.tasks:
            needs = tuple(a + offset for a in task.after) or tuple(after)
            number = task.id + offset
            self.tasks.append(task._replace(id=number, stream=prefix + task.stream, after=needs))
            for need in needs:
                ends.pop(need, None)
            ends[number] = None
        self.rings += plan.rings
        return list(ends)

    def build(self) -> Plan:
        """Return the plan."""
        of = tuple(self.tasks), tuple(self.rings), tuple(self.notes)
        return Plan(*of, dict(self.facts), dict(self.queues), tuple(self.perturbations))


def merge(plans: Sequence[Plan]) -> Plan:
    """Return one plan that starts all *plans* at once, streams by number of plan; facts that all agree on stay."""
    if len(plans) == 1:
        return plans[0]
    builder = PlanBuilder()
    for number, plan in enumerate(plans):
        builder.inline(plan, f"{number}/")
    builder.notes += dict.fromkeys(note for plan in plans for note in plan.notes)
    for key, value in plans[0].facts.items() if plans else ():
        if all(key in plan.facts and plan.facts[key] == value for plan in plans):
            builder.facts[key] = value
    return builder.build()


def in_step(builder: PlanBuilder, plans: Sequence[Plan], stream: str, after: Sequence[int]) -> list[int]:
    """Add *plans* *after* one end; return their last tasks.  Those that differ in routes alone go round by round."""
    shapes = {tuple([(t.label, t.stream, t.after, t.repeat, t.place, len(t.parts)) for t in p.tasks]) for p in plans}
    if len(shapes) > 1 or not all(isinstance(part, Flow) for task in plans[0].tasks for part in task.parts):
        return [end for i, plan in enumerate(plans) for end in builder.inline(plan, f"{stream}{i}.", after)]
    joined = []
    for column in zip(*[plan.tasks for plan in plans], strict=True):
        parts = tuple(part for task in column for part in task.parts)
        joined.append(column[0]._replace(parts=parts, carries=together([task.carries for task in column])))
    return builder.inline(Plan(tuple(joined), tuple(r for plan in plans for r in plan.rings)), f"{stream}.", after)
