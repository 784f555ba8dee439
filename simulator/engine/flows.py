"""Flows under way: who shares what with whom, at which rate, until when.

Rates are recomputed when a flow starts or ends, only for the flows that are connected to it
by shared resources.  All changes of one instant are taken together.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from simulator.engine.kernel import Kernel
from simulator.errors import SimulationError
from simulator.network.fairshare import fair_rates

__all__ = ["ActiveFlow", "Batch", "FlowNetwork"]

_SAME_INSTANT = 1e-12  # relative: finishing times that differ by rounding alone


class ActiveFlow:
    """A flow that moves bytes now.

    ``history`` lists (time since the batch began, rate from then on), so that the state at
    any moment of the batch can be told afterwards.
    """

    __slots__ = (
        "batch",
        "cap_Bps",
        "end_s",
        "history",
        "latency_s",
        "loads",
        "position",
        "rate",
        "remaining",
        "since_s",
        "version",
    )

    def __init__(
        self,
        batch: Batch,
        position: int,
        wire_bytes: float,
        loads: Sequence[tuple[int, float]],
        cap_Bps: float,
        latency_s: float,
    ) -> None:
        self.batch = batch
        self.position = position
        self.remaining = wire_bytes
        self.loads = loads
        self.cap_Bps = cap_Bps
        self.latency_s = latency_s
        self.rate = 0.0
        self.since_s = 0.0
        self.end_s = -1.0
        self.version = 0
        self.history: list[tuple[float, float]] = []


class Batch:
    """Flows that start together; ``done`` is called when the last byte of all has arrived.

    ``peers`` are the batches whose flows shared resources with these at some moment.  A batch
    that takes up a round in its middle is not ``whole``.
    """

    __slots__ = ("arrival_s", "done", "flows", "peers", "pending", "start_s", "whole")

    def __init__(self, start_s: float, done: Callable[[], None]) -> None:
        self.start_s = start_s
        self.done = done
        self.whole = True
        self.flows: list[ActiveFlow] = []
        self.pending = 0
        self.arrival_s = start_s
        self.peers: dict[Batch, None] = {}


class FlowNetwork:
    """The capacities of a machine and the flows that share them."""

    def __init__(self, kernel: Kernel, capacity_Bps: Sequence[float]) -> None:
        self._kernel = kernel
        self._capacity = capacity_Bps
        self._users: dict[int, dict[ActiveFlow, None]] = {}
        self._ends: list[tuple[float, int, int, ActiveFlow]] = []
        self._pushed = 0
        self._touched: dict[ActiveFlow, None] = {}
        self._freed: dict[int, None] = {}
        self._solving = False
        self._armed_s = float("inf")

    def start(self, batch: Batch) -> None:
        """Let the flows of *batch* begin (or go on) now."""
        now = self._kernel.now_s
        finished = []
        for flow in batch.flows:
            flow.since_s = now
            if flow.remaining <= 0:
                finished.append(flow)
                continue
            for resource, _ in flow.loads:
                self._users.setdefault(resource, {})[flow] = None
            self._touched[flow] = None
        for flow in finished:
            self._finish(flow, now)
        self._request()

    def in_use(self, resources: Iterable[int]) -> bool:
        """Whether a flow moves bytes over any of *resources*."""
        return any(self._users.get(resource) for resource in resources)

    def _request(self) -> None:
        if not self._solving:
            self._solving = True
            self._kernel.call_last(self._solve)

    def _remove(self, flow: ActiveFlow) -> None:
        flow.version += 1
        self._touched.pop(flow, None)
        for resource, _ in flow.loads:
            users = self._users[resource]
            users.pop(flow, None)
            if users:
                self._freed[resource] = None

    def _finish(self, flow: ActiveFlow, now: float) -> None:
        batch = flow.batch
        flow.remaining = 0.0
        flow.end_s = now
        batch.arrival_s = max(batch.arrival_s, now + flow.latency_s)
        batch.pending -= 1
        if batch.pending == 0:
            self._kernel.call_at(batch.arrival_s, batch.done)

    def _solve(self) -> None:
        """Share anew among all flows connected to what changed at this instant."""
        self._solving = False
        now = self._kernel.now_s
        seen: set[ActiveFlow] = set()
        starts = list(self._touched)
        for resource in self._freed:
            starts.extend(self._users.get(resource, ()))
        self._touched.clear()
        self._freed.clear()
        for start in starts:
            if start in seen:
                continue
            part = self._connected(start)
            seen.update(part)
            self._share(part, now)
        self._arm()

    def _connected(self, start: ActiveFlow) -> list[ActiveFlow]:
        part = {start: None}
        resources: set[int] = set()
        stack = [start]
        while stack:
            for resource, _ in stack.pop().loads:
                if resource not in resources:
                    resources.add(resource)
                    for user in self._users[resource]:
                        if user not in part:
                            part[user] = None
                            stack.append(user)
        return list(part)

    def _share(self, part: list[ActiveFlow], now: float) -> None:
        rates = fair_rates([f.loads for f in part], [f.cap_Bps for f in part], self._capacity)
        first = part[0].batch
        if any(flow.batch is not first for flow in part):
            batches = dict.fromkeys(flow.batch for flow in part)
            for batch in batches:
                batch.peers.update(batches)
        for flow, rate in zip(part, rates, strict=True):
            if rate == flow.rate:
                continue
            if rate <= 0:
                raise SimulationError("a flow has no bandwidth left; a capacity is zero or too small to tell apart")
            flow.remaining -= flow.rate * (now - flow.since_s)
            flow.rate = rate
            flow.since_s = now
            flow.history.append((now - flow.batch.start_s, rate))
            flow.version += 1
            self._pushed += 1
            end = now if rate == float("inf") else now + max(0.0, flow.remaining) / rate
            heapq.heappush(self._ends, (end, self._pushed, flow.version, flow))

    def _arm(self) -> None:
        while self._ends and self._ends[0][2] != self._ends[0][3].version:
            heapq.heappop(self._ends)
        if self._ends and self._ends[0][0] < self._armed_s:
            self._armed_s = self._ends[0][0]
            self._kernel.call_at(self._armed_s, self._ring)

    def _ring(self) -> None:
        """Finish all flows that are due."""
        self._armed_s = float("inf")
        now = self._kernel.now_s
        due = now + abs(now) * _SAME_INSTANT
        ended = False
        while self._ends and self._ends[0][0] <= due:
            _, _, version, flow = heapq.heappop(self._ends)
            if version == flow.version:
                self._remove(flow)
                self._finish(flow, now)
                ended = True
        if ended:
            self._request()
        self._arm()
