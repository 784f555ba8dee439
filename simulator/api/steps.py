"""One step of a network on one or several devices.  Device models are imported on first use."""

from __future__ import annotations

from dataclasses import replace

from simulator.api.alone import alone_timeline, executed
from simulator.api.context import perturbations_of
from simulator.collectives.request import Unsuitable
from simulator.engine.timeline import Timeline
from simulator.network.machine import Machine
from simulator.places import Place
from simulator.plan.plan import Plan
from simulator.questions.step import StepQuestion
from simulator.results.from_timelines import StageTotals, pipeline_result, together_result
from simulator.results.step import StepResult, make_step_result, model_flop_of, of_programs
from simulator.results.training import TrainingResult
from simulator.step.memory import MemoryNeed, Shares, memory_need
from simulator.training.alone import alone_rate, alone_s_of
from simulator.training.memory import device_memory
from simulator.training.micro_batches import Batches
from simulator.training.plan import PROGRAM, SharedStep, contend, plan_step
from simulator.training.roles import Role, alike_roles, roles_of
from simulator.training.schedules import in_flight
from simulator.training.stragglers import check_stragglers
from simulator.workload.network import Network


def run_alone(machine: Machine, place: Place, network: Network, question: StepQuestion) -> StepResult:
    """Return the result of a step of *network* on *place* alone; raises InputError."""
    step = make_step_result(
        machine=machine.name,
        place=place,
        network=network,
        options=question.options,
        memory=memory_need(network, question.options, place.device, Shares(accumulates=question.micro_batches > 1)),
        timeline=alone_timeline(machine, place, network, question),
        prefix=f"{PROGRAM} 0/" if question.programs > 1 else "",
        micro_batches=question.micro_batches,
    )
    return of_programs(step, question.programs)


def together_timeline(shared: SharedStep, roles: list[Role] | None = None) -> tuple[list[Role], Timeline]:
    """Return the roles of the ranks in a step, and its timeline; raises Unsuitable or InputError."""
    machine, question, fold = shared.machine, shared.question, shared.fold
    check_stragglers(machine, shared.group.ranks, question.stragglers)
    if shared.layout.pp > 1:
        from simulator.api.pipeline import run_pipeline

        run = run_pipeline(shared)
        return [stage.role for stage in run.stages], run.timeline
    acting = roles or roles_of(
        shared.places,
        shared.group.ranks,
        shared.part,
        question.rank_options,
        stragglers=question.stragglers,
        fold=fold and not question.one_process,  # it launches for one rank after the other
    )
    few = Batches(min(2, question.micro_batches))  # the last one exchanges more than the others
    known: Plan | None = None

    def write(batches: Batches) -> Plan:
        return known if known is not None and batches == few else plan_step(shared, acting, batches)

    if fold and contend(question):
        known = write(few)
        finer = alike_roles(shared.places, acting, known)
        if len(finer) > len(acting):
            acting, known = finer, None
    perturbations = perturbations_of(machine, question.where.slow_links)
    return acting, executed(write, machine, question.micro_batches, fold=fold, perturbations=perturbations)


def run_together(shared: SharedStep, roles: list[Role] | None = None) -> TrainingResult:
    """Return the result of *shared*, in *roles* if given; otherwise these follow from the ranks' parts.

    Raises Unsuitable or InputError.
    """
    question, network = shared.question, shared.network
    if question.has_servers:
        from simulator.api.servers import run_servers

        return run_servers(shared)
    if question.strategy.startswith("parameter-server") and not question.layout.has_replicas:
        raise Unsuitable(f"servers keep the parameters of whole replicas; {question.layout.words} has none")
    layout = shared.layout
    if layout.pp > 1:
        return _run_stages(shared)
    roles, timeline = together_timeline(shared, roles)
    networks = [role.network or shared.part for role in roles]
    memory = [
        device_memory(own, question, role.place.device, layout) for role, own in zip(roles, networks, strict=True)
    ]

    def step_of(number: int) -> StepResult:
        role = roles[number]
        prefix = f"{role.place.name}/" if len(roles) > 1 else ""
        step = _view(shared, role.place, networks[number], memory[number], timeline, prefix)
        return step if role.network else _of_whole(step, shared)

    alone_s = [alone_s_of(role.place.device, role.network or network, question, role.pace) for role in roles]
    rate = alone_rate(roles, network, question)
    return together_result(shared, roles, step_of, memory, alone_s, rate, timeline)


def _view(
    shared: SharedStep, place: Place, network: Network, memory: MemoryNeed, timeline: Timeline, prefix: str
) -> StepResult:
    return make_step_result(
        machine=shared.machine.name,
        place=place,
        network=network,
        options=shared.question.rank_options,
        memory=memory,
        timeline=timeline,
        prefix=prefix,
        micro_batches=shared.question.micro_batches,
    )


def _of_whole(step: StepResult, shared: SharedStep) -> StepResult:
    """Return *step* of one rank with the tokens and parameters of the undivided network.

    Its FLOPs are an equal share of the undivided network's, whatever the layout leaves out or repeats.
    """
    network, count = shared.network, shared.question.micro_batches
    return replace(
        step,
        model_flop=model_flop_of(network, step.options) * count / shared.layout.model_ranks,
        tokens=network.tokens * count,
        parameter_count=network.parameter_count,
        trained_count=network.trained_count,
    )


def _run_stages(shared: SharedStep) -> TrainingResult:
    """Return the step of *shared* with its layers divided among pipeline stages; raises Unsuitable or InputError."""
    question, layout, count = shared.question, shared.layout, shared.question.micro_batches
    from simulator.api.pipeline import run_pipeline

    run = run_pipeline(shared)
    memory = [
        device_memory(stage.network, question, stage.role.place.device, layout, in_flight(layout, number, count))
        for number, stage in enumerate(run.stages)
    ]
    busiest = max(range(layout.pp), key=lambda number: (round(run.stages[number].busy_s(count), 12), -number))
    stage = run.stages[busiest]
    step = _view(shared, stage.role.place, stage.network, memory[busiest], run.timeline, f"stage {busiest}/")
    roles = [stage.role for stage in run.stages]
    rate = alone_rate(roles, shared.network, question)
    sent = [issue.sent for chunk in stage.chunks for issue in chunk.issues if issue.sent is not None]
    seen = StageTotals(busiest, run.within[busiest], sent, run.exchanged[busiest])
    return pipeline_result(shared, roles, _of_whole(step, shared), memory, rate, run.timeline, seen, run.largest)
