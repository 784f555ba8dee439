"""Steps through parameter servers, simulated until they are steady: :func:`run_servers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from simulator.api.context import refuse_passing
from simulator.collectives.parameter_server import parameter_server
from simulator.engine.executor import execute
from simulator.engine.timeline import Timeline
from simulator.errors import refused
from simulator.results.from_timelines import server_result
from simulator.results.servers import ends_of, loss_at, one_step, server_run
from simulator.results.step import make_step_result
from simulator.results.training import TrainingResult
from simulator.results.training_run import DeviceMemory
from simulator.spelling import mention
from simulator.training.alone import alone_rate, alone_s_of
from simulator.training.data_parallel import gradient_bytes
from simulator.training.memory import device_memory
from simulator.training.plan import SharedStep
from simulator.training.servers import pace_in, plan_servers
from simulator.training.teams import Team, servers_of, teams_of

_FEW, _MOST = 5, 40  # steps simulated: at first, and at most
_MORE = 1_000_000  # activities times teams of a simulation that is not repeated with twice as many steps
_SAME = 1e-3  # relative difference of step times that counts as steady; the sharing of links still varies a little


class _Ran(NamedTuple):
    """Several steps of *teams* through *servers*; ``apart`` as in :class:`~simulator.results.servers.ServerRun`."""

    teams: list[Team]
    servers: tuple[int, ...]
    timeline: Timeline
    is_steady: bool
    apart: int | None


def _ran(shared: SharedStep) -> _Ran:
    """Return the run of enough steps, with the last as long as those before if possible.

    Raises Unsuitable if there are fewer places than servers, or too many flows between nodes and servers; InputError
    for a wrong option.
    """
    question = shared.question
    refuse_passing(question.where.slow_links, "training through servers")
    late = question.staleness
    count = _FEW + (late or 0)
    if count > _MOST:
        raise refused("staleness", f"from 0 to {_MOST - _FEW}, or async", late)
    strategy = parameter_server(question.strategy)
    servers = servers_of(shared.group, strategy.n_servers, strategy.places or question.servers)
    teams, apart = teams_of(shared, servers, count)

    def run(steps: Sequence[int]) -> tuple[Timeline, list[list[float]]]:
        timeline = execute(shared.machine, plan_servers(shared, teams, servers, steps))
        return timeline, ends_of(timeline, teams)

    timeline, ends = run([count] * len(teams))
    if late is None:
        paces = [own[-1] - own[-2] for own in ends]
        slowest = max(paces)
        few = max(2, min(_FEW, int(_MOST * min(paces) / slowest)))
        counts = [min(_MOST, ceil(few * slowest / pace)) for pace in paces]
        timeline, ends = run(counts) if len(teams) > 1 else (timeline, ends)
        return _Ran(teams, servers, timeline, True, apart)
    while not (steady := _steady(ends)) and count < _MOST and len(timeline.plan.tasks) * len(teams) < _MORE:
        count = min(_MOST, 2 * count)
        timeline, ends = run([count] * len(teams))
    return _Ran(teams, servers, timeline, steady, apart)


def _steady(ends: Sequence[Sequence[float]]) -> bool:
    """Return whether the last three steps before the final one took equally long for every team.

    Two equal steps are not enough: they also occur while the host runs ahead of its GPU, until its queue is full.
    """
    lengths = [own[-i] - own[-i - 1] for own in ends for i in (2, 3, 4)]
    return max(lengths) - min(lengths) <= _SAME * max(lengths)


def run_servers(shared: SharedStep) -> TrainingResult:
    """Return the result of steps of *shared* through servers; raises as :func:`_ran`."""
    question, network = shared.question, shared.network
    if question.options.cuda_graph:
        raise refused("cuda_graph", "parameters are pulled between the layers of a step, which is one graph")
    ran = _ran(shared)
    teams, servers, timeline, steady, apart = ran
    run = replace(server_run(timeline, teams, servers, staleness=question.staleness, is_steady=steady), apart=apart)
    if question.lost is not None:
        run = replace(run, lost_s=_lost_s(shared, ran, run.measured[0]))
    roles = [role for team in teams for role in team.roles]
    slowest = max(range(len(teams)), key=lambda number: run.paces[number].period_s)
    role = max(teams[slowest].roles, key=lambda each: alone_s_of(each.place.device, network, question, each.pace))
    one = one_step(timeline, teams, slowest, run.measured[slowest])
    needs = {id(each): device_memory(network, question, each.place.device, shared.layout) for each in roles}
    memory = [DeviceMemory(each.place.part, each.count, needs[id(each)]) for each in roles]
    step = make_step_result(
        machine=shared.machine.name,
        place=role.place,
        network=network,
        options=question.options,
        memory=needs[id(role)],
        timeline=one,
        prefix=f"{role.place.name}/" if len(roles) > 1 else "",
        micro_batches=question.micro_batches,
    )
    step = replace(step, step_time_s=run.period_s)
    element = gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
    pace = pace_in(question, teams, teams[slowest], role)
    rate = alone_rate(roles, network, question)
    n_bytes = float(network.trained_count * element)
    return server_result(question, run, step, memory, rate, one, timeline, pace, n_bytes)


def _lost_s(shared: SharedStep, ran: _Ran, step: int) -> float:
    """Return the delay in seconds of the whole run if a server fails in *step* of *ran*.

    Raises InputError if the name is no server or the only one, or if nodes do not wait for each other.
    """
    teams, timeline = ran.teams, ran.timeline
    assert shared.question.lost is not None
    name, after_s = shared.question.lost
    names = [shared.machine.nodes[server].name for server in ran.servers]
    if name not in names:
        raise refused("lost", f"no server stands there; they stand on {', '.join(names)}", name)
    if len(names) == 1:
        raise refused("lost", "is the only server, and no other could take over its keys", name)
    if shared.question.staleness != 0:
        raise refused("lost", f"is for {mention('staleness', 0)}, where all wait for all", name)
    ends = ends_of(timeline, teams)
    loss = loss_at(timeline, teams, step, names.index(name), after_s)
    if loss.at_s >= min(own[-1] for own in ends):
        raise refused("lost", f"{after_s:g} s after the start of a step is after its end", name)
    steps = [len(own) for own in ends]
    plan = plan_servers(shared, teams, ran.servers, steps, loss)
    later = ends_of(execute(shared.machine, plan), teams)
    return max(own[-1] for own in later) - max(own[-1] for own in ends)
