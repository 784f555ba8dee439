"""The plan: a directed acyclic graph of tasks on streams.

A stream runs its tasks in the order of the plan; a task also waits for the tasks it names
in ``after``.  There are two kinds:

* :class:`Transfer`: flows of bytes along routes that start together.  It ends when the last
  byte of the last flow has arrived.  ``repeat`` of n means that the same flows run n times,
  each time after the one before has ended: n rounds of a schedule that load the links
  alike are one task.
* :class:`Work`: a time spent on a device or a host thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simulator.network.route import Route

__all__ = ["Flow", "Plan", "PlanBuilder", "Task", "Transfer", "Work"]


@dataclass(frozen=True, slots=True)
class Flow:
    """``count`` equal flows of ``bytes`` each along one route.

    ``overhead`` is how many bytes cross the wire for each byte of the user's (protocols
    that carry flags with the data).  ``cap_Bps`` bounds the rate of each on the wire.
    """

    route: Route
    bytes: float
    count: int = 1
    overhead: float = 1.0
    cap_Bps: float = float("inf")
    latency_s: float = 0.0  # added to the route's

    @property
    def wire_bytes(self) -> float:
        """Bytes that cross each link, of one of the ``count`` flows."""
        return self.bytes * self.overhead


@dataclass(frozen=True, slots=True)
class Transfer:
    """Flows that start together, ``repeat`` times one after the other."""

    id: int
    label: str
    stream: str
    after: tuple[int, ...]
    flows: tuple[Flow, ...]
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """``duration_s`` on the device or host thread ``place``."""

    id: int
    label: str
    stream: str
    after: tuple[int, ...]
    place: str
    duration_s: float


Task = Transfer | Work


@dataclass(frozen=True, slots=True)
class Plan:
    """Tasks in an order that is valid: each names only earlier ones in ``after``.

    ``rings`` are the rings that the plan uses, as node indices, one entry a channel; ``notes``
    say in words what was chosen and why.
    """

    tasks: tuple[Task, ...]
    rings: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    facts: dict[str, str | int | float] = field(default_factory=dict)


class PlanBuilder:
    """Collects tasks and numbers them."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.rings: list[tuple[int, ...]] = []
        self.notes: list[str] = []
        self.facts: dict[str, str | int | float] = {}

    def transfer(
        self,
        label: str,
        flows: Iterable[Flow],
        *,
        stream: str = "main",
        after: Sequence[int] = (),
        repeat: int = 1,
    ) -> int:
        """Add a transfer and return its number.  Flows of no bytes still pay their latency."""
        number = len(self.tasks)
        self.tasks.append(Transfer(number, label, stream, tuple(after), tuple(flows), repeat))
        return number

    def work(
        self, label: str, place: str, duration_s: float, *, stream: str = "main", after: Sequence[int] = ()
    ) -> int:
        """Add a time on a device or host thread and return its number."""
        number = len(self.tasks)
        self.tasks.append(Work(number, label, stream, tuple(after), place, duration_s))
        return number

    def build(self) -> Plan:
        """Return the plan."""
        return Plan(tuple(self.tasks), tuple(self.rings), tuple(self.notes), dict(self.facts))
