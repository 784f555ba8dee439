"""The contents of device memory over a step, from its first kernel to its last."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.records import dataclass, replace
from simulator.results.step import StepResult
from simulator.results.training import TrainingResult
from simulator.step.memory import HeldMoment, held_in, moments_of, parameter_gradient_bytes
from simulator.step.moments import tape_of
from simulator.training.memory import bucket_bytes_of, gathered_elements, rank_shares
from simulator.training.worker import LaunchLabel
from simulator.workload.network import Network


@dataclass(frozen=True, slots=True)
class HeldAt:
    """Bytes in use at ``at_s``: those that last the whole step, and those that come and go."""

    at_s: float
    lasting_bytes: float
    activations_bytes: float
    gradients_bytes: float
    working_bytes: float

    @property
    def total_bytes(self) -> float:
        """All bytes in use."""
        return self.lasting_bytes + self.activations_bytes + self.gradients_bytes + self.working_bytes


def not_followed(result: TrainingResult) -> str:
    """Return why the memory of *result* cannot be followed over the step; empty if it can."""
    options, layout = result.step.options, result.question.layout
    if not options.trains:
        return "memory over time is drawn for training steps"
    if layout.pp > 1:
        return "memory over time is drawn without pipeline stages"
    if result.shares or result.question.has_servers or result.question.programs > 1:
        return "memory over time is drawn where all devices run the same step, one program each"
    return ""


def held_over(result: TrainingResult) -> list[HeldAt]:
    """Return the memory use of one rank of *result* after each layer, forward and backward, in each micro-batch.

    Its maximum is the memory that the step needs.  Empty if :func:`not_followed` gives a reason.
    """
    step, need = result.step, result.tightest.need
    if not_followed(result):
        return []
    layout = result.question.layout.on(result.device_count)
    held = held_in(step.network, step.options)
    shares = rank_shares(held, gathered_elements(step.network, layout), result.question, layout)
    buckets = bucket_bytes_of(held, result.question, layout)
    first, later = (moments_of(held, step.options, replace(shares, accumulates=adds)) for adds in (False, True))
    casts = max(first, key=lambda moment: moment.total_bytes).casts_bytes
    lasting = need.parameters_bytes - casts + need.optimizer_bytes + need.context_bytes + need.cached_bytes + buckets
    found = [HeldAt(0.0, lasting, 0.0, 0.0, 0.0)]
    backward = [_by_layer(step.network, moments) for moments in (first, later)]
    tape = tape_of(step.network, step.options, parameter_gradient_bytes(step.options))
    in_layers = replace(held, moments=(held.moments[0], *tape.layers))
    forward = [
        _by_layer(step.network, moments_of(in_layers, step.options, replace(shares, accumulates=adds)))
        for adds in (False, True)
    ]
    for end_s, name, part, micro_batch in _ends(step):
        of_layer = (backward if part == "backward" else forward)[micro_batch > 0]
        if name in of_layer and part in ("forward", "backward"):
            found.append(_held_at(end_s, lasting, of_layer[name]))
    if step.options.mode == "train" and step.step_time_s > found[-1].at_s:
        found.append(_held_at(step.step_time_s, lasting, first[-1]))
    return found


def _by_layer(network: Network, moments: Sequence[HeldMoment]) -> dict[str, HeldMoment]:
    """Return the highest of the *moments* in the pass of each layer, by the layer's name."""
    found: dict[str, HeldMoment] = {}
    for moment in moments:
        if moment.place >= 0:
            name = network.layers[moment.place].name
            found[name] = max(found.get(name, moment), moment, key=lambda each: each.total_bytes)
    return found


def _held_at(at_s: float, lasting: float, moment: HeldMoment) -> HeldAt:
    working = moment.working_bytes + moment.casts_bytes
    return HeldAt(at_s, lasting, moment.activations_bytes, moment.gradients_bytes, working)


def _ends(step: StepResult) -> list[tuple[float, str, str, int]]:
    """Return the end of each layer's last kernel, as sorted (end, layer, part, micro-batch)."""
    found: dict[tuple[str, str, int], float] = {}
    for task, span in step.timeline.ran(LaunchLabel):
        about = task.about
        if task.stream.startswith(step.prefix) and about.issue.layer:
            key = about.issue.layer, about.issue.part, about.micro_batch
            found[key] = max(span.end_s, found.get(key, 0.0))
    return sorted((end_s, *key) for key, end_s in found.items())
