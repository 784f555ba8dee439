"""Steps through parameter servers, until they are steady (docs/decisions/results.md): :func:`run_servers`."""

from collections.abc import Sequence
from math import ceil

from simulator.api.context import refuse_passing
from simulator.collectives.levels import parameter_server
from simulator.engine.executor import execute
from simulator.errors import mention, refused
from simulator.records import replace
from simulator.results import servers as of
from simulator.results.ran import stream_uses
from simulator.results.step import make_step_result
from simulator.results.training import TrainingResult, by_part
from simulator.step.precision import gradient_bytes
from simulator.training.memory import device_memory
from simulator.training.plan import SharedStep
from simulator.training.roles import alone_rate, alone_s_of
from simulator.training.servers import ServerLabel, pace_in, plan_servers
from simulator.training.teams import NodeTeam, servers_of, teams_of

_FEW, _MOST = 5, 40  # steps simulated: at first, and at most
_MORE = 1_000_000  # activities times teams of a simulation that is not repeated with twice as many steps


def _steady(
    shared: SharedStep, teams: list[NodeTeam], servers: tuple[int, ...], begin_s: Sequence[float] = ()
) -> of.ServedSteps:
    """Return the run of *teams* from *begin_s*, or all at once; with a bound on staleness, until steps repeat."""
    late = shared.question.staleness

    def ran(counts: Sequence[int]) -> of.ServedSteps:
        timeline = execute(shared.machine, plan_servers(shared, teams, servers, counts, starts_s=begin_s))
        ends = of.team_step_ends(timeline, teams)
        return of.ServedSteps(teams, servers, timeline, ends, of.cycle_of(ends) if late is not None else None)

    count = _FEW + (late or 0)
    found = ran([count] * len(teams))
    if late is None and len(teams) > 1:
        paces = [(own[-1] - own[0]) / (len(own) - 1) for own in found.ends]
        few = max(3, min(2 * _FEW, int(_MOST * min(paces) / max(paces))))
        return ran([min(_MOST, ceil(few * max(paces) / pace)) for pace in paces])
    while late is not None and found.cycle is None:
        if count == _MOST or len(found.timeline.plan.tasks) * len(teams) >= _MORE:
            break
        count = min(_MOST, 2 * count)
        found = ran([count] * len(teams))
    return found


def _best(shared: SharedStep, teams: list[NodeTeam], servers: tuple[int, ...]) -> of.ServedSteps:
    """Return a run of steps until they repeat; of two starts, or three, the fastest counts, as servers are ideal."""
    found = [_steady(shared, teams, servers)]
    late = shared.question.staleness
    if late != 0 and len(teams) > 1:
        whole_s = max(own[-1] - own[-2] for own in found[0].ends)
        starts_s = [number / len(teams) * whole_s for number in range(len(teams))]
        found.append(_steady(shared, teams, servers, starts_s))
    if late and any(team.spread for team in teams):
        found.append(_steady(replace(shared, question=replace(shared.question, staleness=0)), teams, servers))

    def nodes_per_s(ran: of.ServedSteps) -> float:
        periods = of.periods_of(ran.ends, ran.cycle)
        return sum(len(team.cpus) / period_s for team, (_, _, period_s) in zip(ran.teams, periods, strict=True))

    return max(found, key=nodes_per_s)


def run_servers(shared: SharedStep) -> TrainingResult:
    """Return steps of *shared* through servers; raises Unsuitable for few places or many flows, and InputError."""
    question, late = shared.question, shared.question.staleness
    if question.options.cuda_graph:
        raise refused("cuda_graph", "parameters are pulled between the layers of a step, which is one graph")
    refuse_passing(question.where.slow_links, "training through servers")
    if late is not None and late > _MOST - _FEW:
        raise refused("staleness", f"from 0 to {_MOST - _FEW}, or async", late)
    strategy = parameter_server(question.strategy)
    servers = servers_of(shared.group, strategy.n_servers, strategy.places or question.servers)
    lost = _lost_server(shared, servers)
    teams, apart = teams_of(shared, servers, _FEW + (late or 0))
    ran = _best(shared, teams, servers)
    run = of.server_run(ran, late)
    run = replace(run, apart=apart, spread=any(team.spread for team in teams))
    if lost is not None:
        lost_s, then_s = _lost_s(shared, ran, run.measured[0], *lost)
        run = replace(run, lost_s=lost_s, then_s=then_s)
    return _result(shared, ran, run)


def _result(shared: SharedStep, ran: of.ServedSteps, run: of.ServerRun) -> TrainingResult:
    question, network, teams = shared.question, shared.network, ran.teams
    roles = [role for team in teams for role in team.roles]
    slowest = max(range(len(teams)), key=lambda number: run.paces[number].period_s)
    role = max(teams[slowest].roles, key=lambda each: alone_s_of(each.place.device, network, question, each.pace))
    one = of.one_step(ran, slowest, run.measured[slowest])
    needs = {id(each): device_memory(network, question, each.place.device, shared.layout) for each in roles}
    prefix, count = f"{role.place.name}/" if len(roles) > 1 else "", question.micro_batches
    step = make_step_result(role.place, network, question.options, needs[id(role)], one, prefix, count)
    uses = {name: use for name, use in stream_uses(one).items() if use.busy_s}
    own = f"{step.device}/compute" if f"{step.device}/compute" in uses else "compute"
    waits_s = uses[own].waits_s if own in uses else {}
    exposed_s = sum(seconds for stream, seconds in waits_s.items() if not stream.endswith("host"))
    keys = {task.about.key for task in one.plan.tasks if isinstance(task.about, ServerLabel) and task.about.key >= 0}
    element = gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
    return TrainingResult(
        question=question,
        step=replace(step, step_time_s=run.period_s),
        device_count=sum(pace.gpu_count for pace in run.paces),
        alone_rate=alone_rate(roles, network, question),
        exposed_s=exposed_s,
        exchanging_s=max(exposed_s, sum(s for stage, s in run.stages_s.items() if stage != of.COMPUTE)),
        bottleneck=run.bottleneck,
        memory=by_part(roles, [(network, needs[id(each)]) for each in roles], question.options),
        streams=uses,
        counts_software=False,
        notes=run.notes,
        timeline=ran.timeline,
        pace=pace_in(question, teams, teams[slowest], role),
        exchanges=len(keys),
        exchanged_bytes=float(network.trained_count * element),
        servers=run,
    )


def _lost_server(shared: SharedStep, servers: tuple[int, ...]) -> tuple[int, float] | None:
    """Return which of *servers* fails, and after how many seconds of a step; None: none does.  Raises InputError."""
    if shared.question.lost is None:
        return None
    name, after_s = shared.question.lost
    names = [shared.machine.nodes[server].name for server in servers]
    if name not in names:
        raise refused("lost", f"no server stands there; they stand on {', '.join(names)}", name)
    if len(names) == 1:
        raise refused("lost", "is the only server, and no other could take over its keys", name)
    if shared.question.staleness != 0:
        raise refused("lost", f"is for {mention('staleness', 0)}, where all wait for all", name)
    return names.index(name), after_s


def _lost_s(shared: SharedStep, ran: of.ServedSteps, step: int, number: int, after_s: float) -> tuple[float, float]:
    """Return the delay, in s, of what waits for server *number*, and the seconds of a later step; raises InputError."""
    teams, ends = ran.teams, ran.ends
    loss = of.loss_at(ran, step, number, after_s)
    if loss.at_s >= min(own[-1] for own in ends):
        name = shared.machine.nodes[ran.servers[number]].name
        raise refused("lost", f"{after_s:g} s after the start of a step is after its end", name)
    plan = plan_servers(shared, teams, ran.servers, [len(own) + _FEW for own in ends], loss=loss)
    later = of.team_step_ends(execute(shared.machine, plan), teams)
    delay_s = max(max(own[at] for own in later) - max(own[at] for own in ends) for at in (step, step + 1))
    first_s, last_s = (max(own[at] for own in later) for at in (-4, -2))  # the last step is shorter, as none follows it
    return delay_s, (last_s - first_s) / 2
