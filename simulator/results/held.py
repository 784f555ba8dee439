"""The contents of device memory over a step, from its first kernel to its last (docs/decisions/results.md)."""

from collections import Counter
from collections.abc import Sequence

from simulator.records import dataclass, replace
from simulator.results.step import StepResult
from simulator.results.training import TrainingResult
from simulator.step.memory import MemoryNeed, NetworkMemory, held_in, moments_of, parameter_gradient_bytes
from simulator.step.moments import Moment, tape_of
from simulator.training.memory import bucket_bytes_of, gathered_elements, rank_shares, stage_options
from simulator.training.worker import ChunkRun, LaunchLabel
from simulator.workload.network import Network

_ROUNDED = 1e-9  # shares of a pass that add up


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
    if not result.step.options.trains:
        return "memory over time is drawn for training steps"
    if result.shares or result.question.has_servers or result.question.programs > 1:
        return "memory over time is drawn where all devices run the same step, one program each"
    return ""


def held_over(result: TrainingResult) -> list[HeldAt]:
    """Return a rank's memory after each layer, or the fullest stage's after each pass; the step needs the most of it.

    Empty where :func:`not_followed` gives a reason.
    """
    step, need, options = result.step, result.tightest.need, result.step.options
    if not_followed(result):
        return []
    layout = result.question.layout.on(result.device_count)
    if result.tightest.network is not None:
        return _held_in_stage(result, result.tightest.network)
    held = held_in(step.network, options, in_blocks=layout.zero == 3)
    shares = rank_shares(held, gathered_elements(step.network, layout), result.question, layout)

    def moments(of: NetworkMemory) -> list[list[Moment]]:
        return [moments_of(of, options, replace(shares, accumulates=adds)) for adds in (False, True)]

    first = moments(held)[0]
    lasting = _lasting_bytes(need, first) + bucket_bytes_of(held, result.question, layout)
    found = [HeldAt(0.0, lasting, 0.0, 0.0, 0.0)]
    tape = tape_of(step.network, options, parameter_gradient_bytes(options), in_blocks=layout.zero == 3)
    in_layers = replace(held, moments=(held.moments[0], *tape.layers))
    of_parts = {
        part: [_by_layer(step.network, each) for each in moments(of)]
        for part, of in (("forward", in_layers), ("backward", held))
    }
    for end_s, name, part, micro_batch in _ends(step):
        of_layer = of_parts[part][micro_batch > 0] if part in of_parts else {}
        if name in of_layer:
            found.append(_held_at(end_s, lasting, of_layer[name]))
    if options.mode == "train" and step.step_time_s > found[-1].at_s:
        found.append(_held_at(step.step_time_s, lasting, first[-1]))
    return found


def _held_in_stage(result: TrainingResult, network: Network) -> list[HeldAt]:
    question = result.question
    layout, stage, of_chunks = question.layout.on(result.device_count), result.tightest.stage, result.tightest.shares
    options = stage_options(question.rank_options, layout)
    held = held_in(network, options, in_blocks=layout.zero == 3)
    shares = rank_shares(held, gathered_elements(network, layout), question, layout)
    lasting = _lasting_bytes(result.tightest.need, moments_of(held, options, shares))
    lasting += bucket_bytes_of(held, question, layout)
    found, in_flight, done = [HeldAt(0.0, lasting, 0.0, 0.0, 0.0)], 0.0, 0.0
    computed = Counter[tuple[str, int, int]]()

    def moments() -> list[Moment]:
        kept = replace(shares, in_flight=round(in_flight, 9), accumulates=min(1.0, round(done, 9)))
        return moments_of(held, options, kept)

    for task, span in result.timeline.ran(ChunkRun):
        if task.stream != f"stage {stage}/compute":
            continue
        part, about = task.about.part, task.about
        if part == "update":
            found.append(_held_at(span.end_s, lasting, moments()[-1]))
            continue
        key = (part, about.micro_batch, about.chunk)
        computed[key] += about.share
        ended = of_chunks[about.chunk] if computed[key] > 1.0 - _ROUNDED else 0.0
        if part == "forward":
            in_flight += ended
        else:
            most = max(moments()[: len(held.moments)], key=lambda moment: moment.total_bytes)
            found.append(_held_at((span.start_s + span.end_s) / 2, lasting, most))
            in_flight, done = in_flight - ended, done + ended
        found.append(_held_at(span.end_s, lasting, moments()[0]._replace(working_bytes=0.0, casts_bytes=0.0)))
    return found


def _lasting_bytes(need: MemoryNeed, moments: Sequence[Moment]) -> float:
    casts = max(moments, key=lambda moment: moment.total_bytes).casts_bytes
    outside = need.context_bytes + need.communication_bytes + need.cached_bytes
    return need.parameters_bytes - casts + need.optimizer_bytes + need.workspace_bytes + outside


def _by_layer(network: Network, moments: Sequence[Moment]) -> dict[str, Moment]:
    found: dict[str, Moment] = {}
    for moment in moments:
        if moment.place >= 0:
            name = network.layers[moment.place].name
            found[name] = max(found.get(name, moment), moment, key=lambda each: each.total_bytes)
    return found


def _held_at(at_s: float, lasting: float, moment: Moment) -> HeldAt:
    working = moment.working_bytes + moment.casts_bytes
    return HeldAt(at_s, lasting, moment.activations_bytes, moment.gradients_bytes, working)


def _ends(step: StepResult) -> list[tuple[float, str, str, int]]:
    found: dict[tuple[str, str, int], float] = {}
    for task, span in step.timeline.ran(LaunchLabel):
        about = task.about
        if task.stream.startswith(step.prefix) and about.issue.layer:
            key = about.issue.layer, about.issue.part, about.micro_batch
            found[key] = max(span.end_s, found.get(key, 0.0))
    return sorted((end_s, *key) for key, end_s in found.items())
