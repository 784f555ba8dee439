"""A lower bound of a step's time without simulating it: :func:`least_s`."""

from __future__ import annotations

from simulator.api.session import Session
from simulator.questions.step import StepQuestion
from simulator.step.issue import issues_of
from simulator.training.divide import divided
from simulator.training.memory import most_needed
from simulator.training.plan import contend
from simulator.training.slowest import slowest_of

_ROUNDED = 1 - 1e-9  # allows for rounding when the same seconds are added in another order


def least_s(session: Session, question: StepQuestion) -> float:
    """Return a lower bound of the step time of *question*, in seconds; raises InputError where it cannot be divided.

    The slowest device runs the kernels of all micro-batches one after the other, each for at least its time alone.  The
    bound is 0 for steps that do not fit in memory, and for pipelines, unlike devices, parameter servers and single
    processes for all GPUs.
    """
    group = session.group(question.where, question.gpus)
    layout = question.layout.on(group.n_ranks)
    places = session.places(question.where, question.software)
    devices = {places.place(node.index).device for node in group.machine.unlike(group.ranks)}
    if layout.pp > 1 or len(devices) > 1 or question.one_process or question.has_servers:
        return 0.0
    (device,) = devices
    part = divided(session.network(question), layout)
    if not most_needed(part, question, device, layout).fits:
        return 0.0
    issues = [issue for issue in issues_of(device, part, question.rank_options) if issue.part != "update"]
    batch_s = sum(issue.device_s for issue in issues if not issue.adds)  # the first micro-batch accumulates nothing
    pace = slowest_of(group.n_ranks, device.constants) if contend(question) else 1.0
    return question.micro_batches * pace * batch_s * _ROUNDED
