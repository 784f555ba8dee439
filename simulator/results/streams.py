"""What each stream of a timeline does, and what it waits for while it does nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.engine.timeline import Timeline

__all__ = ["StreamUse", "stream_uses"]


@dataclass(slots=True)
class StreamUse:
    """Seconds for which a stream is at work, and for which it waits, by the stream whose activity it waits for."""

    busy_s: float = 0.0
    waits_s: dict[str, float] = field(default_factory=dict)


def stream_uses(timeline: Timeline) -> dict[str, StreamUse]:
    """Return the use of each stream, from the start to the end of *timeline*.

    A stream waits for what ends last of all that its next activity names; after its own last activity, for the
    stream that ends the whole.
    """
    tasks, spans = timeline.plan.tasks, timeline.spans
    found: dict[str, StreamUse] = {}
    before_s: dict[str, float] = {}
    for task, span in zip(tasks, spans, strict=True):
        use = found.setdefault(task.stream, StreamUse())
        use.busy_s += span.end_s - span.start_s
        gap_s = span.start_s - before_s.get(task.stream, 0.0)
        others = [number for number in task.after if tasks[number].stream != task.stream]
        if gap_s > 0 and others:
            latest = tasks[max(others, key=lambda number: spans[number].end_s)].stream
            use.waits_s[latest] = use.waits_s.get(latest, 0.0) + gap_s
        before_s[task.stream] = span.end_s
    last = max(before_s, key=lambda stream: before_s[stream], default="")
    for stream, end_s in before_s.items():
        if timeline.end_s > end_s:
            waits_s = found[stream].waits_s
            waits_s[last] = waits_s.get(last, 0.0) + (timeline.end_s - end_s)
    return found
