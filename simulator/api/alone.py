"""The timeline of a step on one device alone, and how periodic micro-batches are executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from simulator.engine.executor import execute
from simulator.engine.timeline import Timeline
from simulator.errors import InputError, refused
from simulator.network.machine import Machine
from simulator.places import Place
from simulator.plan.plan import Perturbation, Plan
from simulator.questions.step import StepQuestion
from simulator.step.issue import launches_of
from simulator.training.micro_batches import Batches, periods_s
from simulator.training.plan import plan_alone
from simulator.training.roles import Role
from simulator.training.stragglers import check_stragglers, straggler_pace
from simulator.workload.network import Network

_EXPLICIT = (3, 6, 12)  # micro-batches simulated one by one, tried in turn until their times are periodic


def check_place(place: Place, question: StepQuestion) -> None:
    """Raise InputError if *place* is a CPU and *question* has options for GPUs."""
    if place.name != place.host:
        return
    if question.options.cuda_graph or question.options.cuda_graph_blocks:
        raise InputError(f"{place.name} is a CPU; a CUDA graph is for GPUs")
    if question.programs > 1:
        raise refused("programs", f"{place.name} is a CPU; programs share a GPU here", question.programs)


def alone_timeline(
    machine: Machine, place: Place, network: Network, question: StepQuestion, *, host_scale: float = 1.0
) -> Timeline:
    """Return the timeline of a step of *network* on *place* alone; raises InputError.

    *host_scale* multiplies the host's launch times.
    """
    check_place(place, question)
    issues = launches_of(place.device, network, question.options)
    node = machine.find(place.name)
    check_stragglers(machine, () if node is None else (node.index,), question.stragglers)
    pace = 1.0 if node is None else straggler_pace(machine, node.index, question.stragglers)
    if host_scale != 1.0:
        issues = tuple(replace(issue, host_s=host_scale * issue.host_s) for issue in issues)
    role = Role(place, -1, 1, issues, pace)
    return executed(partial(plan_alone, machine, role, question), machine, question.micro_batches)


def executed(
    write: Callable[..., Plan],
    machine: Machine,
    count: int,
    *,
    fold: bool = True,
    perturbations: tuple[Perturbation, ...] = (),
) -> Timeline:
    """Execute the plan that *write* returns; periodic ones among *count* micro-batches pass at once."""
    if perturbations:
        plan = write(batches=Batches(count))
        return execute(machine, replace(plan, perturbations=(*plan.perturbations, *perturbations)), fold=fold)
    for explicit in _EXPLICIT if fold else ():
        if count <= 2 * (explicit + 1):  # to find the period takes as long
            break
        first = execute(machine, write(batches=Batches(explicit + 1)), fold=fold)
        ends_s = [span.end_s for span in first.spans]
        found = periods_s(first.plan.tasks, ends_s, explicit)
        if found is not None:
            return execute(machine, write(batches=Batches(count, explicit, found)), fold=fold)
    return execute(machine, write(batches=Batches(count)), fold=fold)
