"""The busy and waiting times of the streams of a timeline."""

from __future__ import annotations

from simulator.engine.timeline import Timeline
from simulator.records import dataclass, field
from simulator.training.worker import SkippedMicroBatches

_ROUNDING = 1e-9  # relative


@dataclass(slots=True)
class StreamUse:
    """Seconds for which a stream works, and for which it waits, by the stream that it waits for."""

    busy_s: float = 0.0
    waits_s: dict[str, float] = field(default_factory=dict)


def run_counts(timeline: Timeline) -> list[int]:
    """Return the number of runs of each activity; a representative micro-batch counts for the skipped ones."""
    tasks = timeline.plan.tasks
    skipped = next((task.about for task in tasks if isinstance(task.about, SkippedMicroBatches)), None)
    if skipped is None:
        return [1] * len(tasks)
    return [
        1 + skipped.count if getattr(task.about, "micro_batch", None) == skipped.micro_batch else 1 for task in tasks
    ]


def stream_uses(timeline: Timeline) -> dict[str, StreamUse]:
    """Return the use of each stream, from the start to the end of *timeline*.

    A stream waits for the dependency of its next activity that ends last; after its own last activity, for the stream
    that ends last of all.  Skipped micro-batches count like the one that represents them.  Where steps overlap,
    as through parameter servers, a step's work begins before its start and ends after its end; then waits are, in
    their proportions, what its length leaves beside the work.
    """
    tasks, spans = timeline.plan.tasks, timeline.spans
    times = run_counts(timeline)
    found: dict[str, StreamUse] = {}
    before_s: dict[str, float] = {}
    for task, span in zip(tasks, spans, strict=True):
        use = found.get(task.stream)
        if use is None:
            use = found[task.stream] = StreamUse()
        if isinstance(task.about, SkippedMicroBatches):
            before_s[task.stream] = span.end_s
            continue
        use.busy_s += times[task.id] * (span.end_s - span.start_s)
        gap_s = span.start_s - max(0.0, before_s.get(task.stream, 0.0))
        if gap_s > 0:
            others = [number for number in task.after if tasks[number].stream != task.stream]
            if others:
                latest = tasks[max(others, key=lambda number: spans[number].end_s)].stream
                use.waits_s[latest] = use.waits_s.get(latest, 0.0) + times[task.id] * gap_s
        before_s[task.stream] = span.end_s
    last = max(before_s, key=lambda stream: before_s[stream], default="")
    for stream, end_s in before_s.items():
        if timeline.end_s > end_s:
            waits_s = found[stream].waits_s
            waits_s[last] = waits_s.get(last, 0.0) + (timeline.end_s - max(0.0, end_s))
    for use in found.values():
        waited_s, left_s = sum(use.waits_s.values()), max(0.0, timeline.end_s - use.busy_s)
        if waited_s > left_s * (1 + _ROUNDING):
            use.waits_s.update({stream: wait_s * left_s / waited_s for stream, wait_s in use.waits_s.items()})
    return found
