"""One step of a network, on one device or over several.  The models of devices are imported when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from simulator.collectives.communicator import Communicator
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import CpuLibrary, Where
from simulator.workload.network import Network, once

if TYPE_CHECKING:
    from simulator.collectives.request import Strategy
    from simulator.engine.timeline import Timeline
    from simulator.places import Place, Places
    from simulator.plan.plan import Plan
    from simulator.questions.calibration import Calibration
    from simulator.results.step import StepResult
    from simulator.results.training import TrainingResult
    from simulator.training.roles import Role

_EXPLICIT = (3, 6, 12)  # micro-batches that are tried one by one, until each takes as long as the one before

__all__ = [
    "alone_timeline",
    "run_alone",
    "run_together",
    "simulate_step",
    "simulate_training",
    "together_timeline",
]


def simulate_step(
    machine: Machine,
    network: Network,
    options: StepOptions | None = None,
    *,
    device: str | None = None,
    threads: int | None = None,
    cpu_library: CpuLibrary = "onednn",
    calibrations: Mapping[str, Calibration] | None = None,
) -> StepResult:
    """Simulate one step of *network* on one device of *machine*.

    Parameters
    ----------
    options : StepOptions, optional
        What a step does; a training step as PyTorch runs it when nothing is set otherwise.
    device : str, optional
        The machine's name of a GPU or a CPU, or ``cpu`` for all sockets; its first GPU otherwise, or its
        CPUs where it has none.
    threads : int, optional
        Of a CPU; one for each core otherwise.
    cpu_library : str
        What a CPU's kernels are from: ``onednn``, or ``blas`` as frameworks of 2016 used it.
    calibrations : mapping of str to Calibration, optional
        Constants of single devices, by the name of their part.

    Raises InputError where the machine has no such device, or the device lacks a figure that the step needs or cannot
    do what *options* ask.
    """
    from simulator.places import Places

    place = Places(machine, calibrations).find(device, threads=threads, library=cpu_library)
    return run_alone(machine, place, network, _asked(machine, network, options or StepOptions()))


def simulate_training(
    machine: Machine,
    network: Network,
    options: StepOptions | None = None,
    *,
    gpus: Sequence[int] | None = None,
    strategy: str | Strategy = "nccl",
    calibrations: Mapping[str, Calibration] | None = None,
    fold: bool = True,
    **asked: Any,
) -> TrainingResult:
    """Simulate one step of *network* on each of *gpus* of *machine* (all of them where None is said).

    *asked* are other fields of :class:`~simulator.questions.step.StepQuestion`: ``parallel``, ``bucket_bytes``, ...
    *fold*: ranks that do the same are simulated once; the result is the same without.

    Raises InputError as :func:`simulate_step`; or where *strategy* does not fit, saying why.
    """
    from simulator.api.collectives import chosen_gpus
    from simulator.collectives.request import Unsuitable
    from simulator.places import Places

    name = strategy if isinstance(strategy, str) else strategy.name
    question = _asked(machine, network, options or StepOptions(), strategy=name, **asked)
    group = Communicator(machine, chosen_gpus(machine, gpus))
    try:
        return run_together(Places(machine, calibrations), network, question, group, strategy, fold=fold)
    except Unsuitable as error:
        raise InputError(f"{name} does not fit {machine.name}: {error}") from None


def _asked(machine: Machine, network: Network, options: StepOptions, **more: Any) -> StepQuestion:
    return StepQuestion(
        where=Where(machine.name), workload=network.name, batch=network.samples, options=options, **more
    )


def alone_timeline(
    machine: Machine, place: Place, network: Network, question: StepQuestion, *, host_scale: float = 1.0
) -> Timeline:
    """Return when a step of *network* happens at *place* by itself; raises InputError.

    *host_scale*: by how much the host takes longer to issue than its constants say.
    """
    from simulator.step.issue import issues_of
    from simulator.training.plan import plan_step
    from simulator.training.roles import Role

    if question.options.cuda_graph and place.name == place.host:
        raise InputError(f"{place.name} is a CPU; a CUDA graph is for GPUs")
    issues = issues_of(place.device, network, question.options)
    if host_scale != 1.0:
        issues = tuple(replace(issue, host_s=host_scale * issue.host_s) for issue in issues)
    role = Role(place, -1, 1, issues)
    return _timeline(partial(plan_step, machine, [role], network, question), machine, question.micro_batches)


def run_alone(machine: Machine, place: Place, network: Network, question: StepQuestion) -> StepResult:
    """Return the step of *network* at *place* by itself; raises InputError."""
    from simulator.results.step import make_step_result
    from simulator.step.memory import memory_need

    return make_step_result(
        machine=machine.name,
        place=place,
        network=network,
        options=question.options,
        memory=memory_need(network, question.options, place.device),
        timeline=alone_timeline(machine, place, network, question),
        micro_batches=question.micro_batches,
    )


def together_timeline(
    places: Places,
    network: Network,
    question: StepQuestion,
    group: Communicator,
    strategy: str | Strategy,
    *,
    fold: bool = True,
) -> tuple[list[Role], Timeline]:
    """Return the roles that the ranks of *group* play in a step, and when it happens; raises Unsuitable, InputError."""
    from simulator.training.plan import plan_step
    from simulator.training.roles import roles_of

    machine = places.machine
    roles = roles_of(places, group.ranks, network, question.options, fold=fold)
    write = partial(plan_step, machine, roles, network, question, group, strategy)
    return roles, _timeline(write, machine, question.micro_batches, fold=fold)


def run_together(
    places: Places,
    network: Network,
    question: StepQuestion,
    group: Communicator,
    strategy: str | Strategy,
    *,
    fold: bool = True,
) -> TrainingResult:
    """Return the step of *network* that the ranks of *group* do together; raises Unsuitable or InputError."""
    from simulator.results.step import make_step_result
    from simulator.results.training import together_result
    from simulator.training.memory import device_memory

    machine, options, count = places.machine, question.options, question.micro_batches
    roles, timeline = together_timeline(places, network, question, group, strategy, fold=fold)
    steps, memory, alone_s = [], [], []
    for role in roles:
        need = device_memory(network, question, role.place.device, group.n_ranks)
        memory.append(need)
        steps.append(
            make_step_result(
                machine=machine.name,
                place=role.place,
                network=network,
                options=options,
                memory=need,
                timeline=timeline,
                prefix=f"{role.place.name}/" if len(roles) > 1 else "",
                micro_batches=count,
            )
        )
        alone_s.append(_alone_s(machine, role.place, network, options, count))
    return together_result(question, group, roles, steps, memory, alone_s, timeline)


@once
def _alone_s(machine: Machine, place: Place, network: Network, options: StepOptions, micro_batches: int) -> float:
    """Return how long a step takes at *place* by itself."""
    question = _asked(machine, network, options, micro_batches=micro_batches)
    return alone_timeline(machine, place, network, question).end_s


def _timeline(write: Callable[..., Plan], machine: Machine, count: int, *, fold: bool = True) -> Timeline:
    """Execute the plan that *write* returns; of *count* micro-batches those that are alike pass at once."""
    from simulator.engine.executor import execute
    from simulator.training.micro_batches import Batches, periods_s

    for explicit in _EXPLICIT if fold else ():
        if count <= explicit + 1:
            break
        first = execute(machine, write(batches=Batches(explicit + 1)), fold=fold)
        ends_s = [span.end_s for span in first.spans]
        found = periods_s(first.plan.tasks, ends_s, explicit)
        if found is not None:
            return execute(machine, write(batches=Batches(count, explicit, found)), fold=fold)
    return execute(machine, write(batches=Batches(count)), fold=fold)
