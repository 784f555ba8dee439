"""Running activities, round by round, repeated ones folded (docs/decisions/engine.md): :class:`Rounds`."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter

from simulator.engine.flows import ActiveFlow, Amount, Batch, FlowNetwork
from simulator.engine.kernel import SimulationClock
from simulator.engine.timeline import Span
from simulator.plan.plan import Activity, Resource
from simulator.records import dataclass, named_tuple

_Ended = Callable[[Activity, Span], None]
_LOADS = attrgetter("loads")
_SAME = 1e-12  # relative difference of instants that is due to rounding


@dataclass(slots=True, eq=False)
class RunningActivity:
    """A running activity, its round and parts; ``stands_for``: the amount that represents each original part."""

    task: Activity
    amounts: Sequence[Amount]
    stands_for: Sequence[int]
    rounds_left: int
    start_s: float
    batch: Batch | None = None
    group: "_Sleepers | None" = None
    first_round_s: float = -1.0
    first_ends_s: tuple[float, ...] = ()


@dataclass(slots=True, eq=False)
class _Sleepers:
    """Runs whose next ``rounds`` rounds, of ``round_s`` seconds each, pass as one event."""

    runs: list[RunningActivity]
    base_s: float
    round_s: float
    rounds: int
    resources: set[Resource]


class Rounds:
    """Runs activities on a machine's capacities; calls *ended* with each activity and its span."""

    def __init__(
        self, kernel: SimulationClock, capacity: Mapping[Resource, float], ended: _Ended, *, fold: bool, may_stall: bool
    ) -> None:
        self.kernel = kernel
        self.network = FlowNetwork(kernel, capacity, may_stall=may_stall)
        self.ended = ended
        self.fold = fold
        self.at_boundary: list[RunningActivity] = []
        self.asleep: dict[Resource, _Sleepers] = {}
        self.changed_s: dict[Resource, float] = {}

    def start(self, task: Activity, amounts: Sequence[Amount]) -> RunningActivity:
        """Start *task* with *amounts* in each round; with folding, equal amounts without loads are merged."""
        stands_for: Sequence[int] = range(len(amounts))
        if self.fold and not all(map(_LOADS, amounts)):
            keys = [number if amount.loads else amount for number, amount in enumerate(amounts)]
            distinct = dict(zip(keys, amounts, strict=True))
            place = {key: i for i, key in enumerate(distinct)}
            amounts, stands_for = list(distinct.values()), [place[key] for key in keys]
        run = RunningActivity(task, amounts, stands_for, task.repeat, self.kernel.now_s)
        self._round(run)
        return run

    def change(self, resource: Resource) -> None:
        """Continue with the changed capacity of *resource*."""
        if resource in self.asleep:
            self._wake(self.asleep[resource])
        self.changed_s[resource] = self.kernel.now_s
        self.network.change(resource)

    def retune(self, run: RunningActivity, amounts: Sequence[Amount]) -> None:
        """Continue with *amounts* in place of those given to :meth:`start`; what has passed of each keeps its share."""
        told = dict(zip(run.stands_for, amounts, strict=True))
        if all(amount == told[place] for place, amount in enumerate(run.amounts)):
            return
        if run.group is not None:
            self._wake(run.group)
        run.amounts = [told[place] for place in range(len(run.amounts))]
        if run.batch is not None:
            run.batch.whole = False  # a round that changes within does not predict the next one
            self.network.retune((flow, told[flow.position]) for flow in run.batch.flows)

    def cancel(self, run: RunningActivity) -> None:
        """End *run* now."""
        if run.group is not None:
            self._wake(run.group)
        self.at_boundary = [other for other in self.at_boundary if other is not run]
        if run.batch is not None:
            run.batch.done = lambda: None
            self.network.cancel(run.batch)
        self._end(run)

    def _round(self, run: RunningActivity) -> None:
        now = self.kernel.now_s
        batch = Batch(now, lambda: self._boundary(run), now)
        batch.flows = [ActiveFlow(batch, position, part, part.amount) for position, part in enumerate(run.amounts)]
        if run.batch is not None:
            run.batch.forget()
        run.batch = batch
        if self.asleep:
            loaded = (self.asleep.get(r) for flow in batch.flows for r, _ in flow.part.loads)
            for group in {id(group): group for group in loaded if group is not None}.values():
                self._wake(group)
        self.network.start(batch)

    def _boundary(self, run: RunningActivity) -> None:
        now = self.kernel.now_s
        run.rounds_left -= 1
        batch = run.batch
        if run.first_round_s < 0 and batch is not None:
            run.first_round_s = now - run.start_s
            ends_s = [f.end_s + f.part.latency_s - run.start_s for f in batch.flows]
            run.first_ends_s = tuple(
                ends_s if len(ends_s) == len(run.stands_for) else map(ends_s.__getitem__, run.stands_for)
            )
        if run.rounds_left == 0 and run.start_s < now:  # nothing to decide
            self._end(run)
            return
        self._decide_later([run])

    def _end(self, run: RunningActivity) -> None:
        fields = (run.task.id, run.start_s, self.kernel.now_s, run.first_round_s, run.first_ends_s)
        span = named_tuple(Span, fields)
        if run.batch is not None:
            run.batch.forget()
            run.batch = None
        self.ended(run.task, span)

    def _decide_later(self, runs: list[RunningActivity]) -> None:
        if not self.at_boundary:
            self.kernel.call_last(self._settle)
        self.at_boundary.extend(runs)

    def _settle(self) -> None:
        runs, self.at_boundary = self.at_boundary, []
        ready = [run for run in runs if run.rounds_left > 0]
        for run in runs:
            if run.rounds_left == 0:
                self._end(run)
        if not self.fold:
            for run in ready:
                self._round(run)
            return
        here = {run.batch: run for run in ready if run.batch is not None}
        groups: dict[int, list[RunningActivity]] = {}
        for run in ready:
            group = None if id(run) in groups else self._in_step(run, here)
            for member in group or ():
                groups[id(member)] = group or []
        for run in ready:
            if id(run) not in groups:
                self._round(run)
        for run in ready:  # only now are all flows that start at this instant known
            group = groups.pop(id(run), None)
            if group is None or run.group is not None:
                continue
            for member in group:
                groups.pop(id(member), None)
            self._sleep(group)

    def _in_step(self, run: RunningActivity, here: dict[Batch, RunningActivity]) -> list[RunningActivity] | None:
        """Return all runs that shared resources with *run* in its last round if they are in step with it, else None."""
        batch = run.batch
        if batch is None or not self._predicts(run, batch):
            return None
        now = self.kernel.now_s
        group = {id(run): run}
        stack = [batch]
        while stack:
            for peer in stack.pop().peers:
                other = here.get(peer)
                if other is None or abs(peer.start_s - batch.start_s) > _SAME * now:
                    return None
                if not self._predicts(other, peer):
                    return None
                if id(other) not in group:
                    group[id(other)] = other
                    stack.append(peer)
        return list(group.values())

    def _predicts(self, run: RunningActivity, batch: Batch) -> bool:
        """Return whether *batch*, *run*'s last round, ran whole with the capacities that now hold."""
        if not self.changed_s:
            return batch.whole
        used = {r for amount in run.amounts for r, _ in amount.loads}
        return batch.whole and all(self.changed_s.get(r, -1.0) <= batch.start_s for r in used)

    def _sleep(self, runs: list[RunningActivity]) -> None:
        """Let the common rounds of *runs* pass as one event, unless other flows use their resources."""
        now = self.kernel.now_s
        batch = runs[0].batch
        assert batch is not None
        round_s = now - batch.start_s
        rounds = min(run.rounds_left for run in runs)
        resources = {r for run in runs for amount in run.amounts for r, _ in amount.loads}
        group = _Sleepers(runs, now, round_s, rounds, resources)
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
        if group.rounds < 0:  # already woken
            return
        self._rise(group, group.rounds)
        for run in group.runs:
            if run.batch is not None:  # the last executed round is too old to predict the next one
                run.batch.forget()
                run.batch = None
        self._decide_later(group.runs)

    def _wake(self, group: _Sleepers) -> None:
        """Set the sleeping runs to the round, and the position within it, that they have reached by now."""
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

    def _resume(self, run: RunningActivity, into_s: float) -> None:
        """Start a round of *run* as if it had begun *into_s* seconds ago, following the record of its last round."""
        now = self.kernel.now_s
        model = run.batch
        assert model is not None
        batch = Batch(now - into_s, lambda: self._boundary(run), now, whole=False)
        for part, old in zip(run.amounts, model.flows, strict=True):
            new = ActiveFlow(batch, old.position, part, part.amount)
            end_s = old.end_s - model.start_s
            if end_s <= into_s + _SAME * now:
                new.end_s = batch.start_s + end_s
                batch.arrival_s = max(batch.arrival_s, new.end_s + part.latency_s)
                continue
            moved = 0.0
            for (begin, rate), (finish, _) in pairwise((*old.history, (into_s, 0.0))):
                moved += rate * max(0.0, min(finish, into_s) - begin)
            new.remaining = max(0.0, part.amount - moved)
            batch.flows.append(new)
        model.forget()
        run.batch = batch
        self.network.start(batch)
