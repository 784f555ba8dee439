"""The plan: a directed acyclic graph of activities on streams.

A stream runs its activities in the order of the plan; an activity also waits for those that it names in
``after`` and for a slot in each queue that it ``takes``.  It has one or more parts, which start together, and it
ends with the last of them:

* :class:`Flow`: bytes along a route;
* :class:`Work`: seconds at a place, with what it uses of resources meanwhile;
* :class:`Fragment`: a plan of its own (a collective), which passes as one with what it takes when alone.

What runs at the same time and loads the same resource slows each other (:mod:`simulator.engine.flows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from simulator.network.route import Route
from simulator.plan.alike import Load, Way
from simulator.plan.carried import Carries

__all__ = ["Activity", "Flow", "Fragment", "Part", "Perturbation", "Plan", "PlanBuilder", "Resource", "Work", "crossed"]

# A capacity of the machine by its number, or by a name what exists once (the multiprocessors of a GPU): all of it is 1.
Resource = int | str


@dataclass(frozen=True, slots=True)
class Flow:
    """``count`` equal flows of ``bytes`` each along one route.

    ``overhead`` is how many bytes cross the wire for each byte of the user's (protocols
    that carry flags with the data).  ``cap_Bps`` bounds the rate of each on the wire.
    Where it goes ``at`` a way, it stands for flows alike between all pairs of machines there.
    """

    route: Route
    bytes: float
    count: int = 1
    overhead: float = 1.0
    cap_Bps: float = float("inf")
    latency_s: float = 0.0  # added to the route's
    at: Way | None = None

    @property
    def wire_bytes(self) -> float:
        """Bytes that cross each link, of one of the ``count`` flows."""
        return self.bytes * self.overhead

    def crosses(self, link: int) -> bool:
        """Return whether it, or one of those that it stands for, crosses *link*."""
        if self.at is None:
            return any(number == link for number, _ in self.route.links)
        return self.at.sites.crosses(self.route, self.at, link)

    def apart(self) -> tuple[Flow, ...]:
        """Return the flows that it stands for, one by one."""
        if self.at is None:
            return (self,)
        copied = self.at.sites.copied(self.route)
        return tuple(
            Flow(copied.at(*pair), self.bytes, self.count, self.overhead, self.cap_Bps, self.latency_s)
            for pair in self.at.pairs
        )


def crossed(flow: Flow, *, of_links: bool = True) -> Iterable[Load]:
    """Return the links, or else the resources, that *flow* loads, and for each key of a role how often."""
    if flow.at is not None:
        return flow.at.sites.loads(flow.route, flow.at, of_links=of_links)
    return [
        Load(number, share, ((number, 1),)) for number, share in (flow.route.links if of_links else flow.route.loads)
    ]


class Work(NamedTuple):
    """``duration_s`` when alone, with ``loads``: the share of each resource that it uses meanwhile."""

    duration_s: float
    loads: tuple[tuple[Resource, float], ...] = ()


@dataclass(frozen=True, eq=False)
class Fragment:
    """A plan that is a part of others: run alone once, it passes as one activity.

    It loads each link by what it moved there on average.  ``loads`` are shares of other resources that it holds
    throughout, ``used_s`` those of which it needs so many seconds in all.  Two fragments are the same only where
    they are one object, so that what one takes alone is found once.
    """

    plan: Plan
    loads: tuple[tuple[Resource, float], ...] = ()
    used_s: tuple[tuple[Resource, float], ...] = ()


Part = Flow | Work | Fragment


class Activity(NamedTuple):
    """Parts that start together, ``repeat`` times one after the other.

    First it waits: for its stream, for ``after``, for a slot of each queue in ``takes``.  Then it is under way, at
    ``place`` where it is one.  At its end it gives a slot back to each queue in ``gives``.  ``about`` is what it is
    of, for those who read the timeline, and ``carries`` which parts of a buffer its flows carry, for those who run
    the plan on devices: the engine looks at neither.
    """

    id: int
    label: str
    stream: str
    after: tuple[int, ...]
    parts: tuple[Part, ...]
    repeat: int = 1
    place: str = ""
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    about: Any = None
    carries: Carries | None = None

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Those of its parts that are bytes along a route, each by itself."""
        return tuple(flow for part in self.parts if isinstance(part, Flow) for flow in part.apart())

    @property
    def moves(self) -> bool:
        """Whether any of its parts are bytes along a route."""
        return any(isinstance(part, Flow) for part in self.parts)

    def apart(self) -> Activity:
        """Return it with flows that are alike one by one."""
        if not any(isinstance(part, Flow) and part.at is not None for part in self.parts):
            return self
        parts = [part.apart() if isinstance(part, Flow) else (part,) for part in self.parts]
        return self._replace(parts=tuple(each for found in parts for each in found))

    @property
    def duration_s(self) -> float:
        """Seconds of its work when alone; 0 where it has none."""
        return max((part.duration_s for part in self.parts if isinstance(part, Work)), default=0.0)


@dataclass(frozen=True, slots=True)
class Perturbation:
    """At ``at_s`` the resource or place called ``target`` goes on at ``factor`` of what it was at first.

    A factor of 0 stops what needs it until a later perturbation.  ``cancels`` is an activity that ends there and
    then, whatever is left of it; one that has not begun ends as it begins.
    """

    at_s: float
    target: str = ""
    factor: float = 1.0
    cancels: int | None = None


@dataclass(frozen=True)
class Plan:
    """Activities in an order that is valid: each names only earlier ones in ``after``.

    ``rings`` are the rings that the plan uses, as node indices, one entry a channel; ``notes``
    say in words what was chosen and why.  ``queues`` are the slots of each queue.
    """

    tasks: tuple[Activity, ...]
    rings: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    facts: dict[str, str | int | float] = field(default_factory=dict)
    queues: Mapping[str, int] = field(default_factory=dict)
    perturbations: tuple[Perturbation, ...] = ()

    @cached_property
    def staged(self) -> Route | None:
        """The first of its routes on which bytes go to the network through the memory of a host."""
        flows = (part for task in self.tasks for part in task.parts if isinstance(part, Flow))
        return next((flow.route for flow in flows if flow.route.transport == "network-staged"), None)


class PlanBuilder:
    """Collects activities and numbers them."""

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
        self,
        label: str,
        flows: Iterable[Flow],
        *,
        stream: str = "main",
        after: Sequence[int] = (),
        repeat: int = 1,
        carries: Carries | None = None,
        beside: Iterable[Work] = (),
    ) -> int:
        """Add flows that start together, and *beside* them work, and return the number.

        Flows of no bytes still pay their latency.
        """
        return self.add(label, (*flows, *beside), stream=stream, after=after, repeat=repeat, carries=carries)

    def work(
        self,
        label: str,
        place: str,
        duration_s: float,
        *,
        stream: str = "main",
        after: Sequence[int] = (),
        loads: tuple[tuple[Resource, float], ...] = (),
        **more: Any,
    ) -> int:
        """Add a time at a place, which uses *loads* meanwhile, and return the number."""
        return self.add(label, (Work(duration_s, loads),), stream=stream, after=after, place=place, **more)

    def splice(self, fragment: Fragment, *, label: str, stream: str, after: Sequence[int] = (), **more: Any) -> int:
        """Add *fragment* as one activity and return its number."""
        return self.add(label, (fragment,), stream=stream, after=after, **more)

    def inline(self, plan: Plan, prefix: str, after: Sequence[int] = ()) -> list[int]:
        """Add the activities of *plan* one by one, each stream called *prefix* and its own name; return the last.

        Those that wait for nothing in it wait for *after*; the last are those for which no other waits.
        """
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
        return Plan(
            tuple(self.tasks),
            tuple(self.rings),
            tuple(self.notes),
            dict(self.facts),
            dict(self.queues),
            tuple(self.perturbations),
        )
