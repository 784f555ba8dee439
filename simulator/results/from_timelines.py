"""Results of steps on one or several devices, made from their timelines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from simulator.collectives.nccl.strategy import KEPT
from simulator.engine.executor import alone
from simulator.engine.timeline import Span, Timeline
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
from simulator.training.plan import SharedStep
from simulator.training.roles import MOST_ROLES, Role, slowest_of
from simulator.training.schedules import passing_each
from simulator.training.worker import STREAM, ChunkRun, CollectiveLabel

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
    question, machine = shared.question, timeline.machine
    uses = dict(sorted(stream_uses(timeline).items(), key=lambda use: use[0].endswith(STREAM)))  # compute streams first
    of_roles = [uses.get(f"{role.place.name}/compute" if len(roles) > 1 else "compute", StreamUse()) for role in roles]
    slowest = max(range(len(roles)), key=lambda i: (alone_s[i], round(of_roles[i].busy_s, 12)))
    waits_s = of_roles[slowest].waits_s.items()
    exposed_s = sum(waited_s for stream, waited_s in waits_s if stream.endswith(STREAM))
    exchanging_s = sum(use.busy_s for stream, use in uses.items() if stream.endswith(STREAM))
    fragments = [
        (part, times)
        for task, times in zip(timeline.plan.tasks, run_counts(timeline), strict=True)
        for part in task.parts
        if isinstance(part, Fragment)
    ]
    merged = []
    if less := max(role.less_loaded for role in roles):
        alike = f"those with the nearest loads, up to {less:.1%} apart, are slowed as the most loaded of them"
        merged = [f"exchanges load equal GPUs in more than {MOST_ROLES} ways; {alike}"]
    needs = [(role.network or shared.part, need) for role, need in zip(roles, memory, strict=True)]
    return _result(
        shared,
        step_of(slowest),
        alone_rate,
        timeline,
        max((part for part, _ in fragments), key=lambda part: alone(machine, part).end_s, default=None),
        (part for part, _ in fragments),
        _exchanged(timeline),
        merged=merged,
        exposed_s=min(exposed_s, exchanging_s),
        exchanging_s=exchanging_s,
        bottleneck=bottleneck_of(machine, fragments, timeline.end_s, timeline.plan.perturbations),
        memory=by_part(roles, needs, question.rank_options),
        streams=uses,
        pace=_pace(question, roles, slowest),
    )


def _result(
    shared: SharedStep,
    step: StepResult,
    alone_rate: float,
    timeline: Timeline,
    largest: Fragment | None,
    fragments: Iterable[Fragment],
    exchanged: Sequence[tuple[int, float]],
    *,
    merged: Sequence[str] = (),
    **more: Any,
) -> TrainingResult:
    """Return the result of *timeline*, with *more* of it.

    The notes are those of the *largest* exchange, and those that any of *fragments* adds: on rates, on staging; then
    what was *merged*.  *exchanged* are the (count, total bytes) of its exchanges.
    """
    plans = [fragment.plan for fragment in dict.fromkeys(fragments)]
    own, facts = ((), {"software": 1}) if largest is None else (largest.plan.notes, largest.plan.facts)
    kept = [KEPT] if KEPT not in own and any(KEPT in plan.notes for plan in plans) else []
    return TrainingResult(
        question=shared.question,
        step=step,
        device_count=shared.group.n_ranks,
        alone_rate=alone_rate,
        counts_software=counts_software(facts),
        is_bound=is_bound(facts),
        notes=(*own, *kept, *staging_notes(timeline.machine, plans), *merged),
        timeline=timeline,
        exchanges=sum(count for count, _ in exchanged),
        exchanged_bytes=sum(n_bytes for _, n_bytes in exchanged),
        **more,
    )


def _pace(question: StepQuestion, roles: Sequence[Role], slowest: int) -> float:
    """Return the time of the slowest rank with the same device as role *slowest*, relative to the mean."""
    device, pace = roles[slowest].place.device, roles[slowest].pace
    contends = question.contention and (question.options.trains or question.layout.zero == 3)
    if not contends:
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
    memory: Sequence[tuple[MemoryNeed, tuple[float, ...]]],
    alone_rate: float,
    timeline: Timeline,
    seen: StageTotals,
    largest: Fragment | None,
) -> TrainingResult:
    """Return the result of *timeline*, of *stages*; *step* is the view of the busiest one.

    *memory* is by stage, with the share of each chunk in what it saves; *largest* is the reduction of gradients that
    takes longest.
    """
    mine, question = f"stage {seen.stage}/", shared.question
    count = passing_each(question.layout, question.micro_batches)
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
        if stream == "host" or stream.endswith(STREAM):
            waited_s = count * seen.streams["compute"].waits_s.get(stream, 0.0)
            compute.busy_s -= waited_s
            compute.waits_s[stream] = waited_s
            if stream != "host":
                uses[stream] = StreamUse(count * use.busy_s)
                within_s += waited_s
    exposed_s = within_s + summing_s
    exchanging_s = max(exposed_s, sum(use.busy_s for stream, use in uses.items() if stream != "compute"))
    exchanges = [(part, count * times) for part, times in seen.parts]
    if largest is not None:  # once for each reduction of the stage's gradients
        own = [task for task in timeline.plan.tasks if task.stream == f"{mine}{STREAM}"]
        exchanges.append((largest, sum(task.label != "all-gather" for task in own)))
    devices = []
    for number, (stage, (need, shares)) in enumerate(zip(stages, memory, strict=True)):
        place, network = stage.role.place, stage.network
        peak = peak_of(network, question.rank_options, place)
        devices.append(DeviceMemory(place.part, stage.role.count, need, peak, number, network, shares))
    return _result(
        shared,
        step,
        alone_rate,
        timeline,
        largest,
        (part for part, _ in exchanges),
        [*_exchanged(timeline, mine), *((count, float(count * each.size_bytes)) for each in seen.sent)],
        exposed_s=exposed_s,
        exchanging_s=exchanging_s,
        bottleneck=bottleneck_of(timeline.machine, exchanges, timeline.end_s),
        memory=tuple(devices),
        streams=uses,
        bubble_s=bubble_s,
        tied_s=min(summing_s, _tied_s(timeline)),
        pace=_pace(question, [stage.role for stage in stages], seen.stage),
    )


def _summing_s(timeline: Timeline) -> float:
    """Return the seconds in which a pipeline's gradients or parameters are exchanged while no stage computes."""
    passes: list[Span] = []
    updates: list[Span] = []
    for task, span in timeline.ran(ChunkRun):
        (updates if task.about.part == "update" else passes).append(span)
    if not passes or not updates:
        return 0.0
    return (
        min(span.start_s for span in passes)
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
