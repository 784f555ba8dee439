"""The result of a program: times of host and devices, their use, the limiter, memory (docs/decisions/results.md)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simulator.bands.composition import AnswerFacts, Composition
from simulator.engine.timeline import Span, Timeline
from simulator.errors import counted
from simulator.programs.costs import HeldMemory, ProgramLabel, SkippedRepetitions, State
from simulator.programs.loops import busy_of
from simulator.programs.writer import LOCK
from simulator.records import dataclass, field, sums_by_key
from simulator.results import SCHEMA_VERSION, WORDS, Fact, html_of, taken
from simulator.results.changed import ChangeEffect, change_fact, changed_entry, said
from simulator.results.confidence import Confidence, confidence_of
from simulator.results.ran import critical_path
from simulator.units import format_duration, format_size

_POINTS = 200
_SAME = 1e-9  # relative difference of periods that counts as rounding
_WRITTEN = 1000  # up to this many repetitions of an outer loop are treated one by one


def held_curve(held: Iterable[HeldMemory], spans: Sequence[Span]) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the peak of the bytes held at once, and the curve as (seconds, bytes) points joined by straight lines.

    The curve has at most about 200 points, the peak among them; skipped repetitions rise and fall linearly.
    """
    jumps, slopes = defaultdict[float, float](float), defaultdict[float, float](float)

    def change(at_s: float, size_bytes: float, steps: Sequence[tuple[int, float]]) -> None:
        if not steps:
            jumps[at_s] += size_bytes
            return
        (times, period_s), outer = steps[0], steps[1:]
        if outer and outer[-1][0] <= _WRITTEN:
            for k in range(1, outer[-1][0] + 1):
                change(at_s + k * outer[-1][1], size_bytes, steps[:-1])
        elif outer:  # spread an inner loop's repetitions evenly over the outer loop's period
            change(at_s, size_bytes, ((times * outer[0][0], outer[0][1] / times), *outer[1:]))
        elif period_s <= 0:
            jumps[at_s] += times * size_bytes
        else:
            slopes[at_s] += size_bytes / period_s
            slopes[at_s + times * period_s] -= size_bytes / period_s

    for each in held:
        same = each.again and all(abs(a.issue_s - a.done_s) <= _SAME * a.done_s for a in each.again)
        if same and spans[each.done].end_s - spans[each.issued].end_s <= each.again[0].issue_s:
            continue  # skipped repetitions hold it one after the other, as the written repetition does
        change(spans[each.issued].end_s, each.size_bytes, [(a.times, a.issue_s) for a in each.again])
        change(spans[each.done].end_s, -each.size_bytes, [(a.times, a.done_s) for a in each.again])
    points: list[tuple[float, float]] = []
    level = slope = before_s = 0.0
    for at_s in sorted({*jumps, *slopes}):
        level += slope * (at_s - before_s)
        points.append((at_s, max(0.0, level)))
        slope += slopes.get(at_s, 0.0)
        level += jumps.get(at_s, 0.0)
        points.append((at_s, max(0.0, level)))
        before_s = at_s
    if not points:
        return 0.0, ()
    highest = max(range(len(points)), key=lambda i: points[i][1])
    every = -(-len(points) // _POINTS)
    kept = sorted({*range(0, len(points), every), highest, len(points) - 1})
    return points[highest][1], tuple(points[i] for i in kept)


_MOSTLY = 0.7  # fraction of the critical path from which one side sets the pace; below it, host and device take turns
_NAMES = {"issue": "host", "python": "host", "copy": "copies", "wait": "waiting"}


@dataclass(slots=True)
class StreamTimes:
    """Seconds of a stream's work, by its kind (``issue``, ``kernel``, ...) and by its limiter.

    ``waiting_s`` is explicit waiting (a host's synchronisation); the stream is idle for the rest of the time.
    """

    by_use: dict[str, float] = field(default_factory=dict)
    by_bound: dict[str, float] = field(default_factory=dict)
    waiting_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """All of the work, without waiting."""
        return sum(self.by_use.values())


@dataclass(frozen=True, slots=True)
class MarkTimes:
    """The first and last time that a mark was passed, in seconds, and how often."""

    first_s: float
    last_s: float
    count: int


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The result of a program: ``issued_s``, when the host is through, and ``done_s``, when devices are done too.

    ``bound`` is what sets the pace: host, arithmetic, memory, latency, copies, waiting (host and device take turns), or
    a duration given in the file.  ``held`` is the memory held by queued work over time, ``held_bytes`` its peak.
    """

    name: str
    machine: str
    device: str
    issued_s: float
    done_s: float
    operators: int
    copies: int
    marks: Mapping[str, MarkTimes]
    streams: Mapping[str, StreamTimes]
    bound: str
    bound_stream: str
    held_bytes: float
    held: tuple[tuple[float, float], ...]
    timeline: Timeline
    changed: ChangeEffect | None = None

    def __repr__(self) -> str:
        """Return the answer in one line."""
        return f"<{self.name} on {self.machine}: done after {format_duration(self.done_s)}{said(self.changed)}>"

    def _repr_html_(self) -> str:
        head = Fact("machine", self.machine), *change_fact(self.changed), Fact("program", self.name)
        return html_of([*head, *self.view])

    @property
    def view(self) -> list[Fact]:
        """The figures of the whole program."""
        bound = WORDS["programs"].get(self.bound, self.bound)
        at = f" ({self.bound_stream})" if self.bound_stream not in ("", "host") and bound == self.bound else ""
        issued = counted(self.operators, "operator")
        issued += f", {self.copies:,} cop{'ies' if self.copies != 1 else 'y'}" if self.copies else ""
        runs_on_host = any(name.split(" ")[0] == "host" for name in self.streams)
        facts = [
            *([Fact("host returns", format_duration(self.issued_s))] if runs_on_host else []),
            Fact("all done", format_duration(self.done_s)),
            Fact("bound by", f"{'compute' if bound == 'arithmetic' else bound}{at}"),
            Fact("issued", issued),
        ]
        return facts + [Fact("queued holds", f"{format_size(self.held_bytes)} at most")] * bool(self.held_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as in ``--json``, without the timeline."""
        return {
            "topology": self.machine,
            **changed_entry(self.changed),
            "program": self.name,
            **taken(self, "device issued_s done_s"),
            **self.confidence.to_dict(),
            **taken(self, "operators copies bound bound_stream answers marks"),
            "streams": {
                name: taken(times, "busy_s waiting_s by_bound_s=by_bound") for name, times in self.streams.items()
            },
            "held_bytes": self.held_bytes,
            "held": [{"time_s": at_s, "bytes": n_bytes} for at_s, n_bytes in self.held],
            "simulation_events": self.timeline.simulation_events,
        }

    @property
    def confidence(self) -> Confidence:
        """The uncertainty of ``done_s``: there are no published measurements of programs."""
        facts = AnswerFacts(kind="host", place=self.machine, what="program")
        return confidence_of(self.done_s, Composition((), (), facts))

    @property
    def answers(self) -> dict[str, float]:
        """The figures by name; a mark passed several times also has its first time and mean step."""
        found = {"issued_s": self.issued_s, "done_s": self.done_s, "held_bytes": self.held_bytes}
        for name, mark in self.marks.items():
            found[name] = mark.last_s
            if mark.count > 1:
                found[f"{name} first"] = mark.first_s
                found[f"{name} every"] = (mark.last_s - mark.first_s) / (mark.count - 1)
        return found


def make_program_result(name: str, machine: str, device: str, state: State, timeline: Timeline) -> ProgramResult:
    """Return the result of the program *name*, written to the point given by *state*, and run in *timeline*."""
    streams: dict[str, StreamTimes] = {}
    issued_s = 0.0
    for task, span in timeline.ran():
        about = task.about
        if isinstance(about, ProgramLabel) and about.use == "hidden":
            continue
        times = streams.setdefault(task.stream, StreamTimes())
        if task.stream.split(" ")[0] == "host":
            issued_s = max(issued_s, span.end_s)
        for (use, why), seconds in busy_of(about, span) if isinstance(about, ProgramLabel | SkippedRepetitions) else ():
            if use == "wait":
                times.waiting_s += seconds
            else:
                times.by_use[use] = times.by_use.get(use, 0.0) + seconds
                times.by_bound[why] = times.by_bound.get(why, 0.0) + seconds
    spans = timeline.spans
    marks = {
        name: MarkTimes(spans[noted.numbers[0]].end_s, spans[noted.numbers[-1]].end_s, noted.count)
        for name, noted in state.marks.items()
    }
    bound, where = _bound(streams, timeline)
    held_bytes, curve = held_curve(state.held, spans)
    return ProgramResult(
        name=name,
        machine=machine,
        device=device,
        issued_s=issued_s,
        done_s=timeline.end_s,
        operators=state.operators,
        copies=state.copies,
        marks=marks,
        streams=streams,
        bound=bound,
        bound_stream=where,
        held_bytes=held_bytes,
        held=curve,
        timeline=timeline,
    )


def _bound(streams: Mapping[str, StreamTimes], timeline: Timeline) -> tuple[str, str]:
    """Return what sets the pace, and on which stream, from the critical path."""
    spent: dict[tuple[str, str], float] = {}
    since: dict[tuple[str, str], float] = {}
    for number in critical_path(timeline):
        task, span = timeline.plan.tasks[number], timeline.spans[number]
        if isinstance(task.about, SkippedRepetitions) and (whole_s := sum(since.values())):
            share = span.length_s / whole_s  # skipped repetitions are divided like those before them
            found, since = {key: share * seconds for key, seconds in since.items()}, {}
        else:
            busy = busy_of(task.about, span)
            found = sums_by_key(((_NAMES.get(use, why), task.stream), seconds) for (use, why), seconds in busy)
            since = sums_by_key([*since.items(), *found.items()])
        for key, seconds in found.items():
            spent[key] = spent.get(key, 0.0) + seconds
    if not spent:
        return "nothing", ""
    by_name = sums_by_key((name, seconds) for (name, _), seconds in spent.items())
    total_s, host_s = sum(by_name.values()), by_name.get("host", 0.0)
    devices_s = total_s - host_s - by_name.get("waiting", 0.0)
    waits = any(times.waiting_s for times in streams.values())
    if max(host_s, devices_s) == 0.0 or (waits and max(host_s, devices_s) < _MOSTLY * total_s):
        return "waiting", max(streams, key=lambda stream: streams[stream].busy_s)
    side = {"host"} if host_s >= devices_s else by_name.keys() - {"host", "waiting"}
    name = max(sorted(side), key=lambda each: round(by_name[each], 12))
    hosts = [stream for found, stream in spent if found == "host" and name == "host"]
    where = max((key for key in spent if key[0] == name), key=lambda key: round(spent[key], 12))[1]
    return name, LOCK if len(hosts) > 1 else where


def programs_document(workload: str, results: Sequence[ProgramResult]) -> dict[str, Any]:
    """Return *results*, one per machine, as plain data; those of a single machine are repeated at the top."""
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "workload": workload}
    entries = [result.to_dict() for result in results]
    if len(entries) == 1:
        document |= entries[0]
    return {**document, "results": entries}
