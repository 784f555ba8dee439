"""What the result of a step on several devices takes from its timeline: exchanges, waits, memory by part."""

from collections.abc import Sequence
from typing import Any

from simulator.collectives.nccl.strategy import KEPT
from simulator.engine.timeline import Span, Timeline
from simulator.plan.plan import Fragment
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.results.bottleneck import bottleneck_of
from simulator.results.ran import run_counts
from simulator.results.result import counts_software, is_bound, staging_notes
from simulator.results.step import StepResult, peak_of
from simulator.results.training import TrainingResult
from simulator.results.training_run import DeviceMemory
from simulator.step.memory import MemoryNeed
from simulator.sums import sums_by_key
from simulator.training.plan import SharedStep
from simulator.training.roles import MOST_ROLES, Role, slowest_of
from simulator.training.worker import ChunkRun, CollectiveLabel
from simulator.workload.network import Network


def training_result(
    shared: SharedStep,
    step: StepResult,
    alone_rate: float,
    acting: tuple[Sequence[Role], int],
    timeline: Timeline,
    largest: Fragment | None,
    exchanges: Sequence[tuple[Fragment, int]],
    exchanged: Sequence[tuple[int, float]],
    **more: Any,
) -> TrainingResult:
    """Return the result of *timeline*, with *more* of it, seen by the slowest of the roles (*acting*: with its number).

    The notes are those of the *largest* exchange, and those that others add: on rates, on staging, on merged roles.
    *exchanges* are fragments with counts, *exchanged* the (count, total bytes) of collectives.
    """
    roles, slowest = acting
    plans = [fragment.plan for fragment in dict.fromkeys(part for part, _ in exchanges)]
    merged = []
    if less := max(role.less_loaded for role in roles):
        alike = f"those with the nearest loads, up to {less:.1%} apart, are slowed as the most loaded of them"
        merged = [f"exchanges load equal GPUs in more than {MOST_ROLES} ways; {alike}"]
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
        bottleneck=bottleneck_of(timeline.machine, exchanges, timeline.end_s, timeline.plan.perturbations),
        pace=_pace(shared.question, roles, slowest),
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


def exchanged_in(timeline: Timeline, prefix: str = "") -> list[tuple[int, float]]:
    """Return the count and the bytes in all of each collective on the streams that begin with *prefix*."""
    return [
        (times, times * task.about.size_bytes)
        for task, times in zip(timeline.plan.tasks, run_counts(timeline), strict=True)
        if isinstance(task.about, CollectiveLabel) and task.stream.startswith(prefix)
    ]


def summing_s(timeline: Timeline) -> float:
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


def tied_s_of(timeline: Timeline) -> float:
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
