"""What answers each kind of question beside its own room (docs/decisions/results.md): :func:`composed`."""

from collections.abc import Callable
from typing import Any

from simulator.api.context import Context, chosen_gpus
from simulator.bands import FORMATS, host_chain, kernel_chain
from simulator.bands.composition import AnswerFacts, Composition, class_shares
from simulator.collectives.lower import alpha_beta_ring_s
from simulator.devices.predict import kernel_cost
from simulator.engine.executor import execute
from simulator.host.answer import HostTime, check_copy
from simulator.host.copies import copy_answer, copy_bound_s, copy_plan, copy_within_s
from simulator.host.disks import disk_answer, disk_bound_s, requests_plan
from simulator.host.launches import core_answer, launch_answer, launch_kernels_s
from simulator.host.memory import access_answer, access_bound_s
from simulator.host.messages import message_answer, message_bound_s
from simulator.questions.calibration import Calibration
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.single import CopyQuestion, DiskQuestion, OperatorQuestion
from simulator.questions.step import StepQuestion
from simulator.records import replace
from simulator.results.changed import is_changed
from simulator.results.confidence import collective_composition, exchange_facts, generation_of, main_format, steps_alike
from simulator.results.step import flop_by_format_of
from simulator.step.operator import network_kernel_classes, network_roofline_s, operator_kernels, operator_roofline_s
from simulator.workload.kernels import error_class, kernel_class
from simulator.workload.network import family_of


def _copy(context: Context, question: CopyQuestion) -> HostTime:
    check_copy(question)
    places, router = context.places(question.where), context.group(question.where, None).router
    time_s = copy_within_s(question, places)
    if time_s is None:
        time_s = execute(places.machine, copy_plan(question, places, router)).end_s
    return copy_answer(question, places, router, time_s)


def _disk(context: Context, question: DiskQuestion) -> HostTime:
    machine = context.machine(question.where)
    answer = disk_answer(question, machine, context.places(question.where))
    found = None if question.hit_percent else requests_plan(machine, question)
    if found is None:
        return answer
    plan, blocks = found  # a queue with slots, which the engine simulates
    return replace(answer, time_s=max(answer.time_s, execute(machine, plan).end_s / blocks))


ANSWERS: dict[str, Callable[[Context, Any], HostTime]] = {
    "copy": _copy,
    "launch": lambda context, q: launch_answer(q, context.device(q.where, q.device)),
    "access": lambda context, q: access_answer(q, context.machine(q.where), context.places(q.where)),
    "disk": _disk,
    "message": lambda context, q: message_answer(q, context.places(q.where), context.router(q.where)),
    "core": lambda context, q: core_answer(q, context.machine(q.where)),
}


def _least_of_exchange(context: Context, question: CollectiveQuestion) -> float:
    group = context.group(question.where, question.gpus)
    first = group.part(range(question.group_size or group.n_ranks))
    return alpha_beta_ring_s(first, question.collective, question.size_bytes)


def _least_of_step(context: Context, question: StepQuestion) -> float:
    device = context.device(question.where, question.device)
    whole_s = network_roofline_s(context.network(question), question.options, device)
    return float(question.micro_batches * whole_s / question.layout.model_ranks)


LEAST: dict[str, Callable[[Context, Any], float]] = {
    "collective": _least_of_exchange,
    "step": _least_of_step,
    "operator": lambda context, q: operator_roofline_s(q, context.device(q.where, q.device, q.threads)),
    "copy": lambda context, q: copy_bound_s(q, context.places(q.where), context.group(q.where, None).router),
    "launch": lambda context, q: launch_kernels_s(q, context.device(q.where, q.device)),
    "access": lambda context, q: access_bound_s(q, context.device(q.where, q.device, q.threads)),
    "disk": lambda context, q: disk_bound_s(q, context.machine(q.where)),
    "message": lambda context, q: message_bound_s(q, context.router(q.where)),
}


def composed(context: Context, question: Any) -> Composition:
    """Return the classes of the answer to *question*, none if its kind was never measured; raises InputError."""
    known = COMPOSED.get(question.topic)
    if known is None:
        return Composition((), (), AnswerFacts(kind="host", place="", what=question.topic))
    return known(context, question)


def _operator(context: Context, question: OperatorQuestion) -> Composition:
    device = context.device(question.where, question.device, question.threads)
    place = context.places(question.where).find(question.device, threads=question.threads)
    kernels = operator_kernels(question)
    costs = [kernel_cost(device, kernel, 1.0 if question.is_cold else 0.0) for kernel in kernels]
    form = question.precision
    times_s = [
        (kernel_chain(error_class(kernel), cost.bound, form if cost.flop else ""), kernel, cost.time_s, cost.known)
        for kernel, cost in zip(kernels, costs, strict=True)
    ]
    part = context.places(question.where).part(question.device)
    facts = AnswerFacts(
        kind="operator",
        place=place.part.rpartition(" x ")[2],
        generation=generation_of(part),
        form=FORMATS.get(form, form),
        calibrated=device.calibration != Calibration(),
        kernels=tuple(sorted(set(map(kernel_class, kernels)))),
    )
    return Composition((), class_shares(times_s, sum(cost.time_s for cost in costs)), facts)


def _collective(context: Context, question: CollectiveQuestion) -> Composition:
    group = context.group(question.where, question.gpus)
    ranks = group.ranks[: question.group_size or group.n_ranks]
    what = question.collective, question.size_bytes, question.strategy
    return collective_composition(group.machine, ranks, *what, changed=is_changed(question))


def _step(context: Context, question: StepQuestion) -> Composition:
    places, network = context.places(question.where, question.software), context.network(question)
    machine = places.machine
    gpus = len(machine.gpus) if question.gpus is None else len(question.gpus)
    count = 1 if question.device is not None else max(1, gpus)
    strategy = question.exchanges_by(count)
    place = places.find(question.device, threads=question.threads)
    return steps_alike(
        family_of(network),
        main_format(flop_by_format_of(network, question.options, place)),
        divided=question.layout.divides_network,
        trains=question.options.mode == "train",
        place=place.part.rpartition(" x ")[2],
        generation=generation_of(places.part(question.device)),
        network=network.name,
        ranks=count,
        calibrated=place.device.calibration != Calibration(),
        kernels=tuple(network_kernel_classes(network, trains=question.options.trains)),
        exchange=strategy
        and exchange_facts(machine, chosen_gpus(machine, question.gpus), strategy, changed=is_changed(question)),
        changed=is_changed(question),
    )


def _of_host(context: Context, question: Any, kind: str, what: str, size_bytes: float | None = None) -> Composition:
    name = context.machine(question.where).name
    facts = AnswerFacts(kind="host", place=name, what=kind, changed=is_changed(question))
    return Composition(host_chain(kind, what, size_bytes), (), facts)


COMPOSED: dict[str, Callable[[Context, Any], Composition]] = {
    "operator": _operator,
    "collective": _collective,
    "step": _step,
    "copy": lambda context, q: _of_host(context, q, "copy", q.kind, q.size_bytes),
    "access": lambda context, q: _of_host(context, q, "access", q.kind),
    "launch": lambda context, q: _of_host(context, q, "launch", q.call or q.timed),
}
