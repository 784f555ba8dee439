"""One step of a network on one or several devices.  Device models are imported on first use."""

from __future__ import annotations

from dataclasses import replace

from simulator.api.alone import alone_timeline, executed
from simulator.api.context import perturbations_of
from simulator.api.pipeline import run_pipeline
from simulator.api.servers import run_servers
from simulator.collectives.communicator import Communicator
from simulator.collectives.request import Strategy, Unsuitable
from simulator.engine.timeline import Timeline
from simulator.network.machine import Machine
from simulator.places import Place, Places
from simulator.plan.plan import Plan
from simulator.questions.layout import Layout
from simulator.questions.step import StepQuestion
from simulator.results.from_timelines import Seen, pipeline_result, together_result
from simulator.results.step import StepResult, make_step_result, model_flop_of, of_programs
from simulator.results.training import TrainingResult
from simulator.step.memory import Shares, memory_need
from simulator.training.alone import alone_rate, alone_s_of
from simulator.training.divide import divided
from simulator.training.memory import device_memory
from simulator.training.micro_batches import Batches
from simulator.training.placement import Placement
from simulator.training.plan import PROGRAM, contend, plan_step
from simulator.training.roles import Role, apart, roles_of
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


def together_timeline(
    places: Places,
    network: Network,
    question: StepQuestion,
    group: Communicator,
    strategy: Strategy,
    layer_strategy: Strategy,
    *,
    fold: bool = True,
    roles: list[Role] | None = None,
) -> tuple[list[Role], Timeline]:
    """Return the roles of the ranks of *group* in a step, and its timeline; raises Unsuitable or InputError."""
    machine = places.machine
    check_stragglers(machine, group.ranks, question.stragglers)
    placement = Placement(group, question.layout.on(group.n_ranks))
    part = divided(network, placement.layout)
    if placement.layout.pp > 1:
        run = run_pipeline(places, part, question, placement, strategy, layer_strategy, fold=fold)
        return [stage.role for stage in run.stages], run.timeline
    fold_roles = fold and not question.one_process  # it launches for one rank after the other
    acting = roles or roles_of(
        places, group.ranks, part, question.rank_options, stragglers=question.stragglers, fold=fold_roles
    )
    few = Batches(min(2, question.micro_batches))  # the last one exchanges more than the others
    known: Plan | None = None

    def write(batches: Batches) -> Plan:
        if known is not None and batches == few:
            return known
        return plan_step(machine, acting, part, question, placement, strategy, layer_strategy, batches)

    if fold and contend(question):
        known = write(few)
        finer = apart(places, acting, known)
        if len(finer) > len(acting):
            acting, known = finer, None
    perturbations = perturbations_of(machine, question.where.slow_links)
    return acting, executed(write, machine, question.micro_batches, fold=fold, perturbations=perturbations)


def run_together(
    places: Places,
    network: Network,
    question: StepQuestion,
    group: Communicator,
    strategy: Strategy,
    layer_strategy: Strategy,
    *,
    fold: bool = True,
    roles: list[Role] | None = None,
) -> TrainingResult:
    """Return the step of *network* that the ranks of *group* run together, in *roles* if given.

    Otherwise the roles follow from the ranks' parts.  Raises Unsuitable or InputError.
    """
    if question.has_servers:
        return run_servers(places, network, question, group, fold=fold)
    if question.strategy.startswith("parameter-server") and not question.layout.has_replicas:
        raise Unsuitable(f"servers keep the parameters of whole replicas; {question.layout.words} has none")
    machine, options, count = places.machine, question.rank_options, question.micro_batches
    if question.layout.pp > 1:
        return _run_stages(places, network, question, group, strategy, layer_strategy, fold=fold)
    roles, timeline = together_timeline(
        places, network, question, group, strategy, layer_strategy, fold=fold, roles=roles
    )
    layout = question.layout.on(group.n_ranks)
    part = divided(network, layout)
    memory = [device_memory(role.network or part, question, role.place.device, layout) for role in roles]

    def step_of(number: int) -> StepResult:
        role = roles[number]
        step = make_step_result(
            machine=machine.name,
            place=role.place,
            network=role.network or part,
            options=options,
            memory=memory[number],
            timeline=timeline,
            prefix=f"{role.place.name}/" if len(roles) > 1 else "",
            micro_batches=count,
        )
        return step if role.network else _of_whole(step, network, count, layout)

    alone_s = [alone_s_of(role.place.device, role.network or network, question, role.pace) for role in roles]
    rate = alone_rate(roles, network, question)
    return together_result(question, group, roles, step_of, memory, alone_s, rate, timeline)


def _of_whole(step: StepResult, network: Network, micro_batches: int, layout: Layout) -> StepResult:
    """Return *step* of one rank with the tokens and parameters of the undivided *network*.

    Its FLOPs are an equal share of the undivided network's, whatever the layout leaves out or repeats.
    """
    return replace(
        step,
        model_flop=model_flop_of(network, step.options) * micro_batches / layout.model_ranks,
        tokens=network.tokens * micro_batches,
        parameter_count=network.parameter_count,
        trained_count=network.trained_count,
    )


def _run_stages(
    places: Places,
    network: Network,
    question: StepQuestion,
    group: Communicator,
    strategy: Strategy,
    layer_strategy: Strategy,
    *,
    fold: bool,
) -> TrainingResult:
    """Return the step of *network* with its layers divided among pipeline stages; raises Unsuitable or InputError."""
    count = question.micro_batches
    placement = Placement(group, question.layout.on(group.n_ranks))
    layout = placement.layout
    part = divided(network, layout)
    run = run_pipeline(places, part, question, placement, strategy, layer_strategy, fold=fold)
    memory = [
        device_memory(stage.network, question, stage.role.place.device, layout, in_flight(layout, number, count))
        for number, stage in enumerate(run.stages)
    ]
    busiest = max(range(layout.pp), key=lambda number: (round(run.stages[number].busy_s(count), 12), -number))
    step = make_step_result(
        machine=places.machine.name,
        place=run.stages[busiest].role.place,
        network=run.stages[busiest].network,
        options=question.rank_options,
        memory=memory[busiest],
        timeline=run.timeline,
        prefix=f"stage {busiest}/",
        micro_batches=count,
    )
    step = _of_whole(step, network, count, layout)
    roles = [stage.role for stage in run.stages]
    rate = alone_rate(roles, network, question)
    chunks = run.stages[busiest].chunks
    sent = [issue.sent for chunk in chunks for issue in chunk.issues if issue.sent is not None]
    seen = Seen(busiest, run.within[busiest], sent, run.exchanged[busiest])
    return pipeline_result(question, group, roles, step, memory, rate, run.timeline, seen, run.largest)
