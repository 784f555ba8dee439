"""Results of steps on one or several devices, made from their timelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from simulator.collectives.nccl.strategy import KEPT
from simulator.engine.executor import alone
from simulator.engine.timeline import Timeline
from simulator.network.machine import Machine
from simulator.plan.plan import Fragment
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.results.bottleneck import bottleneck_of
from simulator.results.ran import StreamUse, run_counts, stream_uses
from simulator.results.result import counts_software, is_bound, staging_notes
from simulator.results.step import StepResult, peak_of
from simulator.results.training import TrainingResult
from simulator.results.training_run import DeviceMemory
from simulator.step.memory import MemoryNeed
from simulator.sums import sums_by_key
from simulator.training.exchange import STREAM, CollectiveLabel
from simulator.training.plan import SharedStep
from simulator.training.roles import MOST_ROLES, Role, slowest_of
from simulator.training.worker import ChunkRun

if TYPE_CHECKING:
    from simulator.step.launch import LayerCollective
    from simulator.training.pipeline import StageWork
    from simulator.workload.network import Network


def together_result(
    shared: SharedStep,
    roles: Sequence[Role],
    step_of: Callable[[int], StepResult],
    memory: Sequence[MemoryNeed],
    alone_s: Sequence[float],
    alone_rate: float,
    timeline: Timeline,
) -> TrainingResult:
    """Return the result of *timeline*, in which the ranks of *shared* had *roles*.

    *step_of* returns a role's view of the step; *memory* and *alone_s* are by role: its memory, and its seconds
    alone at its pace.  Of equally slow roles, the one that exchanges slow most is shown.
    """
    question = shared.question
    uses = dict(sorted(stream_uses(timeline).items(), key=lambda use: use[0].endswith(STREAM)))  # compute streams first
    prefixes = [f"{role.place.name}/" if len(roles) > 1 else "" for role in roles]
    busy_s = [uses.get(f"{prefix}compute", StreamUse()).busy_s for prefix in prefixes]
    slowest = max(range(len(roles)), key=lambda i: (alone_s[i], round(busy_s[i], 12)))
    prefix = prefixes[slowest]
    exchanged = _exchanged(timeline)
    compute = uses.get(f"{prefix}compute", StreamUse())
    exposed_s = sum(waited_s for stream, waited_s in compute.waits_s.items() if stream.endswith(STREAM))
    exchanging_s = sum(use.busy_s for stream, use in uses.items() if stream.endswith(STREAM))
    fragments = [
        (part, times)
        for task, times in zip(timeline.plan.tasks, run_counts(timeline), strict=True)
        for part in task.parts
        if isinstance(part, Fragment)
    ]
    largest = max((part for part, _ in fragments), key=lambda part: alone(timeline.machine, part).end_s, default=None)
    merged = []
    if less := max(role.less_loaded for role in roles):
        alike = f"those with the nearest loads, up to {less:.1%} apart, are slowed as the most loaded of them"
        merged = [f"exchanges load equal GPUs in more than {MOST_ROLES} ways; {alike}"]
    return TrainingResult(
        question=question,
        step=step_of(slowest),
        device_count=shared.group.n_ranks,
        alone_rate=alone_rate,
        exposed_s=min(exposed_s, exchanging_s),
        exchanging_s=exchanging_s,
        bottleneck=bottleneck_of(timeline.machine, fragments, timeline.end_s, timeline.plan.perturbations),
        memory=by_part(
            roles,
            [(role.network or shared.part, need) for role, need in zip(roles, memory, strict=True)],
            question.rank_options,
        ),
        streams=uses,
        counts_software=largest is None or counts_software(largest.plan.facts),
        is_bound=largest is not None and is_bound(largest.plan.facts),
        notes=(*_notes(timeline.machine, largest, [part for part, _ in fragments]), *merged),
        timeline=timeline,
        pace=_pace(question, roles, slowest),
        exchanges=sum(count for count, _ in exchanged),
        exchanged_bytes=sum(n_bytes for _, n_bytes in exchanged),
    )


def _notes(machine: Machine, largest: Fragment | None, fragments: Sequence[Fragment]) -> tuple[str, ...]:
    """Return the notes of the largest exchange, and those that any of *fragments* adds: on rates, on staging."""
    own = () if largest is None else largest.plan.notes
    plans = [fragment.plan for fragment in dict.fromkeys(fragments)]
    kept = [KEPT] if KEPT not in own and any(KEPT in plan.notes for plan in plans) else []
    return (*own, *kept, *staging_notes(machine, plans))


def _pace(question: StepQuestion, roles: Sequence[Role], slowest: int) -> float:
    """Return the time of the slowest rank with the same device as role *slowest*, relative to the mean."""
    device, pace = roles[slowest].place.device, roles[slowest].pace
    contends = question.contention and (question.options.trains or question.layout.zero == 3)
    if not contends or question.one_process:
        return pace
    of_stages = question.layout.pp > 1
    alike = [role for i, role in enumerate(roles) if role.place.device is device and (i == slowest or not of_stages)]
    return pace * slowest_of(sum(role.count for role in alike), device.constants)


def by_part(
    roles: Sequence[Role], needs: Sequence[tuple[Network, MemoryNeed]], options: StepOptions
) -> tuple[DeviceMemory, ...]:
    """Return the memory of *roles*, each with its network and need, with devices of equal part and need combined."""
    counts = sums_by_key(
        ((role.place.part, need, peak_of(network, options, role.place)), role.count)
        for role, (network, need) in zip(roles, needs, strict=True)
    )
    return tuple(DeviceMemory(part, count, need, peak) for (part, need, peak), count in counts.items())


def _exchanged(timeline: Timeline, prefix: str = "") -> list[tuple[int, float]]:
    """Return the (count, total bytes) of each exchange on the streams that start with *prefix*."""
    return [
        (times, times * task.about.size_bytes)
        for task, times in zip(timeline.plan.tasks, run_counts(timeline), strict=True)
        if isinstance(task.about, CollectiveLabel) and task.stream.startswith(prefix)
    ]


class StageTotals(NamedTuple):
    """The work of the busiest pipeline stage, number ``stage``, within the passes of a micro-batch.

    ``streams`` are the uses of its streams, ``sent`` its exchanges within layers, and ``parts`` these exchanges and
    those with the previous stage, each with its count per micro-batch.
    """

    stage: int
    streams: Mapping[str, StreamUse]
    sent: Sequence[LayerCollective]
    parts: Sequence[tuple[Fragment, int]] = ()


def pipeline_result(
    shared: SharedStep,
    stages: Sequence[StageWork],
    step: StepResult,
    memory: Sequence[MemoryNeed],
    alone_rate: float,
    timeline: Timeline,
    seen: StageTotals,
    largest: Fragment | None,
) -> TrainingResult:
    """Return the result of *timeline*, of *stages*; *step* is the view of the busiest one.

    *memory* is by stage; *largest* is the reduction of gradients that takes longest.
    """
    mine, question = f"stage {seen.stage}/", shared.question
    within_layers = [(question.micro_batches, float(question.micro_batches * each.size_bytes)) for each in seen.sent]
    exchanged = [*_exchanged(timeline, mine), *within_layers]
    uses = {stream.removeprefix(mine): use for stream, use in stream_uses(timeline).items() if stream.startswith(mine)}
    compute = uses.get("compute", StreamUse())
    exposed_s = compute.waits_s.pop(f"{mine}{STREAM}", 0.0)
    bubble_s = sum(compute.waits_s.values())
    summing_s = min(bubble_s + exposed_s, _summing_s(timeline))
    bubble_s += exposed_s - summing_s
    if exposed_s:
        compute.waits_s[STREAM] = exposed_s
    within_s = 0.0
    for stream, use in seen.streams.items():
        if stream == "host":
            waited_s = question.micro_batches * seen.streams["compute"].waits_s.get(stream, 0.0)
            compute.busy_s -= waited_s
            compute.waits_s[stream] = waited_s
        if stream.endswith(STREAM):
            busy_s = question.micro_batches * use.busy_s
            waited_s = question.micro_batches * seen.streams["compute"].waits_s.get(stream, 0.0)
            uses[stream] = StreamUse(busy_s)
            compute.busy_s -= waited_s
            compute.waits_s[stream] = waited_s
            within_s += waited_s
    exposed_s = within_s + summing_s
    exchanging_s = max(exposed_s, sum(use.busy_s for stream, use in uses.items() if stream != "compute"))
    exchanges = [(part, question.micro_batches * times) for part, times in seen.parts]
    if largest is not None:  # once for each reduction of the stage's gradients
        own = [task for task in timeline.plan.tasks if task.stream == f"{mine}{STREAM}"]
        exchanges.append((largest, sum(task.label != "all-gather" for task in own)))
    return TrainingResult(
        question=question,
        step=step,
        device_count=shared.group.n_ranks,
        alone_rate=alone_rate,
        exposed_s=exposed_s,
        exchanging_s=exchanging_s,
        bottleneck=bottleneck_of(timeline.machine, exchanges, timeline.end_s),
        memory=tuple(
            DeviceMemory(
                stage.role.place.part,
                stage.role.count,
                need,
                peak_of(stage.network, question.rank_options, stage.role.place),
                number,
                stage.network,
            )
            for number, (stage, need) in enumerate(zip(stages, memory, strict=True))
        ),
        streams=uses,
        counts_software=largest is None or counts_software(largest.plan.facts),
        is_bound=largest is not None and is_bound(largest.plan.facts),
        notes=_notes(timeline.machine, largest, [part for part, _ in exchanges]),
        timeline=timeline,
        bubble_s=bubble_s,
        tied_s=min(summing_s, _tied_s(timeline)),
        pace=_pace(question, [stage.role for stage in stages], seen.stage),
        exchanges=sum(count for count, _ in exchanged),
        exchanged_bytes=sum(n_bytes for _, n_bytes in exchanged),
    )


def _summing_s(timeline: Timeline) -> float:
    """Return the seconds in which a pipeline's gradients or parameters are exchanged while no stage computes."""
    passes = [span for task, span in timeline.ran(ChunkRun) if task.about.part != "update"]
    updates = [span for task, span in timeline.ran(ChunkRun) if task.about.part == "update"]
    if not passes or not updates:
        return 0.0
    before_s = min(span.start_s for span in passes)
    return (
        before_s
        + max(0.0, min(span.start_s for span in updates) - max(span.end_s for span in passes))
        + max(0.0, timeline.end_s - max(span.end_s for span in updates))
    )


def _tied_s(timeline: Timeline) -> float:
    """Return the seconds for which all passes and other sums are done, but not that of the stages' tied parameters."""
    tied_s, others_s = 0.0, 0.0
    for task, span in timeline.ran():
        about = task.about
        if isinstance(about, CollectiveLabel) and about.of_tied:
            tied_s = max(tied_s, span.end_s)
        elif isinstance(about, ChunkRun) and about.part == "update":
            break
        else:
            others_s = max(others_s, span.end_s)
    return max(0.0, tied_s - others_s)
