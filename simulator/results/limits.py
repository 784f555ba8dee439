"""What a step would be shorter without: its critical path, by what each part of it is spent on (:func:`limits_of`).

Whatever happens, something has kept it from happening before: what ended last of all that it waited for.  From the end
of the step back to its start that is a chain without gaps, and each of its activities is the host's, a kernel's, which
arithmetic, memory or latency bounds, a copy, or an exchange.  What is not on it may be as busy as it likes: without
that the step takes as long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from simulator.engine.timeline import Timeline
from simulator.plan.plan import Activity
from simulator.step.issue import Issue
from simulator.training.exchange import STREAM
from simulator.training.pipeline import ChunkRun
from simulator.training.worker import Issued, Skipped

__all__ = ["critical_path", "limits_of"]

_DIGITS = 12  # of seconds: what ends later by less ends at the same time


def critical_path(timeline: Timeline) -> list[int]:
    """Return the activities that follow each other without a gap from the start of *timeline* to its end.

    What an activity waits for: the one before it on its stream, those that it names, and whoever gave back a slot that
    it took.  Of those that ended at the same time, the first of these counts.
    """
    tasks, spans = timeline.plan.tasks, timeline.spans
    before: dict[int, int] = {}
    last_on: dict[str, int] = {}
    givers: dict[str, list[int]] = {}
    for task in tasks:
        if task.stream in last_on:
            before[task.id] = last_on[task.stream]
        last_on[task.stream] = task.id
        for queue in task.gives:
            givers.setdefault(queue, []).append(task.id)
    by_end = {queue: sorted((spans[n].end_s, i, n) for i, n in enumerate(ids)) for queue, ids in givers.items()}
    path: dict[int, None] = {}
    number = max(range(len(tasks)), key=lambda n: (round(spans[n].end_s, _DIGITS), -n), default=None)
    while number is not None:
        path[number] = None
        task, start_s = tasks[number], spans[number].start_s
        slots = [n for queue in task.takes for n in _last_given(by_end.get(queue, []), start_s, path)]
        awaited = dict.fromkeys([*([before[number]] if number in before else []), *task.after, *slots])
        known = [n for n in awaited if n not in path]
        number = max(known, key=lambda n: round(spans[n].end_s, _DIGITS), default=None)
    return list(path)[::-1]


def _last_given(ends: Sequence[tuple[float, int, int]], start_s: float, path: Mapping[int, None]) -> list[int]:
    """Return who gave back a slot last of those that ended by *start_s* and are not on *path*: the first of equals.

    *ends* are (end, place, activity), sorted; a queue may have a million of them.
    """
    first: tuple[int, int] | None = None
    last_s = None
    at = bisect_right(ends, (start_s, len(ends), 0))
    while at > 0:
        at -= 1
        end_s, place, number = ends[at]
        if number in path:
            continue
        if last_s is not None and round(end_s, _DIGITS) != last_s:
            break
        last_s = round(end_s, _DIGITS)
        first = (place, number) if first is None or place < first[0] else first
    return [first[1]] if first is not None else []


def limits_of(timeline: Timeline, seen: str = "") -> dict[str, float]:
    """Return the seconds of the critical path of a step by what they are spent on, the most first.

    ``host`` issues, ``compute``, ``memory`` and ``latency`` are kernels, ``copies``, ``exchange``; ``fill`` are passes
    of a pipeline's other stages than that whose streams begin with *seen*.
    """
    found: dict[str, float] = {}
    skipped_s = 0.0
    for number in critical_path(timeline):
        task, span = timeline.plan.tasks[number], timeline.spans[number]
        seconds = span.end_s - span.start_s
        if isinstance(task.about, Skipped):
            skipped_s += seconds
            continue
        for name, share in _shares(task, seen).items():
            found[name] = found.get(name, 0.0) + share * seconds
    whole_s = sum(found.values())
    if skipped_s and whole_s:  # micro-batches that passed at once are as those before them
        found = {name: seconds * (1.0 + skipped_s / whole_s) for name, seconds in found.items()}
    ranked = sorted(found.items(), key=lambda item: (-round(item[1], 12), item[0]))
    return {name: seconds for name, seconds in ranked if seconds > 0}


def _shares(task: Activity, seen: str) -> dict[str, float]:
    """Return on what an activity's time is spent, as shares of it."""
    about = task.about
    if isinstance(about, Issued):
        if not about.on_host:
            return _of_kernels([about.issue])
        if not _computes_on_host(task, about):
            return {"host": 1.0}
        whole_s = about.issue.host_s + about.issue.device_s
        on_device = about.issue.device_s / whole_s if whole_s else 0.0
        kernels = {name: on_device * share for name, share in _of_kernels([about.issue]).items()}
        return {**kernels, "host": 1.0 - on_device}
    if isinstance(about, ChunkRun):
        if seen and not task.stream.startswith(seen):
            return {"fill": 1.0}
        return _of_pass(about, task.duration_s)
    if about is None and not task.moves:
        return {"host": 1.0}
    return {"exchange" if task.stream.endswith(STREAM) or about is not None else "copies": 1.0}


def _of_pass(run: ChunkRun, duration_s: float) -> dict[str, float]:
    """Return on what a pass of a stage is spent: kernels, and exchanges within layers or the host that it waits for."""
    own = [issue for issue in run.issues if issue.part == run.part]
    kernels_s = run.share * sum(issue.device_s for issue in own)
    on_device = min(1.0, kernels_s / duration_s) if duration_s else 1.0
    found = {name: on_device * share for name, share in _of_kernels(own).items()}
    rest = "exchange" if any(issue.sent is not None for issue in own) else "host"
    found[rest] = found.get(rest, 0.0) + 1.0 - on_device
    return found


def _computes_on_host(task: Activity, about: Issued) -> bool:
    """Whether the host computes what it issues: it takes longer than issuing."""
    return task.duration_s > about.issue.host_s


def _of_kernels(issues: Sequence[Issue]) -> dict[str, float]:
    """Return by what kernels are bound, as shares of their time; what has none is the host's."""
    found: dict[str, float] = {}
    for issue in issues:
        for cost in issue.work.costs:
            found[cost.bound] = found.get(cost.bound, 0.0) + cost.time_s
    whole_s = sum(found.values())
    return {name: seconds / whole_s for name, seconds in found.items()} if whole_s else {"host": 1.0}
