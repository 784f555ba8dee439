"""Execute a plan on a machine: ``execute``.

Rounds that repeat are folded: once a round has run undisturbed from start to end, the
following ones would run alike, so they pass as one event.  Whoever joins in the meantime
wakes them at the right place of the right round.  Tasks that repeat in step with each other
(the channels of a ring) are folded together.  Without folding the same plan runs round by
round and flow by flow; the results are equal.
"""

from __future__ import annotations

from itertools import pairwise

from simulator.engine.flows import ActiveFlow, Batch, FlowNetwork
from simulator.engine.kernel import Kernel
from simulator.engine.timeline import Span, Timeline
from simulator.errors import SimulationError
from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Plan, Task, Transfer, Work

__all__ = ["execute"]

_SAME = 1e-12  # relative: instants that differ by rounding alone


def execute(machine: Machine, plan: Plan, *, fold: bool = True) -> Timeline:
    """Return when each task of *plan* happens on *machine*.

    Parameters
    ----------
    machine, plan
        The plan's routes must be routes over this machine.
    fold : bool
        Pass repeated rounds as one event, and equal flows as one.

    Raises
    ------
    SimulationError
        Where a task can never start, or a flow has no bandwidth.

    """
    return _Executor(machine, plan, fold=fold).run()


class _Run:
    """A transfer under way: which round, and its flows."""

    __slots__ = ("batch", "first_ends_s", "first_round_s", "flows", "group", "rounds_left", "start_s", "task")

    def __init__(self, task: Transfer, flows: list[Flow], start_s: float) -> None:
        self.task = task
        self.flows = flows
        self.rounds_left = task.repeat
        self.start_s = start_s
        self.batch: Batch | None = None
        self.group: _Sleepers | None = None
        self.first_round_s = -1.0
        self.first_ends_s: tuple[float, ...] = ()


class _Sleepers:
    """Transfers whose next ``rounds`` rounds pass as one event, each taking ``round_s``."""

    __slots__ = ("base_s", "resources", "round_s", "rounds", "runs")

    def __init__(self, runs: list[_Run], base_s: float, round_s: float, rounds: int) -> None:
        self.runs = runs
        self.base_s = base_s
        self.round_s = round_s
        self.rounds = rounds
        self.resources = {r for run in runs for flow in run.flows for r, _ in flow.route.loads}


class _Executor:
    def __init__(self, machine: Machine, plan: Plan, *, fold: bool) -> None:
        self.machine = machine
        self.plan = plan
        self.fold = fold
        self.kernel = Kernel()
        self.network = FlowNetwork(self.kernel, machine.capacity_Bps)
        self.spans: list[Span | None] = [None] * len(plan.tasks)
        self.waiting: list[int] = [0] * len(plan.tasks)
        self.followers: list[list[int]] = [[] for _ in plan.tasks]
        self.at_boundary: list[_Run] = []
        self.asleep: dict[int, _Sleepers] = {}  # by resource

    def run(self) -> Timeline:
        last_on: dict[str, int] = {}
        for task in self.plan.tasks:
            needs = set(task.after)
            if task.stream in last_on:
                needs.add(last_on[task.stream])
            if any(not 0 <= n < task.id for n in needs):
                raise SimulationError(f"task {task.id} ({task.label}) waits for a task that does not stand before it")
            last_on[task.stream] = task.id
            self.waiting[task.id] = len(needs)
            for number in needs:
                self.followers[number].append(task.id)
        for task in self.plan.tasks:
            if self.waiting[task.id] == 0:
                self._start(task)
        self.kernel.run()
        spans = [span for span in self.spans if span is not None]
        if len(spans) != len(self.plan.tasks):
            raise SimulationError("some tasks never ended")
        links, resources = self._bytes()
        end_s = max((span.end_s for span in spans), default=0.0)
        return Timeline(self.machine, self.plan, tuple(spans), end_s, links, resources, self.kernel.events)

    # -- tasks ---------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        now = self.kernel.now_s
        if isinstance(task, Work):
            self.kernel.call_at(now + task.duration_s, lambda: self._end(task, Span(task.id, now, self.kernel.now_s)))
            return
        flows = list(task.flows)
        if not self.fold:
            flows = [_single(flow) for flow in flows for _ in range(flow.count)]
        self._round(_Run(task, flows, now))

    def _end(self, task: Task, span: Span) -> None:
        self.spans[task.id] = span
        for number in self.followers[task.id]:
            self.waiting[number] -= 1
            if self.waiting[number] == 0:
                self._start(self.plan.tasks[number])

    # -- rounds --------------------------------------------------------------------

    def _round(self, run: _Run) -> None:
        """Start the next round of *run*."""
        now = self.kernel.now_s
        batch = Batch(now, lambda: self._boundary(run))
        for position, flow in enumerate(run.flows):
            loads = [(r, share * flow.count) for r, share in flow.route.loads]
            latency = flow.route.latency_s + flow.latency_s
            batch.flows.append(ActiveFlow(batch, position, flow.wire_bytes, loads, flow.cap_Bps, latency))
        batch.pending = len(batch.flows)
        run.batch = batch
        if not batch.flows:
            self.kernel.call_at(now, batch.done)
            return
        self._wake_who_shares(batch)
        self.network.start(batch)

    def _boundary(self, run: _Run) -> None:
        """A round of *run* has ended; what follows is decided when all of this instant is known."""
        now = self.kernel.now_s
        run.rounds_left -= 1
        batch = run.batch
        if run.first_round_s < 0 and batch is not None:
            run.first_round_s = now - run.start_s
            run.first_ends_s = tuple(f.end_s + f.latency_s - run.start_s for f in batch.flows)
        self._decide_later([run])

    def _decide_later(self, runs: list[_Run]) -> None:
        if not self.at_boundary:
            self.kernel.call_last(self._settle)
        self.at_boundary.extend(runs)

    def _settle(self) -> None:
        runs, self.at_boundary = self.at_boundary, []
        ready = [run for run in runs if run.rounds_left > 0]
        for run in runs:
            if run.rounds_left == 0:
                span = Span(run.task.id, run.start_s, self.kernel.now_s, run.first_round_s, run.first_ends_s)
                self._end(run.task, span)
        if not self.fold:
            for run in ready:
                self._round(run)
            return
        here = {run.batch: run for run in ready if run.batch is not None}
        groups: dict[int, list[_Run]] = {}
        for run in ready:
            group = None if id(run) in groups else self._in_step(run, here)
            for member in group or ():
                groups[id(member)] = group or []
        for run in ready:
            if id(run) not in groups:
                self._round(run)
        for run in ready:  # only now is it known who else moves bytes from this instant on
            group = groups.pop(id(run), None)
            if group is None or run.group is not None:
                continue
            for member in group:
                groups.pop(id(member), None)
            self._sleep(group)

    def _in_step(self, run: _Run, here: dict[Batch, _Run]) -> list[_Run] | None:
        """Return all runs that shared with *run* in its last round, if they are in step with it."""
        batch = run.batch
        if batch is None or not batch.whole:
            return None
        now = self.kernel.now_s
        group = {id(run): run}
        stack = [batch]
        while stack:
            for peer in stack.pop().peers:
                other = here.get(peer)
                if other is None or not peer.whole or abs(peer.start_s - batch.start_s) > _SAME * now:
                    return None
                if id(other) not in group:
                    group[id(other)] = other
                    stack.append(peer)
        return list(group.values())

    # -- folding -------------------------------------------------------------------

    def _sleep(self, runs: list[_Run]) -> None:
        """Let the rounds that *runs* have in common pass as one event."""
        now = self.kernel.now_s
        batch = runs[0].batch
        assert batch is not None
        round_s = now - batch.start_s
        rounds = min(run.rounds_left for run in runs)
        group = _Sleepers(runs, now, round_s, rounds)
        if any(r in self.asleep for r in group.resources) or self.network.in_use(group.resources):
            for run in runs:
                self._round(run)
            return
        for run in runs:
            run.group = group
        self.asleep.update(dict.fromkeys(group.resources, group))
        self.kernel.call_at(now + rounds * round_s, lambda: self._passed(group))

    def _rise(self, group: _Sleepers, rounds: int) -> None:
        for run in group.runs:
            run.group = None
            run.rounds_left -= rounds
        for resource in group.resources:
            del self.asleep[resource]
        group.rounds = -1

    def _passed(self, group: _Sleepers) -> None:
        if group.rounds < 0:  # woken before
            return
        self._rise(group, group.rounds)
        for run in group.runs:
            run.batch = None  # the last round lies far back: no measure of the next one
        self._decide_later(group.runs)

    def _wake_who_shares(self, batch: Batch) -> None:
        if not self.asleep:
            return
        groups = {id(g): g for flow in batch.flows for r, _ in flow.loads if (g := self.asleep.get(r)) is not None}
        for group in groups.values():
            self._wake(group)

    def _wake(self, group: _Sleepers) -> None:
        """Set the sleepers where they are by now: some rounds on, somewhere within a round."""
        elapsed = self.kernel.now_s - group.base_s
        done = group.rounds
        if group.round_s > 0:
            done = min(int(elapsed / group.round_s * (1 + _SAME)), group.rounds)
        if done == group.rounds:
            self._passed(group)
            return
        self._rise(group, done)
        for run in group.runs:
            self._resume(run, max(0.0, elapsed - done * group.round_s))

    def _resume(self, run: _Run, into_s: float) -> None:
        """Start a round of *run* as if it had begun *into_s* ago, by the record of the last one."""
        now = self.kernel.now_s
        model = run.batch
        assert model is not None
        batch = Batch(now - into_s, lambda: self._boundary(run))
        batch.arrival_s = now
        batch.whole = False
        for flow, old in zip(run.flows, model.flows, strict=True):
            new = ActiveFlow(batch, old.position, flow.wire_bytes, old.loads, old.cap_Bps, old.latency_s)
            end_s = old.end_s - model.start_s
            if end_s <= into_s:
                new.end_s = batch.start_s + end_s
                batch.arrival_s = max(batch.arrival_s, new.end_s + new.latency_s)
                continue
            moved = 0.0
            steps = [*old.history, (into_s, 0.0)]
            for (begin, rate), (finish, _) in pairwise(steps):
                moved += rate * max(0.0, min(finish, into_s) - begin)
            new.remaining = max(0.0, flow.wire_bytes - moved)
            batch.flows.append(new)
        batch.pending = len(batch.flows)
        run.batch = batch
        if batch.pending == 0:
            self.kernel.call_at(batch.arrival_s, batch.done)
        else:
            self.network.start(batch)

    # -- what was moved ------------------------------------------------------------

    def _bytes(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        links = [0.0] * len(self.machine.links)
        resources = [0.0] * len(self.machine.capacity_Bps)
        for task in self.plan.tasks:
            if isinstance(task, Transfer):
                for flow in task.flows:
                    moved = flow.wire_bytes * flow.count * task.repeat
                    for link, share in flow.route.links:
                        links[link] += moved * share
                    for resource, share in flow.route.loads:
                        resources[resource] += moved * share
        return tuple(links), tuple(resources)


def _single(flow: Flow) -> Flow:
    if flow.count == 1:
        return flow
    return Flow(flow.route, flow.bytes, 1, flow.overhead, flow.cap_Bps, flow.latency_s)
