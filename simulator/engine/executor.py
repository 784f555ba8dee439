"""Execution of a plan on a machine: when an activity may start (docs/decisions/engine.md)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

from simulator.engine import timeline as t
from simulator.engine.flows import Amount
from simulator.engine.kernel import Queue, SimulationClock
from simulator.engine.rounds import Rounds, RunningActivity
from simulator.engine.timeline import Capacities, LinkBytes, Span, Timeline
from simulator.errors import SimulationError
from simulator.network.machine import Machine
from simulator.plan.flow import Alike, added
from simulator.plan.plan import Activity, Flow, Fragment, Part, Perturbation, Plan, Resource, Work, crossed
from simulator.records import named_tuple, replace, sums_by_key


def execute(machine: Machine, plan: Plan, *, fold: bool = True) -> Timeline:
    """Return the timeline of *plan*; *fold*: repeated rounds, and equal flows, are one.  Raises SimulationError."""
    if plan.moves and any(map(t.is_alike, t.all_parts(plan))) and not (fold and t.stands_for_all(machine, plan)):
        plan = replace(plan, tasks=tuple(task.apart() for task in plan.tasks))
    return _Executor(machine, plan, fold=fold).run()


Slowed = tuple[tuple[str, float], ...]  # names of resources, with factors on their capacities


def alone(machine: Machine, fragment: Fragment, *, fold: bool = True, slowed: Slowed = ()) -> Timeline:
    """Return the timeline of *fragment* when it has *machine*, with resources *slowed*, to itself; cached."""
    return _alone(machine, fragment, fold, slowed)


@lru_cache(maxsize=4096)
def _alone(machine: Machine, fragment: Fragment, fold: bool, slowed: Slowed) -> Timeline:
    plan = fragment.plan
    if slowed:
        plan = replace(plan, perturbations=tuple(Perturbation(0.0, name, factor) for name, factor in slowed))
    return execute(machine, plan, fold=fold)


Loads = tuple[tuple[Resource, float], ...]

_FEW_STREAMS = 4  # with more streams, searching for undisturbed activities does not pay


class _Executor:
    def __init__(self, machine: Machine, plan: Plan, *, fold: bool) -> None:
        self.machine = machine
        self.plan = plan
        self.fold = fold
        self.kernel = SimulationClock()
        self.capacity = Capacities(machine)
        perturbed = bool(plan.perturbations)
        self.rounds = Rounds(self.kernel, self.capacity, self._end, fold=fold, may_stall=perturbed)
        self.queues: dict[str, Queue] = {name: Queue(self.kernel, slots) for name, slots in plan.queues.items()}
        self.spans: list[Span | None] = [None] * len(plan.tasks)
        self.waiting: list[int] = [0] * len(plan.tasks)
        self.not_before_s: list[float] = [0.0] * len(plan.tasks)  # of activities after ones with known ends
        self.followers: defaultdict[int, list[int]] = defaultdict(list)  # of activities whose end is not known at once
        self.needs = plan.of_order.once("needs", lambda: t.needs_of(plan))
        self.met, self.undisturbed = _met(machine, plan, self.needs, fold)
        self.roomy = t.roomy(machine, plan) if fold else set()
        self.pace: dict[str, float] = {p.target: 1.0 for p in plan.perturbations if p.target}
        self.fragments: dict[Fragment, tuple[float, Loads]] = {}
        self.amounts: dict[int, Sequence[Amount]] = {}  # of parts that nothing changes, by identity; some repeat
        self.works: dict[int, Loads] = {}  # the loads of works, by the identity of their shares, which repeat
        self.cancelled: set[int] = set()
        self.running: dict[int, RunningActivity] = {}  # filled only if there are perturbations, which may change them
        self.is_perturbed = perturbed
        self.lasting_s = [self._seconds(task) for task in plan.tasks]

    def run(self) -> Timeline:
        tasks, ended = self.plan.tasks, self.spans
        for task, needs in zip(tasks, self.needs, strict=True):
            begin_s, waiting = 0.0, 0
            for number in needs:
                before = ended[number]
                if before is None:
                    waiting += 1
                    self.followers[number].append(task.id)
                elif before.end_s > begin_s:
                    begin_s = before.end_s
            self.waiting[task.id], self.not_before_s[task.id] = waiting, begin_s
            if not waiting:
                ended[task.id] = self._passing(task)
        changes: defaultdict[float, list[Perturbation]] = defaultdict(list)
        for perturbation in self.plan.perturbations:
            changes[perturbation.at_s].append(perturbation)
        for at_s, together in changes.items():
            self.kernel.call_at(at_s, partial(self._perturb, together))
        for task in tasks:
            if self.waiting[task.id] == 0 and ended[task.id] is None:
                self._begin(task)
        self.kernel.run()
        del self.rounds  # which refers to this executor
        spans = [span for span in ended if span is not None]
        if len(spans) != len(tasks):
            stuck = next(task for task, span in zip(tasks, ended, strict=True) if span is None)
            raise SimulationError(f"task {stuck.id} ({stuck.label}) never ended: nothing moves it on")
        end_s = max([span.end_s for span in spans], default=0.0)
        moved = partial(_moved, self.machine, self.plan, self.fold)
        return Timeline(self.machine, self.plan, tuple(spans), end_s, self.kernel.events, moved)

    def _passing(self, task: Activity) -> Span | None:
        """Return *task*'s span if its predecessors' ends are known and nothing can slow it; it costs no events."""
        number, duration_s = task.id, self.lasting_s[task.id]
        if duration_s is None or task.takes or task.gives:
            return None
        begin_s = self.not_before_s[number]
        return named_tuple(Span, (number, begin_s, begin_s + duration_s, 0.0, ()))

    def _seconds(self, task: Activity) -> float | None:
        if self.is_perturbed or len(task.parts) != 1 or task.repeat != 1:
            return None
        (part,) = task.parts
        if type(part) is Work and not part.loads:
            return part.duration_s
        if isinstance(part, Flow):
            return None
        duration_s, loads = self._held(task, part)
        if not loads:
            return duration_s
        fields = (duration_s, loads, 1.0, 0.0, True)  # at most a second a second, no latency, in seconds
        self.amounts[id(task.parts)] = (named_tuple(Amount, fields),)
        return None

    def _begin(self, task: Activity) -> None:
        if self.not_before_s[task.id] > self.kernel.now_s:
            self.kernel.call_at(self.not_before_s[task.id], lambda: self._ready(task))
        else:
            self._ready(task)

    def _ready(self, task: Activity, taken: int = 0) -> None:
        if taken < len(task.takes):
            self.queues[task.takes[taken]].take(lambda: self._ready(task, taken + 1))
            return
        if task.id in self.cancelled:
            now = self.kernel.now_s
            self._end(task, Span(task.id, now, now))
            return
        seconds = self.lasting_s[task.id]
        if seconds is not None:
            start_s = self.kernel.now_s
            self.kernel.call_at(start_s + seconds, lambda: self._end(task, Span(task.id, start_s, self.kernel.now_s)))
            return
        run = self.rounds.start(task, self._amounts_of(task))
        if self.is_perturbed:
            self.running[task.id] = run

    def _amounts_of(self, task: Activity) -> Sequence[Amount]:
        known = self.amounts.get(id(task.parts))
        if known is None:
            known = [amount for part in task.parts for amount in self._amounts(task, part)]
            if not self.is_perturbed and all(isinstance(part, Flow) for part in task.parts):
                self.amounts[id(task.parts)] = known
        return known

    def _amounts(self, task: Activity, part: Part) -> Iterable[Amount]:
        if isinstance(part, Flow):
            latency_s, cap_Bps = part.route.latency_s + part.latency_s, self.capacity.cap_Bps(part)
            if self.fold:
                # Where it represents others, all machines have one role, or all resources are roomy.
                used = part.route.loads
                if part.at is not None:  # the first role's, per unit of rate, by it and those that it represents
                    firsts = ((*load.keys[0], load.share) for load in crossed(part, of_links=False))
                    used = tuple(sums_by_key((key, times * share) for key, times, share in firsts).items())
                shared = used
                if self.roomy or part.count != 1:
                    shared = tuple([(r, w * part.count) for r, w in used if r not in self.roomy])
                return (Amount(part.wire_bytes, shared, cap_Bps, latency_s),)
            return (Amount(part.wire_bytes, part.route.loads, cap_Bps, latency_s),) * part.count
        duration_s, loads = self._held(task, part)
        return (Amount(duration_s, loads, self.pace.get(task.place, 1.0), in_seconds=True),)

    def _held(self, task: Activity, part: Work | Fragment) -> tuple[float, Loads]:
        """Return (seconds of *part* of *task* alone, its loads on what others use meanwhile)."""
        if isinstance(part, Fragment):
            if part not in self.fragments:
                self.fragments[part] = self._averaged(part)
            duration_s, loads = self.fragments[part]
        else:
            duration_s, shares = part
            if id(shares) not in self.works:
                self.works[id(shares)] = self._taken(shares)
            loads = self.works[id(shares)]
        return duration_s, () if task.id in self.undisturbed else loads

    def _taken(self, shares: Iterable[tuple[Resource, float]]) -> Loads:
        return tuple([(r, share * self.capacity.whole(r)) for r, share in shares if share > 0.0 and r in self.met])

    def _averaged(self, fragment: Fragment) -> tuple[float, Loads]:
        """Return (seconds that *fragment* takes alone at present, its average load on each resource)."""
        changed = self.capacity.factors()
        used = _loaded(self.machine, fragment, self.fold) if changed else ()
        slowed = tuple([(self.machine.resource_names[r], factor) for r, factor in changed.items() if r in used])
        timeline = alone(self.machine, fragment, fold=self.fold, slowed=slowed)
        shares = dict(fragment.loads)
        if timeline.end_s > 0:
            for resource in sorted(number for number in self.met if isinstance(number, int)):
                n_bytes = timeline.resource_bytes[resource]
                if n_bytes:
                    share = n_bytes / self.machine.capacity_Bps[resource] / timeline.end_s
                    shares[resource] = shares.get(resource, 0.0) + share
            for name, used_s in fragment.used_s:
                shares[name] = shares.get(name, 0.0) + used_s / timeline.end_s
        most = self.capacity.factor
        return timeline.end_s, self._taken((resource, min(most(resource), share)) for resource, share in shares.items())

    def _end(self, task: Activity, span: Span) -> None:
        """Record that *task* has ended, and begin its followers; those that nothing can slow end at a known time."""
        ended, waiting, not_before_s = [(task, span)], self.waiting, self.not_before_s
        for task, span in ended:  # noqa: PLR1704  it grows
            self.spans[task.id] = span
            if self.is_perturbed:
                self.running.pop(task.id, None)
            for name in task.gives:
                self.queues[name].give()
            for number in self.followers.get(task.id, ()):
                if span.end_s > not_before_s[number]:  # noqa: PLR1730  a call takes three times as long
                    not_before_s[number] = span.end_s
                waiting[number] -= 1
                if waiting[number] == 0:
                    follower = self.plan.tasks[number]
                    passing = self._passing(follower)
                    if passing is None:
                        self._begin(follower)
                    else:
                        ended.append((follower, passing))

    def _perturb(self, together: Sequence[Perturbation]) -> None:
        for what in together:
            if what.cancels is not None and self.spans[what.cancels] is None:
                self.cancelled.add(what.cancels)
                if what.cancels in self.running:
                    self.rounds.cancel(self.running[what.cancels])
            if what.target:
                self.pace[what.target] = what.factor
                for resource in self.capacity.change(what.target, what.factor):
                    self.rounds.change(resource)
        self.fragments.clear()
        for run in list(self.running.values()):
            self.rounds.retune(run, self._amounts_of(run.task))


def _moved(machine: Machine, plan: Plan, fold: bool, of_links: bool) -> LinkBytes:
    totals: dict[int, float] = {}
    rounds: dict[Fragment, int] = {}
    sites: Alike | None = None
    known = totals.get
    for task in plan.tasks:
        for part in task.parts:
            if isinstance(part, Work):
                continue
            if isinstance(part, Fragment):
                rounds[part] = rounds.get(part, 0) + task.repeat
                continue
            moved, route = part.wire_bytes * part.count * task.repeat, part.route
            if part.at is None:
                for number, share in route.links if of_links else route.loads:
                    totals[number] = known(number, 0.0) + moved * share
                continue
            sites = part.at.sites
            for load in crossed(part, of_links=of_links):
                for key, times in load.keys:
                    totals[key] = added(known(key, 0.0), moved * load.share, times)
    for fragment, times in rounds.items():
        timeline = alone(machine, fragment, fold=fold)
        for number, n_bytes in (timeline.link_bytes if of_links else timeline.resource_bytes).carried():
            totals[number] = known(number, 0.0) + n_bytes * times
    n = len(machine.links if of_links else machine.capacity_Bps)
    if sites is None:
        return LinkBytes(n, totals)
    return LinkBytes(n, {}, [(*sites.spread(key, of_links=of_links), n_bytes) for key, n_bytes in totals.items()])


def _met(machine: Machine, plan: Plan, needs: Sequence[Sequence[int]], fold: bool) -> tuple[set[Resource], set[int]]:
    """Return contended resources, and activities that load some but overlap with no other stream's that does."""
    if not any(isinstance(part, Fragment) or (isinstance(part, Work) and part.loads) for part in t.all_parts(plan)):
        return set(), set()
    met: set[Resource] = {p.target for p in plan.perturbations if p.target}
    if met:
        met.update(index for index, name in enumerate(machine.resource_names) if name in met)
    loads = defaultdict[tuple[str, int], dict[int, Part]](dict)  # by (stream, position), in sequence; by identity
    loading = defaultdict[str, dict[int, None]](dict)  # by stream: its activities that load anything, in order
    for task in plan.tasks:
        for place, part in enumerate(task.parts):
            what = part.loads if isinstance(part, Work) else part
            if what:
                loading[task.stream][task.id] = None
                loads[task.stream, place][id(what)] = part
    distinct = [list(parts.values()) for parts in loads.values()]
    n_moving = sum(not all(isinstance(part, Work) for part in parts) for parts in distinct)
    loading_links = (r for parts in distinct for part in parts if isinstance(part, Work) for r, _ in part.loads)
    # If only one (stream, position) moves bytes, these meet nothing on links unless works load links.
    loaded = _loaded if n_moving > 1 or any(isinstance(r, int) for r in loading_links) else _named
    once: set[Resource] = set()
    for parts in distinct:
        own = set[Resource]().union(*(loaded(machine, part, fold) for part in parts))
        met |= once & own
        once |= own
    several = {r for parts in distinct for part in parts if isinstance(part, Work) for r, n in part.loads if n > 1}
    disturbed = plan.perturbations or several or len(loading) > _FEW_STREAMS
    return met | several, set() if disturbed else t.undisturbed(plan, needs, loading)


def _named(_machine: Machine, part: Part, _fold: bool) -> frozenset[Resource]:
    """Return the named resources that *part* loads, and for works and fragments any numbered ones in their loads."""
    if isinstance(part, Flow):
        return frozenset()
    named = [resource for resource, _ in part.loads]
    if isinstance(part, Fragment):
        named += [resource for resource, _ in part.used_s]
    return frozenset(named)


@lru_cache(maxsize=4096)
def _loaded(machine: Machine, part: Part, fold: bool) -> frozenset[Resource]:
    if isinstance(part, Flow):
        return frozenset(resource for each in part.apart() for resource, _ in each.route.loads)
    moved = alone(machine, part, fold=fold).resource_bytes.carried() if isinstance(part, Fragment) else ()
    return _named(machine, part, fold).union(resource for resource, _ in moved)
