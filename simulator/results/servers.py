"""The steady state of training through parameter servers (docs/decisions/results.md): :class:`ServerRun`."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from simulator.engine.executor import alone
from simulator.engine.timeline import Span, Timeline
from simulator.plan.plan import Activity, Flow, Fragment
from simulator.records import dataclass, lists_by_key, replace
from simulator.results.bottleneck import LinkUse
from simulator.training.servers import ARRIVES, PULL, PUSH, SPREAD, STAGES, TO_CPU, TO_GPUS, UPDATE, ServerLabel
from simulator.training.teams import Loss, NodeTeam
from simulator.training.worker import LaunchLabel

COMPUTE = "forward and backward"
BACK = (PULL, TO_GPUS, SPREAD)  # stages that bring parameters back
_STEADY = 1e-3  # relative difference of step times that counts as none; the sharing of links still varies a little
_SAME = 1e-9  # relative; times that differ only by rounding


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a team of ``node_count`` nodes: ``period_s`` per step, in which its GPUs compute for ``busy_s``.

    ``staleness_mean`` and ``staleness_max`` count the updates by other nodes between the time when a key's parameters
    were read and the time when the gradient computed with them is applied.  ``lead`` is the largest number of steps
    that the team was ahead of the slowest one.
    """

    node: str
    node_count: int
    gpu_count: int
    period_s: float
    busy_s: float
    staleness_mean: float
    staleness_max: int
    lead: int

    @property
    def slack_s(self) -> float:
        """Seconds per step in which its GPUs do not compute, but wait for other nodes or the exchange."""
        return max(0.0, self.period_s - self.busy_s)


@dataclass(frozen=True, slots=True)
class ServerRun:
    """A steady run; ``stages_s`` is the busy time of each stage in a step of the slowest team, and stages overlap.

    ``measured`` is the representative step of each team.  ``is_steady``: the last steps took equally long, or repeat
    themselves every few steps.  ``apart``: equal nodes are simulated as one, because they are more than so many;
    ``spread``: and as if all held equal parts of every key.
    ``lost_s`` is the delay of the next step by a server's loss, and ``then_s`` the time of each after that, in seconds.
    """

    servers: tuple[str, ...]
    paces: tuple[Pace, ...]
    stages_s: dict[str, float]
    bottleneck: LinkUse | None
    step_count: int
    measured: tuple[int, ...]
    is_steady: bool
    apart: int | None = None
    spread: bool = False
    lost_s: float | None = None
    then_s: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is simplified in this run."""
        found = () if self.is_steady else (f"not steady after {self.step_count} steps",)
        if self.spread:
            least = "keys count as spread evenly over the servers, so that a step takes at least this long"
            return (*found, f"{least}; of up to {self.apart} nodes each is simulated")
        if self.apart is not None:
            return (*found, f"equal nodes are kept in step; of this network, up to {self.apart} are not")
        return found

    @property
    def period_s(self) -> float:
        """Seconds per step of the slowest node."""
        return max(pace.period_s for pace in self.paces)

    @property
    def staleness_mean(self) -> float:
        """The mean over all nodes, weighted by their step rates."""
        rates = [pace.node_count / pace.period_s for pace in self.paces]
        return sum(rate * pace.staleness_mean for rate, pace in zip(rates, self.paces, strict=True)) / sum(rates)

    @property
    def staleness_max(self) -> int:
        """The maximum over all nodes."""
        return max(pace.staleness_max for pace in self.paces)


def team_step_ends(timeline: Timeline, teams: Sequence[NodeTeam]) -> list[list[float]]:
    """Return for each team the time at which each of its steps was computed, in seconds."""
    places = [{role.place.name for role in team.roles} for team in teams]
    found: list[dict[int, float]] = [{} for _ in teams]
    for task, span in timeline.ran(LaunchLabel):
        step = task.about.micro_batch
        for ends, own in zip(found, places, strict=True):
            if not task.about.on_host and task.place in own:
                ends[step] = max(ends.get(step, 0.0), span.end_s)
    return [[ends[step] for step in sorted(ends)] for ends in found]


def cycle_of(ends: Sequence[Sequence[float]]) -> int | None:
    """Return after how many steps the lengths of steps repeat, three times in a row, at one pace of all teams; or None.

    *ends*: the ends of each team's steps, in seconds, the last without another step beside it.
    """
    until_s = min(own[-1] for own in ends)  # then one team has no more steps
    lengths = [[end - start for start, end in pairwise(own[:-1]) if end < until_s] for own in ends]
    close_s = _STEADY * max(max(own, default=0.0) for own in lengths)
    for cycle in range(1, min(len(own) for own in lengths) // 3 + 1):
        alike = [own[-i : -3 * cycle - 1 : -cycle] for own in lengths for i in range(1, cycle + 1)]
        alike.append([sum(own[-cycle:]) / cycle for own in lengths])
        if all(max(each) - min(each) <= close_s for each in alike):
            return cycle
    return None


def periods_of(
    ends: Sequence[Sequence[float]], cycle: int | None, *, in_step: bool = False
) -> list[tuple[int, int, float]]:
    """Return for each team two steps in the last half of its steps, and the seconds per step between their ends.

    They are up to three times *cycle* apart; without one, and unless *in_step*, all teams have the same span of time.
    """
    until_s = min(own[-2] for own in ends)  # the last step has the links to itself, as no step follows it
    since_s = max(until_s / 2, *(own[0] for own in ends))
    found = []
    for own in ends:
        if cycle is None and not in_step and since_s < until_s:
            (first, before), (last, after) = _done(own, since_s), _done(own, until_s)
            last = max(1, last)
            found.append((min(first, last - 1), last, (until_s - since_s) / (after - before)))
            continue
        last = max(1, bisect_right(own, until_s * (1 + _SAME)) - 1)
        half = last - min(last - 1, last // 2)
        count = half if cycle is None else cycle * max(1, min(3, half // cycle))
        found.append((last - count, last, (own[last] - own[last - count]) / count))
    return found


def _done(ends: Sequence[float], at_s: float) -> tuple[int, float]:
    """Return the step that ended last at a time, and the steps done until then, the last of them in part."""
    number = bisect_right(ends, at_s * (1 + _SAME)) - 1
    if number == len(ends) - 1:
        return number, float(number)
    return number, number + (at_s - ends[number]) / (ends[number + 1] - ends[number])


class ServedSteps(NamedTuple):
    """Steps of *teams* through *servers*, their ends by team, and after how many they repeat; None if they do not."""

    teams: list[NodeTeam]
    servers: tuple[int, ...]
    timeline: Timeline
    ends: list[list[float]]
    cycle: int | None


def server_run(ran: ServedSteps, staleness: int | None) -> ServerRun:
    """Return the steady state of *ran*; the first steps are left out."""
    teams, servers, timeline, ends, cycle = ran
    machine = timeline.machine
    in_step = staleness == 0  # then all of the last half are equal
    windows = periods_of(ends, None if in_step and cycle == 1 else cycle, in_step=in_step)
    periods = [period_s for _, _, period_s in windows]
    events = _Events(timeline)
    paces = []
    for number, (team, (first, last, period_s)) in enumerate(zip(teams, windows, strict=True)):
        steps = range(first + 1, last + 1)
        mean, most = events.staleness(number, teams, steps, staleness)
        behind = [
            step - min(bisect_right(own, ends[number][step] * (1 + _SAME)) for own in ends) for step in range(last + 1)
        ]
        busy_s: dict[str, float] = {role.place.name: 0.0 for role in team.roles}
        for task, span in timeline.ran(LaunchLabel):
            if not task.about.on_host and task.place in busy_s and task.about.micro_batch in steps:
                busy_s[task.place] += span.length_s
        name = machine.nodes[team.cpus[0]].name
        node = name.partition(".")[0] if machine.n_hosts > 1 else machine.name
        mine_s = max(busy_s.values()) / (last - first)
        paces.append(Pace(node, len(team.cpus), team.gpu_count, period_s, mine_s, mean, most, max(0, *behind)))
    slowest = max(range(len(teams)), key=lambda number: periods[number])
    measured = tuple(max(1, last - 1) for _, last, _ in windows)  # a step that another follows
    stages = dict.fromkeys((STAGES[0], COMPUTE, *STAGES[1:]), 0.0)
    stages[COMPUTE] = paces[slowest].busy_s
    for task, span in events.served:
        about = task.about
        if about.step == measured[slowest] and about.team in (slowest, -1):
            stages[about.stage] += span.length_s / (len(servers) if about.stage == UPDATE else 1)
    return ServerRun(
        servers=tuple(machine.nodes[server].name for server in servers),
        paces=tuple(paces),
        stages_s={stage: seconds for stage, seconds in stages.items() if seconds},
        bottleneck=_bottleneck(timeline, events, measured, periods),
        step_count=max(len(own) for own in ends),
        measured=measured,
        is_steady=cycle is not None or staleness is None,
    )


class _Events:
    """The times at which keys were read and applied in a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.served = list(timeline.ran(ServerLabel))
        self.read_s: dict[tuple[int, int, int], float] = {}  # (team, step, key) -> time of the read from the servers
        self.applied_s: dict[tuple[int, int, int], float] = {}
        for task, span in self.served:
            at = task.about.team, task.about.step, task.about.key
            if task.about.stage == UPDATE:
                self.applied_s[at] = max(self.applied_s.get(at, 0.0), span.end_s)
            elif task.about.stage == PULL:
                self.read_s[at] = span.start_s
        applied = (((team, key), applied_s) for (team, _, key), applied_s in sorted(self.applied_s.items()))
        self.by_key = lists_by_key(applied)  # (team, key) -> times in order

    def staleness(
        self, number: int, teams: Sequence[NodeTeam], steps: Sequence[int], bound: int | None
    ) -> tuple[float, int]:
        """Return the mean and maximum number of other nodes' updates between read and apply, over keys and *steps*."""
        if bound == 0:
            return 0.0, 0
        own = len(teams[number].cpus)
        total, most, count = 0.0, 0, 0
        for (team, step, key), applied_s in self.applied_s.items():
            if team != number or step not in steps:
                continue
            before = number, step - 1, key
            read_s = self.read_s.get(before, self.applied_s.get(before, 0.0))
            others, between = 0, float(own - 1)  # nodes of one team update at one instant, each once in a step
            for (v, k), times in self.by_key.items():
                if k == key and v != number:
                    # Of two at one instant each comes first half the time: at the read as at the update.
                    upto_it, upto_read = (bisect_right(times, at * (1 + _SAME)) for at in (applied_s, read_s))
                    before_it, before_read = (bisect_left(times, at * (1 - _SAME)) for at in (applied_s, read_s))
                    others += len(teams[v].cpus) * (upto_it - upto_read)
                    between += len(teams[v].cpus) * (upto_it + before_it - upto_read - before_read) / 2
            total += between
            most = max(most, others + own - 1)
            count += 1
        return (total / count, most) if count else (0.0, 0)


_SAME_USE = 6  # decimals of a use: periods of equal teams agree so far, and the first of equal links is named


def _bottleneck(timeline: Timeline, events: _Events, steps: Sequence[int], periods: Sequence[float]) -> LinkUse | None:
    """Return the resource with the highest use while each team repeats its *steps*, or None if no bytes move."""
    machine = timeline.machine
    rate_Bps: dict[int, float] = {}
    for task, _ in events.served:
        team = task.about.team
        for part in task.parts if team >= 0 and task.about.step == steps[team] else ():
            moved: Iterable[tuple[int, float]] = ()
            if isinstance(part, Flow):
                moved = ((r, share * part.wire_bytes * part.count) for r, share in part.route.loads)
            elif isinstance(part, Fragment):
                moved = alone(machine, part).resource_bytes.carried()
            for resource, n_bytes in moved:
                rate_Bps[resource] = rate_Bps.get(resource, 0.0) + n_bytes / periods[team]
    if not rate_Bps:
        return None
    uses = {resource: rate / machine.capacity_Bps[resource] for resource, rate in rate_Bps.items()}
    most = max(uses, key=lambda resource: (round(uses[resource], _SAME_USE), -resource))
    return LinkUse(machine.resource_names, most, rate_Bps[most] * max(periods), uses[most])


def loss_at(ran: ServedSteps, step: int, server: int, after_s: float) -> Loss:
    """Return the loss of *server*, *after_s* seconds after the start of *step*, in *ran*."""
    start_s = max(own[step - 1] for own in ran.ends)
    spans_s: dict[tuple[str, int, int], tuple[float, float]] = {}
    begun: dict[tuple[str, int, int], float] = {}
    for task, span in ran.timeline.ran(ServerLabel):
        about = task.about
        # Keys that stay on their node count as pushed when they reach its CPU, and as pulled when they are updated.
        stages = {TO_CPU: (TO_CPU, PUSH), UPDATE: (UPDATE, PULL)}.get(about.stage, (about.stage,))
        for stage in stages if about.step >= 0 else ():
            at = stage, about.step, about.key
            known = spans_s.get(at, (span.start_s, span.end_s))
            spans_s[at] = min(known[0], span.start_s), max(known[1], span.end_s)
            if about.stage in (PUSH, PULL):
                begun[at] = min(begun.get(at, span.start_s), span.start_s)
    return Loss(server, start_s + after_s, {at: (begun.get(at, start), end) for at, (start, end) in spans_s.items()})


def one_step(ran: ServedSteps, number: int, step: int) -> Timeline:
    """Return *step* of team *number* in *ran*, from the end of its previous step's computation."""
    timeline, ends_s = ran.timeline, ran.ends[number]
    start_s = ends_s[step - 1]
    streams = {task.stream for task, _ in timeline.ran(ServerLabel) if task.about.team in (number, -1)}
    places = {place for role in ran.teams[number].roles for place in (role.place.name, role.place.host)}
    kept: dict[int, int] = {}
    tasks: list[Activity] = []
    spans: list[Span] = []
    for task, span in timeline.ran():
        about = task.about
        own = isinstance(about, ServerLabel) and task.stream in streams
        own = own and about.step == (step - 1 if about.stage in BACK else step)
        if own or (isinstance(about, LaunchLabel) and about.micro_batch == step and task.place in places):
            kept[task.id] = len(tasks)
            after = tuple(kept[a] for a in task.after if a in kept)
            tasks.append(task._replace(id=len(tasks), after=after))
            moved = span._replace(task=len(spans), start_s=span.start_s - start_s, end_s=span.end_s - start_s)
            spans.append(moved)
        elif about == ARRIVES and len(task.after) == 1 and task.after[0] in kept:  # an arrival, one latency later
            kept[task.id] = kept[task.after[0]]
    plan = replace(timeline.plan, tasks=tuple(tasks), perturbations=())
    return replace(timeline, plan=plan, spans=tuple(spans), end_s=ends_s[step] - start_s)
