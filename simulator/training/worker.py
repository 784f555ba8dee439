"""What one rank does in a plan: its host issues, its device runs what has been issued, each in its order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.devices.dispatch import graph_launch_time
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.network.machine import Machine
from simulator.places import Place
from simulator.plan.plan import PlanBuilder, Resource
from simulator.step.issue import DeviceWork, Issue

__all__ = ["Issued", "Skipped", "Worker"]


class Issued(NamedTuple):
    """What an activity of a worker is of: an issue of a micro-batch, on the host or on the device."""

    issue: Issue
    micro_batch: int
    on_host: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """What an activity stands for: ``count`` micro-batches that pass as the one before them did."""

    count: int
    micro_batch: int


class Worker:
    """The streams of one rank: ``host`` and ``compute``; on a CPU, which computes where it issues, ``host`` alone.

    The host runs ahead of the device; a kernel starts once it has been issued and the one before has ended.  An
    issue that waits begins on the host when the device is done with all before it.  Of a *captured* step one call
    launches all, and the host looks at nothing.  *loads*: kernels use multiprocessors and memory of the device, so
    that what runs beside them slows them; *pace*: they take so many times as long as on a device of the mean.
    *prefix* tells the streams of several workers apart; *host_stream* is one that they share.  *turns* is a queue of
    one slot that a kernel takes, where several processes have one device.
    """

    def __init__(
        self,
        builder: PlanBuilder,
        machine: Machine,
        place: Place,
        *,
        captured: bool = False,
        loads: bool = False,
        pace: float = 1.0,
        prefix: str = "",
        host_stream: str = "",
        turns: str = "",
    ) -> None:
        self._builder = builder
        self._place = place
        self._captured = captured
        self._prefix = prefix
        self._pace = pace
        self._turns = (turns,) if turns else ()
        self._node = machine.node(place.name) if loads and isinstance(place.device, Gpu) else None
        self._loaded: dict[int, tuple[DeviceWork, tuple[tuple[Resource, float], ...]]] = {}  # blocks repeat
        self._launched: tuple[int, ...] = ()
        self.host_stream = host_stream or f"{prefix}host"
        self.waits_once: tuple[int, ...] = ()  # what the next kernel waits for besides
        self.last: tuple[int, ...] = ()  # the last activity of the device

    def issue(self, issue: Issue, *, after: Sequence[int] = (), micro_batch: int = 0, share: float = 1.0) -> int:
        """Add *issue*, a *share* of it on the device, not before *after*; return the activity that ends it."""
        place, host = self._place.name, self._place.host
        if place == host:
            duration_s = issue.host_s + share * issue.device_s
            about = Issued(issue, micro_batch, on_host=True)
            number = self._builder.work(
                issue.name, host, duration_s, stream=f"{self._prefix}host", after=after, about=about
            )
        else:
            number = self._builder.work(
                issue.name,
                place,
                share * self._pace * issue.device_s,
                stream=f"{self._prefix}compute",
                after=(*self.launch(issue, micro_batch), *self.waits_once, *after),
                loads=self._loads(issue),
                takes=self._turns,
                gives=self._turns,
                about=Issued(issue, micro_batch, on_host=False),
            )
        self.last = (number,)
        self.waits_once = ()
        return number

    def go_on(self, activities: Mapping[str, int]) -> None:
        """Go on after *activities*, by stream, that stand for what the worker has done besides."""
        for stream in ("host", "compute"):
            number = activities.get(self._prefix + stream)
            if number is not None:
                self.last = (number,)

    def launch(self, issue: Issue, micro_batch: int = 0) -> tuple[int, ...]:
        """Add what the host does for *issue*; return what its kernels, or its exchange, wait for."""
        stream, host = self.host_stream, self._place.host
        if self._captured:
            if not self._launched:
                launch_s = graph_launch_time(self._place.device)
                self._launched = (self._builder.work("launch graph", host, launch_s, stream=stream),)
            return self._launched
        waited = self.last if issue.waits else ()
        about = Issued(issue, micro_batch, on_host=True)
        return (self._builder.work(issue.name, host, issue.host_s, stream=stream, after=waited, about=about),)

    def _loads(self, issue: Issue) -> tuple[tuple[Resource, float], ...]:
        """Return which shares of the device *issue* uses while it runs alone.

        What arithmetic bounds needs all multiprocessors, anything else leaves room on them; bytes use the memory as
        far as it would take to move them at the rate of long streams.
        """
        device, work = self._place.device, issue.work
        if self._node is None or not isinstance(device, Gpu) or not issue.device_s:
            return ()
        known = self._loaded.get(id(work))
        if known is None:
            computing_s = sum(cost.time_s for cost in work.costs if cost.bound == "compute")
            moving_s = sum(cost.bytes for cost in work.costs) / achieved_bandwidth(device)
            shares = (
                (self._node.multiprocessors, computing_s / work.time_s),
                (self._node.memory, min(1.0, moving_s / work.time_s)),
            )
            known = self._loaded[id(work)] = work, shares
        return known[1]
