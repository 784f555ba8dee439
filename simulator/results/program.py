"""What a program comes to: when the host returned, when all was done, who was busy, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.bands.composition import Composition
from simulator.bands.distance import Facts
from simulator.engine.timeline import Timeline
from simulator.programs.about import Did, Passed
from simulator.programs.loops import busy_of
from simulator.programs.memory import held_curve
from simulator.programs.state import State
from simulator.programs.statements import Program
from simulator.programs.writer import LOCK
from simulator.results.confidence import Confidence, confidence_of
from simulator.results.limits import critical_path

__all__ = ["MarkTimes", "ProgramResult", "StreamTimes", "make_program_result"]

_MOSTLY = 0.7  # what so much of the critical path is spent on sets the pace; below, host and device take turns
_NAMES = {"issue": "host", "python": "host", "copy": "copies", "wait": "waiting"}


@dataclass(slots=True)
class StreamTimes:
    """Seconds for which a stream is at work, by what it does (``issue``, ``kernel``, ...) and what bounds it.

    ``waiting_s`` is what it waits explicitly (a host's synchronisation); the rest of the time it is idle.
    """

    by_use: dict[str, float] = field(default_factory=dict)
    by_bound: dict[str, float] = field(default_factory=dict)
    waiting_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """All but waiting."""
        return sum(self.by_use.values())


@dataclass(frozen=True, slots=True)
class MarkTimes:
    """When a mark was passed: first and last, and how often."""

    first_s: float
    last_s: float
    count: int


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """``issued_s``: when the host had been through all statements; ``done_s``: when all devices were done as well.

    ``bound`` is what sets the pace: host, arithmetic, memory, latency, copies, waiting (host and device take turns), or
    what is given in the file.  ``held`` is the curve of memory that queued work holds, ``held_bytes`` its peak.
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

    @property
    def confidence(self) -> Confidence:
        """How sure ``done_s`` is: nobody has published what programs take."""
        return confidence_of(self.done_s, Composition((), (), Facts(kind="host", place=self.machine, what="program")))

    @property
    def answers(self) -> dict[str, float]:
        """The figures by name: of a mark that is passed several times the first and the mean step too."""
        found = {"issued_s": self.issued_s, "done_s": self.done_s, "held_bytes": self.held_bytes}
        for name, mark in self.marks.items():
            found[name] = mark.last_s
            if mark.count > 1:
                found[f"{name} first"] = mark.first_s
                found[f"{name} every"] = (mark.last_s - mark.first_s) / (mark.count - 1)
        return found


def make_program_result(program: Program, machine: str, device: str, state: State, timeline: Timeline) -> ProgramResult:
    """Return what *program*, written as far as *state* says, came to in *timeline*."""
    streams: dict[str, StreamTimes] = {}
    issued_s = 0.0
    for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True):
        if isinstance(task.about, Did) and task.about.use == "hidden":
            continue
        times = streams.setdefault(task.stream, StreamTimes())
        if task.stream.split(" ")[0] == "host":
            issued_s = max(issued_s, span.end_s)
        if isinstance(task.about, Did | Passed):
            for (use, why), seconds in busy_of(task.about, span):
                if use == "wait":
                    times.waiting_s += seconds
                else:
                    times.by_use[use] = times.by_use.get(use, 0.0) + seconds
                    times.by_bound[why] = times.by_bound.get(why, 0.0) + seconds
    marks = {
        name: MarkTimes(timeline.spans[noted.numbers[0]].end_s, timeline.spans[noted.numbers[-1]].end_s, noted.count)
        for name, noted in state.marks.items()
    }
    bound, where = _bound(streams, timeline)
    held_bytes, curve = held_curve(state.held, timeline.spans)
    return ProgramResult(
        name=program.name,
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
    """Return what sets the pace, and on which stream: what most of the critical path is spent on.

    Of the host and the devices, the side that is at work for most of the path, and of devices what bounds most of it.
    Where the host waits, and neither side is at work for most of the path, they take turns.
    """
    spent: dict[tuple[str, str], float] = {}
    since: dict[tuple[str, str], float] = {}
    for number in critical_path(timeline):
        task, span = timeline.plan.tasks[number], timeline.spans[number]
        if isinstance(task.about, Passed) and (whole_s := sum(since.values())):
            share = (span.end_s - span.start_s) / whole_s  # repetitions that passed at once are as those before them
            found, since = {key: share * seconds for key, seconds in since.items()}, {}
        else:
            found = {}
            for (use, why), seconds in busy_of(task.about, span):
                key = _NAMES.get(use, why), task.stream
                found[key] = found.get(key, 0.0) + seconds
                since[key] = since.get(key, 0.0) + seconds
        for key, seconds in found.items():
            spent[key] = spent.get(key, 0.0) + seconds
    if not spent:
        return "nothing", ""
    by_name: dict[str, float] = {}
    for (name, _), seconds in spent.items():
        by_name[name] = by_name.get(name, 0.0) + seconds
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
