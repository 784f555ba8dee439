"""What device memory holds over a step, from its first kernel to its last."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.results.step import StepResult
from simulator.results.training import TrainingResult
from simulator.step.memory import held_in
from simulator.training.worker import Issued
from simulator.workload.backward import backward_steps
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["HeldAt", "held_over"]

_AGREES = 0.01  # relative; otherwise the step keeps shares of what a whole one keeps, and is not followed here


@dataclass(frozen=True, slots=True)
class HeldAt:
    """Bytes at a time: what stays all the time, and what comes and goes."""

    at_s: float
    lasting_bytes: float
    activations_bytes: float
    gradients_bytes: float
    working_bytes: float

    @property
    def total_bytes(self) -> float:
        """All together."""
        return self.lasting_bytes + self.activations_bytes + self.gradients_bytes + self.working_bytes


def held_over(result: TrainingResult) -> list[HeldAt]:
    """Return what the device of *result* holds after each layer, forward and backward; nothing where it is not known.

    That is of a whole replica and one micro-batch; its most agrees with what the step needs, or there is no answer.
    """
    step, need, layout = result.step, result.tightest.need, result.question.layout
    if not step.options.trains or step.micro_batches > 1 or step.options.recompute:
        return []
    if layout.zero or layout.divides_network or result.shares:
        return []
    ends = _ends(step)
    network, lasting = step.network, need.parameters_bytes + need.optimizer_bytes + need.context_bytes
    steps, moments = backward_steps(network), held_in(network, step.options).moments
    forward = [
        HeldAt(at_s, lasting, moment[0], 0.0, 0.0)
        for each, moment in zip(reversed(steps), reversed(moments[1:]), strict=True)
        if (at_s := ends.get((each.layer.name, "forward"))) is not None
    ]
    backward = [
        HeldAt(at_s, lasting, *map(float, moment))
        for each, moment in zip(steps, moments[1:], strict=True)
        if (at_s := ends.get((each.layer.name, "backward"))) is not None
    ]
    found = [HeldAt(0.0, lasting, 0.0, 0.0, 0.0), *forward, *backward]
    found.sort(key=lambda held: held.at_s)
    if backward and step.step_time_s > found[-1].at_s:
        gradients = moments[-1][1]
        found.append(HeldAt(step.step_time_s, lasting, 0.0, gradients, 0.0))
    most = max(held.total_bytes for held in found)
    for more_bytes in (0.0, step.trained_count * ELEMENT_BYTES["fp32"]):  # replicas copy gradients into buckets
        if abs(most + more_bytes - need.total_bytes) <= _AGREES * need.total_bytes:
            return [replace(held, lasting_bytes=held.lasting_bytes + more_bytes) for held in found]
    return []


def _ends(step: StepResult) -> dict[tuple[str, str], float]:
    """Return when each layer has run, forward and backward."""
    found: dict[tuple[str, str], float] = {}
    for task, span in zip(step.timeline.plan.tasks, step.timeline.spans, strict=True):
        about = task.about
        if isinstance(about, Issued) and task.stream.startswith(step.prefix) and about.issue.layer:
            found[about.issue.layer, about.issue.part] = span.end_s
    return found
