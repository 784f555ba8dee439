"""What streams and devices ran in a step, and its critical path (docs/decisions/results.md)."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import inf

from simulator.bands import Chain, kernel_chain
from simulator.bands.composition import ClassShare as BandPart
from simulator.bands.composition import class_shares
from simulator.devices import Bound, KernelCost
from simulator.engine.timeline import Timeline, needs_of
from simulator.places import Place
from simulator.plan.plan import Activity, Work
from simulator.records import dataclass, field, lists_by_key, replace, sums_by_key
from simulator.step.launch import Launch, Part
from simulator.training.worker import ON_CPU, STREAM, ChunkRun, HostLabel, LaunchLabel, SkippedMicroBatches
from simulator.workload.kernels import without_library
from simulator.workload.precision import Precision


@dataclass(frozen=True, slots=True)
class KindTime:
    """Seconds of one class of kernels on the device, and what limits them."""

    kind: str
    time_s: float
    count: int
    flop: float
    bytes: float
    compute_s: float
    memory_s: float
    latency_s: float
    parts_s: dict[str, float]  # seconds by part of the step

    def times(self, count: int) -> "KindTime":
        """Return *count* of them."""
        names = ("time_s", "count", "flop", "bytes", "compute_s", "memory_s", "latency_s")
        sums = {name: count * getattr(self, name) for name in names}
        return replace(self, **sums, parts_s={part: count * seconds for part, seconds in self.parts_s.items()})


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Seconds of one layer on the device, over all parts of the step; the other fields are of its longest kernel."""

    name: str
    time_s: float
    bound: str
    detail: str
    part: str


@dataclass(frozen=True, slots=True)
class LaunchRun:
    """An issue that the device ran ``times`` times: the end of the first run, and its busy time, in seconds."""

    issue: Launch
    end_s: float
    busy_s: float
    micro_batch: int
    times: int

    @property
    def stretch(self) -> float:
        """The busy time relative to the issue's time alone: less than 1 for a part of it, more under contention."""
        alone_s = self.issue.work.time_s
        return self.busy_s / alone_s if alone_s else 1.0


def issues_run(timeline: Timeline, place: Place, prefix: str) -> list[LaunchRun]:
    """Return the issues that the device at *place* ran, in order; skipped micro-batches count with their like."""
    stream = prefix + ("host" if place.name == place.host else "compute")
    times, found = run_counts(timeline), []
    for task, span in timeline.ran(LaunchLabel):
        if task.stream == stream:
            issue, number, on_host = task.about
            works = [part for part in task.parts if isinstance(part, Work)]
            busy_s = issue.work.time_s if on_host else max([work.duration_s for work in works], default=0.0)
            if [work for work in works if work.loads]:
                busy_s = max(busy_s, span.end_s - span.start_s)
            found.append(LaunchRun(issue, span.end_s, busy_s, number, times[task.id]))
    return found


def issues_of_passes(passes: Sequence[tuple[ChunkRun, float]]) -> list[LaunchRun]:
    """Return the issues that a stage's device ran, each once with its count."""
    counts = sums_by_key(((id(run.issues), run.part), run.share) for run, _ in passes)
    issues = {(id(run.issues), run.part): run.issues for run, _ in passes}
    return [
        LaunchRun(issue, 0.0, issue.device_s * counts[key] / times, 0, times)  # a sharded update runs only in part
        for key, found in issues.items()
        for times in [max(1, round(counts[key]))]
        for issue in found
        if issue.part == key[1]
    ]


def kernel_parts(ran: Sequence[LaunchRun], main: Precision) -> tuple[BandPart, ...]:
    """Return the kernels by error class, in seconds; all products count as products in the format *main*."""
    numbers: dict[tuple[str, KernelCost], int] = {}
    known: dict[tuple[str, int], tuple[Chain, int]] = {}  # by kind and identity: layers repeat

    def of(kind: str, cost: KernelCost) -> tuple[Chain, int]:
        if (kind, id(cost)) not in known:
            chain = kernel_chain(kind, cost.bound, main if cost.flop else "")
            known[kind, id(cost)] = chain, numbers.setdefault((kind, cost), len(numbers))
        return known[kind, id(cost)]

    times_s = (
        (*of(kind, cost), scale * cost.time_s, cost.known)
        for each in ran
        for scale in [each.times * each.stretch]
        for kind, cost in zip(each.issue.work.kinds, each.issue.work.costs, strict=True)
    )
    return class_shares(times_s, 1.0)


def lengths_of(ran: Sequence[LaunchRun]) -> dict[str, float]:
    """Return the seconds of each part, from the end of the one before to its last kernel, summed over its runs."""
    lengths: dict[str, float] = {}
    before_s = 0.0
    for place, each in enumerate(ran):
        after = ran[place + 1] if place + 1 < len(ran) else None
        if after is None or after.issue.part != each.issue.part or after.micro_batch != each.micro_batch:
            part = each.issue.part
            lengths[part] = lengths.get(part, 0.0) + each.times * (each.end_s - before_s)
            before_s = each.end_s
            if after is not None and after.micro_batch > each.micro_batch + 1:  # skipped ones are counted above
                earlier = (one.end_s for one in ran[:place] if one.micro_batch < each.micro_batch)
                before_s += (each.times - 1) * (each.end_s - max(earlier, default=0.0))
    return lengths


def kinds_of(ran: Sequence[LaunchRun]) -> tuple[KindTime, ...]:
    """Return the kernels by class, the longest first."""
    found: dict[str, list[tuple[int, float, Part, KernelCost]]] = {}
    for each in ran:
        issue, times, stretch = each.issue, each.times, each.stretch
        for kind, cost in zip(issue.work.kinds, issue.work.costs, strict=True):
            found.setdefault(without_library(kind), []).append((times, stretch, issue.part, cost))
    kinds = []
    for kind, kernels in found.items():
        count, flop, n_bytes = 0, 0.0, 0.0
        bounds_s: dict[Bound, float] = {"compute": 0.0, "memory": 0.0, "latency": 0.0}
        parts_s: dict[str, float] = {}
        for times, stretch, part, cost in kernels:
            time_s = times * stretch * cost.time_s
            share = times * min(1.0, stretch)
            count += times
            flop += share * cost.flop
            n_bytes += share * cost.bytes
            bounds_s[cost.bound] += time_s
            parts_s[part] = parts_s.get(part, 0.0) + time_s
        shares_s = bounds_s["compute"], bounds_s["memory"], bounds_s["latency"]
        kinds.append(KindTime(kind, sum(shares_s), count, flop, n_bytes, *shares_s, parts_s))
    return tuple(sorted(kinds, key=lambda kind: -round(kind.time_s, 12)))


def layers_of(ran: Sequence[LaunchRun]) -> tuple[LayerTime, ...]:
    """Return the layers, the longest first."""
    times: dict[str, float] = {}
    longest: dict[str, tuple[KernelCost, Part]] = {}
    for each in ran:
        issue = each.issue
        name = issue.layer or issue.name
        times[name] = times.get(name, 0.0) + each.times * each.busy_s
        for cost in issue.work.costs:
            if name not in longest or cost.time_s > longest[name][0].time_s:
                longest[name] = cost, issue.part
    found = [(name, time_s, *longest[name]) for name, time_s in times.items() if name in longest]
    layers = [LayerTime(name, time_s, cost.bound, cost.detail, part) for name, time_s, cost, part in found]
    return tuple(sorted(layers, key=lambda layer: -round(layer.time_s, 12)))


_ROUNDING = 1e-9  # relative


@dataclass(slots=True)
class StreamUse:
    """Seconds for which a stream works, and for which it waits, by the stream that it waits for."""

    busy_s: float = 0.0
    waits_s: dict[str, float] = field(default_factory=dict)


def run_counts(timeline: Timeline) -> list[int]:
    """Return the number of runs of each activity; a representative micro-batch counts for the skipped ones."""
    tasks = timeline.plan.tasks

    def find() -> list[int]:
        skipped = next((task.about for task in tasks if isinstance(task.about, SkippedMicroBatches)), None)
        if skipped is None:
            return [1] * len(tasks)
        micro_batches = [getattr(task.about, "micro_batch", None) for task in tasks]
        return [1 + skipped.count if number == skipped.micro_batch else 1 for number in micro_batches]

    return timeline.plan.of_order.once("runs", find)


def stream_uses(timeline: Timeline) -> dict[str, StreamUse]:
    """Return the use of each stream from the start to the end of *timeline*, skipped micro-batches counted.

    A stream waits for that dependency of its next activity that ends last, in the end for the stream that ends last.
    """
    tasks, spans = timeline.plan.tasks, timeline.spans
    times = run_counts(timeline)
    found: dict[str, StreamUse] = {}
    before_s: dict[str, float] = {}
    for task, span in zip(tasks, spans, strict=True):
        use = found.get(task.stream) or found.setdefault(task.stream, StreamUse())
        start_s, end_s = span.start_s, span.end_s
        before = before_s.get(task.stream, 0.0)
        gap_s = start_s - before if before > 0 else start_s
        before_s[task.stream] = end_s
        if isinstance(task.about, SkippedMicroBatches):
            continue
        use.busy_s += times[task.id] * (end_s - start_s)
        if gap_s > 0:
            others = [number for number in task.after if tasks[number].stream != task.stream]
            if others:
                latest = tasks[max(others, key=lambda number: spans[number].end_s)].stream
                use.waits_s[latest] = use.waits_s.get(latest, 0.0) + times[task.id] * gap_s
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


_DIGITS, _SAME_S = 12, 1e-11  # decimal places of seconds: ends that agree so far are simultaneous


def critical_path(timeline: Timeline) -> list[int]:
    """Return the numbers of activities that follow each other without a gap from the start of *timeline* to its end.

    Before each stands what it waited for and ended last: its stream, a dependency, or who freed the slots it took.
    """
    plan, spans = timeline.plan, timeline.spans
    needs = plan.of_order.once("needs", lambda: needs_of(plan))
    givers = lists_by_key((queue, task.id) for task in plan.tasks for queue in task.gives)
    by_end = {queue: sorted((spans[n].end_s, i, n) for i, n in enumerate(ids)) for queue, ids in givers.items()}
    path: dict[int, None] = {}
    last_s = max([span.end_s for span in spans], default=0.0)
    late = (n for n, span in enumerate(spans) if last_s - span.end_s < _SAME_S)
    number = next((n for n in late if round(spans[n].end_s, _DIGITS) == round(last_s, _DIGITS)), None)
    while number is not None:
        path[number] = None
        task, start_s = plan.tasks[number], spans[number].start_s
        slots = [n for queue in task.takes for n in _last_given(by_end.get(queue, []), start_s, path)]
        number, last_s = None, -inf
        for each in (*needs[task.id][len(task.after) :], *task.after, *slots):
            if each not in path and (end_s := round(spans[each].end_s, _DIGITS)) > last_s:
                number, last_s = each, end_s
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
    known: dict[int, dict[str, float]] = {}
    skipped_s = 0.0
    for number in critical_path(timeline):
        task, span = timeline.plan.tasks[number], timeline.spans[number]
        if isinstance(task.about, SkippedMicroBatches):
            skipped_s += span.length_s
            continue
        into = in_passes if isinstance(task.about, ChunkRun) else found
        for name, share in _shares(task, known).items():
            into[name] = into.get(name, 0.0) + share * span.length_s
    fill_s, passes_s = 0.0, sum(in_passes.values())
    if seen and passes_s:
        own_s = sum(span.length_s for task, span in timeline.ran(ChunkRun) if task.stream.startswith(seen))
        fill_s = max(0.0, passes_s - own_s)
        in_passes = {name: seconds * (1.0 - fill_s / passes_s) for name, seconds in in_passes.items()}
    found = sums_by_key([*found.items(), *in_passes.items()])
    whole_s = sum(found.values())
    if skipped_s and whole_s:  # skipped micro-batches are divided like those before them
        found = {name: seconds * (1.0 + skipped_s / whole_s) for name, seconds in found.items()}
    found["fill"] = fill_s
    ranked = sorted(found.items(), key=lambda item: (-round(item[1], 12), item[0]))
    return {name: seconds for name, seconds in ranked if seconds > 0}


def _shares(task: Activity, known: dict[int, dict[str, float]]) -> dict[str, float]:
    """Return what an activity's time is spent on, as fractions of it; *known*: of kernels, which layers share."""
    about = task.about
    if isinstance(about, LaunchLabel):
        issue = about.issue
        if not about.on_host:
            if id(issue.work) not in known:
                known[id(issue.work)] = _of_kernels([issue])
            return known[id(issue.work)]
        if task.duration_s <= issue.host_s:  # no longer than the launch: it does not compute the operator
            return {"host": 1.0}
        whole_s = issue.host_s + issue.device_s
        on_device, own, rest = issue.device_s / whole_s if whole_s else 0.0, [issue], "host"
    elif isinstance(about, ChunkRun):  # kernels, and waiting for exchanges within layers or else for the host
        own = [issue for issue in about.issues if issue.part == about.part]
        kernels_s = about.share * sum(issue.device_s for issue in own)
        on_device = min(1.0, kernels_s / task.duration_s) if task.duration_s else 1.0
        rest = "exchange" if any(issue.sent is not None for issue in own) else "host"
    elif isinstance(about, HostLabel):
        return {"update" if about.stage == ON_CPU else "host_copies": 1.0}
    elif about is None and not task.moves:
        return {"host": 1.0}
    else:
        return {"exchange" if task.stream.endswith(STREAM) or about is not None else "copies": 1.0}
    found = {name: on_device * share for name, share in _of_kernels(own).items()}
    found[rest] = found.get(rest, 0.0) + 1.0 - on_device
    return found


def _of_kernels(issues: Sequence[Launch]) -> dict[str, float]:
    """Return the limiters of kernels as fractions of their time; without kernels, all of it is the host's."""
    found = sums_by_key((cost.bound, cost.time_s) for issue in issues for cost in issue.work.costs)
    whole_s = sum(found.values())
    return {name: seconds / whole_s for name, seconds in found.items()} if whole_s else {"host": 1.0}
