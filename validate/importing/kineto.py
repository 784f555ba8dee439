"""Reading traces of PyTorch's profiler (Kineto's Chrome traces) and of ``simulate --trace``, which has the same format.

Traces are read event by event in bounded memory.  The kernels of the busiest device are kept or, if there are none, the
CPU's operators with their self times.  Fields and categories are those of pytorch/kineto
``libkineto/src/output_json.cpp`` (``ts`` and ``dur`` in microseconds), and those of traces before 2022
(torch-tb-profiler 0.4.3, ``profiler/trace.py``).
"""

import bisect
import gzip
import io
import json
import math
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass, own_data, own_patterns, sums_by_key
from simulator.user_files import open_user_file
from simulator.workload.operators import CLASSES as KERNELS
from validate.importing.nccl_table import number_of

_CHUNK = 1 << 20
_LONGEST_EVENT = 16 << 20
_MOST_HEAD = 4 << 20
_MOST_KEPT = 6_000_000
_MOST_NAMES = 200_000
_LONGEST_NAME = 10_000
_LONGEST_US, _LATEST_US = 1e12, 1e18  # 12 days; since 1970, times are some 2e15
_KNOWN: Mapping[str, Any] = own_data("validate.importing", "kernel_classes.yaml")
_ON_DEVICE, _OPERATORS, _LAUNCHES = (tuple(_KNOWN[which]) for which in ("on device", "on host", "launches"))
_PATTERNS = own_patterns("validate.importing", "kernel_classes.yaml", "patterns")
_GZIP = b"\x1f\x8b"


class Kernels:
    """Kernels or operators as parallel arrays: start and duration in seconds, group, class, name and launch.

    ``group`` is the device or thread; ``kind`` indexes :data:`CLASSES` and ``name`` the trace's names; ``launch`` is
    the correlation id shared with the call that launched the kernel, -1 if there is none.
    """

    def __init__(self) -> None:
        self.start_s, self.time_s = array("d"), array("d")
        self.group, self.kind, self.name, self.launch = array("q"), array("b"), array("l"), array("q")

    def __len__(self) -> int:
        return len(self.start_s)

    def add(self, start_s: float, time_s: float, group: int, kind: int, name: int, launch: int = -1) -> None:
        """Add a kernel or operator of the device or thread *group*."""
        self.start_s.append(start_s)
        self.time_s.append(time_s)
        self.group.append(group)
        self.kind.append(kind)
        self.name.append(name)
        self.launch.append(launch)

    def chosen(self, order: list[int]) -> "Kernels":
        """Return the kernels with the indices *order*, in this order."""
        made = Kernels()
        for name in vars(self):
            getattr(made, name).extend(getattr(self, name)[i] for i in order)
        return made


@dataclass(slots=True)
class Trace:
    """A trace: the kernels of one device in order, and the steps as intervals, in seconds since ``origin_s``.

    ``devices`` is the number of devices that ran kernels; with ``on_host`` there were none, and ``kernels`` holds
    operators of the CPU.  ``left_out`` counts kernels, or operators, whose name, place or times are unusable.
    """

    shown: str
    kernels: Kernels
    names: list[str]
    steps: list[tuple[float, float]]
    device: str = ""
    devices: int = 1
    on_host: bool = False
    origin_s: float = 0.0
    left_out: int = 0


def read_trace(path: str) -> Trace:
    """Return the trace in the file *path*; raises InputError if it cannot be read or is not a trace."""
    reader = _Reader(one_line(path, 1000))
    for event in trace_events(path, reader):
        reader.take(event)
    return reader.trace()


def trace_events(path: str, reader: "_Reader | None" = None) -> Iterator[dict[str, Any]]:
    """Yield the events of the trace in the file *path*; raises InputError if it cannot be read or is not a trace."""
    reader = reader or _Reader(one_line(path, 1000))
    try:
        with open_user_file(path) as raw:
            stream: IO[bytes] = raw
            if raw.peek(2)[:2] == _GZIP:
                stream = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]  # reads as a file does
            text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace")  # closed with what it reads, not before
            yield from reader.events(text)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        words = "is not a path" if isinstance(error, ValueError) else getattr(error, "strerror", None) or "is damaged"
        raise InputError(Fault(f"cannot be read: {words}", reader.shown)) from None


class _Reader:
    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.line = 1
        self._head = ""
        self._on_device, self._on_host = Kernels(), Kernels()
        self._number: dict[str, int] = {}
        self._group: dict[int | str, int] = {}
        self._left_out = {True: 0, False: 0}  # on the device and on the host
        self._names: list[str] = []
        # Marks of steps and of optimiser updates, on the device (True) and on the host (False).
        self._steps: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        self._updates: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        self._launched_s: dict[int, float] = {}  # on the host, by correlation id
        self._origin_us = math.nan  # start of the first event; a float near 1.7e15 us does not resolve nanoseconds

    def events(self, text: IO[str]) -> Iterator[dict[str, Any]]:
        """Yield the events of the trace, with one chunk of the file in memory at a time; raises InputError."""
        decoder = json.JSONDecoder(strict=False)
        held = self._find_list(text)
        at = 0
        while True:
            between = _PATTERNS["between"].match(held, at)
            at = between.end() if between is not None else at
            if held.startswith("]", at):
                return
            fault, place = "ends within its list of events", at
            if at < len(held):
                try:
                    event, end = decoder.raw_decode(held, at)
                except (ValueError, RecursionError) as error:
                    if len(held) - at > _LONGEST_EVENT:
                        raise self._fault("holds an event of more than 16 MB", held, at) from None
                    deep = isinstance(error, RecursionError)
                    words = "it is nested too deep" if deep else one_line(getattr(error, "msg", error))
                    fault, place = f"is not valid JSON: {words}", getattr(error, "pos", at)
                else:
                    if not isinstance(event, dict):
                        raise self._fault(f"{one_line(event, 40)} is not an event: each is an object {{...}}", held, at)
                    yield event
                    at = end
                    continue
            more = text.read(_CHUNK)
            if not more:
                raise self._fault(fault, held, place)
            held, at = self._moved(held, at) + more, 0

    def _find_list(self, text: IO[str]) -> str:
        held = text.read(_CHUNK)
        if held.lstrip("\ufeff \t\r\n").startswith("["):
            return self._moved(held, held.index("[") + 1)
        if not held.lstrip("\ufeff \t\r\n").startswith("{"):
            raise self._fault("is not a trace: neither an object with traceEvents nor a list", held, 0)
        while True:
            found = re.search(r'"traceEvents"\s*:\s*\[', held)
            if found is not None:
                self._head = held[: found.start()]
                return self._moved(held, found.end())
            more = text.read(_CHUNK)
            if not more or len(held) > _MOST_HEAD:
                raise self._fault("is not a trace: it has no list traceEvents", held, 0)
            held += more

    def _moved(self, held: str, at: int) -> str:
        self.line += held.count("\n", 0, at)
        return held[at:]

    def _fault(self, message: str, held: str, at: int) -> InputError:
        line = self.line + held.count("\n", 0, at)
        return InputError(Fault(message, self.shown, line, at - held.rfind("\n", 0, at)))

    def take(self, event: dict[str, Any]) -> None:
        """Record *event* if it is a kernel, an operator, a launch, or the mark of a step or update."""
        if event.get("ph") != "X":
            return
        category, name = str(event.get("cat", "")).lower(), event.get("name")
        start_us, time_us = number_of(event.get("ts")), number_of(event.get("dur"))
        place = event.get("tid" if category in _OPERATORS else "pid")
        usable = isinstance(name, str) and 0.0 <= time_us <= _LONGEST_US and abs(start_us) <= _LATEST_US
        if not usable or not isinstance(name, str) or (place is not None and not isinstance(place, int | str)):
            if category in (*_ON_DEVICE, *_OPERATORS):
                self._left_out[category in _ON_DEVICE] += 1
            return
        name = name[:_LONGEST_NAME]
        if math.isnan(self._origin_us):
            self._origin_us = start_us
        start_us -= self._origin_us
        arguments = event.get("args")
        told = arguments if isinstance(arguments, dict) else {}
        is_step, is_update = _PATTERNS["step"].fullmatch(name), _PATTERNS["update"].match(name)
        marks = self._steps if is_step else self._updates if is_update else None
        if marks is not None and category in ("user_annotation", "gpu_user_annotation", *_OPERATORS):
            marks[category == "gpu_user_annotation"].append((start_us * 1e-6, (start_us + time_us) * 1e-6))
        elif category in _ON_DEVICE:
            kind = "copy" if category != "kernel" else class_of_prediction(told) or class_of_kernel(name)
            self._keep(self._on_device, (start_us, time_us), place, kind, name, _correlation(told))
        elif category in _LAUNCHES and not self._steps[True]:
            if (launch := _correlation(told)) >= 0:
                self._launched_s[launch] = start_us * 1e-6
        elif category in _OPERATORS and not len(self._on_device):
            self._keep(self._on_host, (start_us, time_us), place, class_of_operator(name), name)

    def _keep(
        self, to: Kernels, span_us: tuple[float, float], place: int | str | None, kind: str, name: str, launch: int = -1
    ) -> None:
        if len(to) >= _MOST_KEPT:
            raise InputError(Fault(f"holds more than {_MOST_KEPT:,} kernels; profile fewer steps", self.shown))
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = min(len(self._names), _MOST_NAMES)
            if len(self._names) <= _MOST_NAMES:
                self._names.append(one_line(name, 200))
        group = self._group.setdefault("" if place is None else place, len(self._group))
        to.add(span_us[0] * 1e-6, span_us[1] * 1e-6, group, CLASSES.index(kind), number, launch)

    def trace(self) -> Trace:
        on_host = not len(self._on_device)
        kept = self._on_host if on_host else self._on_device
        left_out = self._left_out[not on_host or self._left_out[True] > 0]
        if not len(kept):
            of = f"; {left_out:,} have no usable name, place, start or duration" if left_out else ""
            raise InputError(Fault(f"holds no kernel and no operator of PyTorch's profiler{of}", self.shown))
        steps, device, devices = sorted(self._steps[True] or self._steps[False]), "", 1
        if on_host:
            kernels = _by_themselves(kept)
        else:
            busy = sums_by_key(zip(kept.group, kept.time_s, strict=True))
            busiest, devices = max(busy, key=lambda group: busy[group]), len(busy)
            mine = [i for i in range(len(kept)) if kept.group[i] == busiest]
            kernels = kept.chosen(sorted(mine, key=lambda i: kept.start_s[i]))
            steps = steps if self._steps[True] else steps_on_device(steps, kernels, self._launched_s)
            kernels = _joined(kernels, self._names)
            named = _PATTERNS["device"].search(self._head)
            device = one_line(named[1], 60) if named else ""
        updates = sorted(self._updates[not on_host])
        for i, start_s in enumerate(kernels.start_s):  # an optimiser's kernels may have generic names
            if CLASSES[kernels.kind[i]] == "elementwise" and span_at(updates, start_s) is not None:
                kernels.kind[i] = CLASSES.index("optimizer")
        last = on_host, self._origin_us * 1e-6, left_out
        return Trace(self.shown, kernels, self._names, steps, device, devices, *last)


def _joined(kernels: Kernels, names: list[str]) -> Kernels:
    """Return *kernels* with those that finish another's work merged into it, so that an operator is one kernel."""
    ends = [bool(_PATTERNS["ends"].search(name)) for name in names]
    made = Kernels()
    for i in range(len(kernels)):
        kind, time_s = kernels.kind[i], kernels.time_s[i]
        if ends[kernels.name[i]] and len(made) and made.kind[-1] == kind:
            if time_s > made.time_s[-1]:
                made.name[-1] = kernels.name[i]  # keep the name of the longer kernel
            made.time_s[-1] += time_s
        else:
            made.add(kernels.start_s[i], time_s, kernels.group[i], kind, kernels.name[i])
    return made


def span_at(spans: Sequence[tuple[float, float]], time_s: float) -> int | None:
    """Return the index of the last of *spans*, which are in order, to begin by *time_s*; None if it is over."""
    place = bisect.bisect_right(spans, time_s, key=lambda span: span[0]) - 1
    return place if place >= 0 and time_s < spans[place][1] else None


def _by_themselves(kept: Kernels) -> Kernels:
    """Return the operators in order, with their self times: without the operators that they call."""
    order = sorted(range(len(kept)), key=lambda i: (kept.group[i], kept.start_s[i], -kept.time_s[i]))
    own_s = list(kept.time_s)
    open_: list[int] = []
    for i in order:
        while open_:
            last = open_[-1]
            if kept.group[last] == kept.group[i] and kept.start_s[i] < kept.start_s[last] + kept.time_s[last]:
                own_s[last] -= kept.time_s[i]
                break
            open_.pop()
        open_.append(i)
    for i, time_s in enumerate(own_s):
        kept.time_s[i] = max(0.0, time_s)
    return kept.chosen(sorted(range(len(kept)), key=lambda i: kept.start_s[i]))


def _correlation(told: Mapping[str, Any]) -> int:
    found = told.get("correlation", -1)
    return found if isinstance(found, int) and 0 <= found < 1 << 62 else -1


def steps_on_device(
    marks: Sequence[tuple[float, float]], kernels: Kernels, launched_s: Mapping[int, float]
) -> list[tuple[float, float]]:
    """Return the start and end of each step, in seconds, from the host's *marks* and the kernels launched within them.

    A step ends with its last kernel or its mark, whichever is later, as torch-tb-profiler 0.4.3 has it
    (``profiler/event_parser.py``, ``update_device_steps``).  Without launches the marks are returned unchanged.
    """
    if not marks or not any(correlation in launched_s for correlation in kernels.launch):
        return list(marks)
    starts = [start_s for start_s, _ in marks]
    ends = [end_s for _, end_s in marks]
    before_s = starts[0]
    pairs = zip(kernels.start_s, kernels.launch, strict=True)
    own = [s for s, each in pairs if launched_s.get(each, -1.0) >= starts[0]]
    first_s = min(own, default=starts[0])  # kernels before this were launched before the first step
    for start_s, time_s, correlation in zip(kernels.start_s, kernels.time_s, kernels.launch, strict=True):
        at_s = launched_s.get(correlation)
        place = -1 if at_s is None else bisect.bisect_right(starts, at_s) - 1
        if place >= 0 and at_s is not None and at_s < marks[place][1]:
            ends[place] = max(ends[place], start_s + time_s)
        elif place < 0 and start_s < first_s:
            before_s = max(before_s, start_s + time_s)
    found: list[tuple[float, float]] = []
    for start_s, end_s in zip(starts, ends, strict=True):
        begin_s = max(start_s, found[-1][1] if found else before_s)
        found.append((begin_s, max(begin_s, end_s)))
    return found


CLASSES = ("product", "convolution", "attention", "elementwise", "optimizer", "copy", "collective", "other")


def class_of_kernel(name: str) -> str:
    """Return the class of a GPU kernel by its *name*; unmatched names, such as normalisations, count as elementwise."""
    found = (kind for kind, pattern in _KNOWN["kernels"] if re.search(pattern, name[:400]))
    normalises = _PATTERNS["normalises"].search(name[:400])
    return next((kind for kind in found if kind != "convolution" or not normalises), "elementwise")


def class_of_operator(name: str) -> str:
    """Return the class of a PyTorch operator on a CPU by its *name*."""
    return next((kind for kind, pattern in _KNOWN["operators"] if re.search(pattern, name[:200])), "elementwise")


def class_of_prediction(told: Mapping[str, Any]) -> str:
    """Return the class of a kernel from a trace of ``simulate --trace``, by its arguments; empty for other traces."""
    if "class" in told and "bound by" in told:
        known = KERNELS.get(str(told["class"]))
        return "optimizer" if told.get("part") == "update" else known.traced if known is not None else "other"
    if "task" in told and "waits for" in told:
        return "collective" if "bytes" in told else "other"
    return ""
