"""Active flows and works: the resources they share, their rates, and their end times (docs/decisions/engine.md)."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from simulator.engine.kernel import SimulationClock
from simulator.errors import SimulationError
from simulator.network.fairshare import fair_rates
from simulator.plan.plan import Resource
from simulator.records import dataclass, field, lists_by_key

_MOST_KNOWN = 1024  # sets of flows whose rates are kept
_UNLIMITED = float("inf")
_SAME_INSTANT = 1e-12  # relative difference of end times that is due to rounding


class Amount(NamedTuple):
    """Bytes on the wire, or seconds of work (``in_seconds``), with loads per unit of rate and the largest rate."""

    amount: float
    loads: tuple[tuple[Resource, float], ...]
    cap: float
    latency_s: float = 0.0
    in_seconds: bool = False


@dataclass(slots=True, eq=False)
class ActiveFlow:
    """A running part of an activity; ``history``: (seconds since the batch began, rate from then on)."""

    batch: "Batch"
    position: int
    part: Amount
    remaining: float
    rate: float = 0.0
    since_s: float = 0.0
    end_s: float = -1.0
    version: int = 0
    history: tuple[tuple[float, float], ...] = ()


@dataclass(slots=True, eq=False)
class Batch:
    """Flows that start together, then ``done``; ``peers`` share resources; one resumed midway is not ``whole``."""

    start_s: float
    done: Callable[[], None]
    arrival_s: float
    whole: bool = True
    flows: list[ActiveFlow] = field(default_factory=list)
    pending: int = 0
    peers: "dict[Batch, None]" = field(default_factory=dict)

    def forget(self) -> None:
        """Let go of its flows and peers, which refer to it, so that they need not wait for the collector of cycles."""
        self.flows = []
        self.peers = {}


class FlowNetwork:
    """The capacities of a machine and their users; with *may_stall*, a capacity may be zero for a while."""

    def __init__(self, kernel: SimulationClock, capacity: Mapping[Resource, float], *, may_stall: bool) -> None:
        self._kernel = kernel
        self._capacity = capacity
        self._may_stall = may_stall
        self._users: defaultdict[Resource, dict[ActiveFlow, None]] = defaultdict(dict)
        self._ends: list[tuple[float, int, int, ActiveFlow]] = []
        self._pushed = 0
        self._touched: dict[ActiveFlow, None] = {}
        self._freed: dict[Resource, None] = {}
        self._solving = False
        self._armed_s = float("inf")
        # Rates of flows that share, which repeat from round to round, with the flows' amounts.
        self._known: dict[Hashable, tuple[list[float], list[Amount]]] = {}

    def start(self, batch: Batch) -> None:
        """Start (or resume) the flows of *batch* now; without any, it is done when the last has arrived."""
        now = self._kernel.now_s
        if not batch.flows:
            self._kernel.call_at(batch.arrival_s, lambda: batch.done())  # noqa: PLW0108  as in _finish
            return
        batch.pending = len(batch.flows)
        for flow in batch.flows:
            flow.since_s = now
            if flow.remaining > 0:
                self._use(flow)
        for flow in [flow for flow in batch.flows if flow.remaining <= 0]:
            self._finish(flow, now)
        self._request()

    def _use(self, flow: ActiveFlow) -> None:
        users = self._users
        for resource, _ in flow.part.loads:
            users[resource][flow] = None
        self._touched[flow] = None

    def in_use(self, resources: Iterable[Resource]) -> bool:
        """Return whether any active flow loads any of *resources*."""
        return any(map(self._users.get, resources))

    def change(self, resource: Resource) -> None:
        """Recompute the rates on *resource*, whose capacity has changed."""
        self._known.clear()
        self._end_due()  # what ends at this instant is not stopped by a capacity that is gone from now on
        self._freed[resource] = None
        self._request()

    def retune(self, changes: Iterable[tuple[ActiveFlow, Amount]]) -> None:
        """Continue with other amounts, loads and caps; of each amount, the same share is left as before."""
        self._end_due()
        now = self._kernel.now_s
        for flow, part in changes:
            if flow.end_s >= 0 or flow.part == part:
                continue
            self._remove(flow)
            flow.remaining = (flow.remaining - flow.rate * (now - flow.since_s)) * (part.amount / flow.part.amount)
            flow.part, flow.rate, flow.since_s = part, 0.0, now
            self._use(flow)
        self._request()

    def cancel(self, batch: Batch) -> None:
        """End *batch* now, without calling its ``done``."""
        for flow in batch.flows:
            if flow.end_s < 0:
                self._remove(flow)
        self._request()

    def _request(self) -> None:
        if not self._solving:
            self._solving = True
            self._kernel.call_last(self._solve)

    def _remove(self, flow: ActiveFlow) -> None:
        flow.version += 1
        self._touched.pop(flow, None)
        all_users, freed = self._users, self._freed
        for resource, _ in flow.part.loads:
            users = all_users[resource]
            users.pop(flow, None)
            if users:
                freed[resource] = None

    def _finish(self, flow: ActiveFlow, now: float) -> None:
        batch = flow.batch
        flow.end_s = now
        arrival_s = now + flow.part.latency_s
        if arrival_s > batch.arrival_s:  # noqa: PLR1730  a call takes three times as long
            batch.arrival_s = arrival_s
        batch.pending -= 1
        if batch.pending == 0:
            if batch.arrival_s > now:
                self._kernel.call_at(batch.arrival_s, lambda: batch.done())  # noqa: PLW0108  may be cancelled by then
            else:
                batch.done()

    def _solve(self) -> None:
        self._solving = False
        now = self._kernel.now_s
        seen: set[ActiveFlow] = set()
        starts, self._touched = self._touched, {}
        for resource in self._freed:
            starts.update(self._users[resource])
        self._freed.clear()
        for start in starts:
            if start in seen:
                continue
            rate = start.part.cap
            for resource, weight in start.part.loads:
                if len(self._users[resource]) > 1:
                    break
                alone = self._capacity[resource] / weight
                if alone < rate:  # noqa: PLR1730  a call takes three times as long
                    rate = alone
            else:
                if rate != start.rate or not rate:
                    self._run_at(start, rate, now)
                continue
            part = self._connected(start)
            seen.update(part)
            batches = dict.fromkeys([each.batch for each in part])
            for batch in batches if len(batches) > 1 else ():
                batch.peers.update(batches)
            for flow, rate in zip(part, self._rates(part), strict=True):
                if rate != flow.rate or not rate:
                    self._run_at(flow, rate, now)
        self._arm()

    def _connected(self, start: ActiveFlow) -> list[ActiveFlow]:
        """Return *start* and the flows that share resources with it, directly or through others."""
        all_users, part = self._users, {start: None}
        resources: set[Resource] = set()
        stack = [start]
        while stack:
            for resource, _ in stack.pop().part.loads:
                if resource not in resources:
                    resources.add(resource)
                    for user in all_users[resource]:
                        if user not in part:
                            part[user] = None
                            stack.append(user)
        return list(part)

    def _run_at(self, flow: ActiveFlow, rate: float, now: float) -> None:
        if rate <= 0 and not self._may_stall:
            raise SimulationError("a flow has no bandwidth left; a capacity is zero or too small to tell apart")
        flow.remaining -= flow.rate * (now - flow.since_s)
        flow.rate = rate
        flow.since_s = now
        flow.history += ((now - flow.batch.start_s, rate),)
        flow.version += 1
        if rate <= 0:
            return
        self._pushed += 1
        end = now if rate == _UNLIMITED or flow.remaining <= 0.0 else now + flow.remaining / rate
        heapq.heappush(self._ends, (end, self._pushed, flow.version, flow))

    def _rates(self, part: list[ActiveFlow]) -> list[float]:
        first: dict[Batch, int] = {}
        amounts = [flow.part for flow in part]
        numbers = [first.setdefault(flow.batch, len(first)) for flow in part]
        key = (*[(id(each.loads), each.cap, each.in_seconds) for each in amounts], *numbers)
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._found(part), amounts  # whose loads stay where they are
        return self._known[key][0]

    def _found(self, part: list[ActiveFlow]) -> list[float]:
        if len({flow.part.in_seconds for flow in part}) == 1:
            return fair_rates([flow.part.loads for flow in part], [flow.part.cap for flow in part], self._capacity)
        alone = self._alone(part)
        loads = [[(r, w * rate) for r, w in flow.part.loads if rate] for flow, rate in zip(part, alone, strict=True)]
        shares = fair_rates(loads, [1.0] * len(part), self._capacity)
        return [share * rate for share, rate in zip(shares, alone, strict=True)]

    def _alone(self, part: list[ActiveFlow]) -> list[float]:
        """Return the rate of each work alone, and of flows with their batch, as if one flow stood for all."""
        together = lists_by_key(((flow.batch, i if flow.part.in_seconds else -1), flow) for i, flow in enumerate(part))
        rates: dict[ActiveFlow, float] = {}
        for flows in together.values():
            found = fair_rates([flow.part.loads for flow in flows], [flow.part.cap for flow in flows], self._capacity)
            rates.update(zip(flows, found, strict=True))
        return [rates[flow] for flow in part]

    def _arm(self) -> None:
        ends = self._ends
        while ends and ends[0][2] != ends[0][3].version:
            heapq.heappop(ends)
        if ends and ends[0][0] < self._armed_s:
            self._armed_s = ends[0][0]
            self._kernel.call_next(self._armed_s, partial(self._ring, self._armed_s))

    def _ring(self, armed_s: float) -> None:
        if armed_s != self._armed_s:
            return
        self._armed_s = float("inf")
        self._end_due()
        self._arm()

    def _end_due(self) -> None:
        now = self._kernel.now_s
        due = now + abs(now) * _SAME_INSTANT
        ended = False
        ends = self._ends
        while ends and ends[0][0] <= due:
            _, _, version, flow = heapq.heappop(ends)
            if version == flow.version:
                self._remove(flow)
                self._finish(flow, now)
                ended = True
        if ended:
            self._request()
