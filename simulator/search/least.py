"""What a way to do a step takes at least, without simulating it: :func:`least_s`."""

from __future__ import annotations

from simulator.api.session import Session
from simulator.questions.step import StepQuestion
from simulator.step.issue import issues_of
from simulator.training.divide import divided
from simulator.training.memory import most_needed
from simulator.training.plan import contend
from simulator.training.slowest import slowest_of

__all__ = ["least_s"]

_ROUNDED = 1 - 1e-9  # what sums of the same seconds in another order may differ by


def least_s(session: Session, question: StepQuestion) -> float:
    """Return seconds that the step of *question* takes at least; raises InputError where it cannot be divided so.

    The slowest device runs the kernels of all micro-batches one after the other, each for at least as long as by
    itself.  Nothing (0) is said of a step that does not fit into memory, of stages, and of unlike devices.
    """
    group = session.group(question.where, question.gpus)
    layout = question.layout.on(group.n_ranks)
    places = session.places(question.where)
    devices = {places.place(node.index).device for node in group.machine.unlike(group.ranks)}
    if layout.pp > 1 or len(devices) > 1 or question.one_process or question.has_servers:
        return 0.0
    (device,) = devices
    part = divided(session.network(question), layout)
    if not most_needed(part, question, device, layout).fits:
        return 0.0
    issues = [issue for issue in issues_of(device, part, question.options) if issue.part != "update"]
    batch_s = sum(issue.device_s for issue in issues if not issue.adds)  # the first micro-batch adds nothing up
    pace = slowest_of(group.n_ranks, device.constants) if contend(question) else 1.0
    return question.micro_batches * pace * batch_s * _ROUNDED
