"""The critical path of a step, divided by what its time is spent on (:func:`critical_seconds`).

Each activity starts when the last of the activities it waits for ends.  From the end of the step back to its start
these form a chain without gaps.  Each activity of the chain belongs to the host, a kernel (bound by arithmetic, memory
or latency), a copy or an exchange.  Work off this chain, however long, does not lengthen the step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from simulator.engine.timeline import Timeline
from simulator.plan.plan import Activity
from simulator.step.launch import Launch
from simulator.sums import sums_by_key
from simulator.training.exchange import ON_CPU, STREAM, HostLabel
from simulator.training.worker import ChunkRun, LaunchLabel, SkippedMicroBatches

_DIGITS = 12  # decimal places of seconds: ends that agree so far are simultaneous


def critical_path(timeline: Timeline) -> list[int]:
    """Return the activities that follow each other without a gap from the start of *timeline* to its end.

    An activity waits for the one before it on its stream, for its dependencies, and for the activities that freed the
    slots it took.  If several ended at the same time, the first of these counts.
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
    """Return the activity off *path* that last freed a slot by *start_s*; *ends*: sorted (end, place, activity)."""
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


def critical_seconds(timeline: Timeline, seen: str = "") -> dict[str, float]:
    """Return the seconds of a step's critical path by what they are spent on, the most first.

    ``host`` launches; ``compute``, ``memory`` and ``latency`` limit kernels; ``copies`` and ``exchange`` move data;
    ``update`` and ``host_copies`` are those of a host that updates; ``fill`` is pipeline fill: time in the passes of
    stages beyond that of the stage whose streams start with *seen*.
    """
    found: dict[str, float] = {}
    in_passes: dict[str, float] = {}
    skipped_s = 0.0
    for number in critical_path(timeline):
        task, span = timeline.plan.tasks[number], timeline.spans[number]
        if isinstance(task.about, SkippedMicroBatches):
            skipped_s += span.length_s
            continue
        into = in_passes if isinstance(task.about, ChunkRun) else found
        for name, share in _shares(task).items():
            into[name] = into.get(name, 0.0) + share * span.length_s
    fill_s, passes_s = 0.0, sum(in_passes.values())
    if seen and passes_s:
        own_s = sum(span.length_s for task, span in timeline.ran(ChunkRun) if task.stream.startswith(seen))
        fill_s = max(0.0, passes_s - own_s)
        in_passes = {name: seconds * (1.0 - fill_s / passes_s) for name, seconds in in_passes.items()}
    for name, seconds in in_passes.items():
        found[name] = found.get(name, 0.0) + seconds
    whole_s = sum(found.values())
    if skipped_s and whole_s:  # skipped micro-batches are divided like those before them
        found = {name: seconds * (1.0 + skipped_s / whole_s) for name, seconds in found.items()}
    found["fill"] = fill_s
    ranked = sorted(found.items(), key=lambda item: (-round(item[1], 12), item[0]))
    return {name: seconds for name, seconds in ranked if seconds > 0}


def _shares(task: Activity) -> dict[str, float]:
    """Return what an activity's time is spent on, as fractions of it."""
    about = task.about
    if isinstance(about, LaunchLabel):
        if not about.on_host:
            return _of_kernels([about.issue])
        if task.duration_s <= about.issue.host_s:  # no longer than the launch: it does not compute the operator
            return {"host": 1.0}
        whole_s = about.issue.host_s + about.issue.device_s
        on_device = about.issue.device_s / whole_s if whole_s else 0.0
        kernels = {name: on_device * share for name, share in _of_kernels([about.issue]).items()}
        return {**kernels, "host": 1.0 - on_device}
    if isinstance(about, ChunkRun):
        return _of_pass(about, task.duration_s)
    if isinstance(about, HostLabel):
        return {"update" if about.stage == ON_CPU else "host_copies": 1.0}
    if about is None and not task.moves:
        return {"host": 1.0}
    return {"exchange" if task.stream.endswith(STREAM) or about is not None else "copies": 1.0}


def _of_pass(run: ChunkRun, duration_s: float) -> dict[str, float]:
    """Return what a stage's pass is spent on: kernels, and waiting for exchanges within layers or else for the host."""
    own = [issue for issue in run.issues if issue.part == run.part]
    kernels_s = run.share * sum(issue.device_s for issue in own)
    on_device = min(1.0, kernels_s / duration_s) if duration_s else 1.0
    found = {name: on_device * share for name, share in _of_kernels(own).items()}
    rest = "exchange" if any(issue.sent is not None for issue in own) else "host"
    found[rest] = found.get(rest, 0.0) + 1.0 - on_device
    return found


def _of_kernels(issues: Sequence[Launch]) -> dict[str, float]:
    """Return the limiters of kernels as fractions of their time; without kernels, all of it is the host's."""
    found = sums_by_key((cost.bound, cost.time_s) for issue in issues for cost in issue.work.costs)
    whole_s = sum(found.values())
    return {name: seconds / whole_s for name, seconds in found.items()} if whole_s else {"host": 1.0}
