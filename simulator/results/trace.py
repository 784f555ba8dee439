"""A timeline as a Chrome trace in Kineto's format, in whole ns (docs/decisions/results.md; format: docs/results.md)."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from simulator.engine.executor import alone
from simulator.engine.timeline import Span, Timeline
from simulator.network.machine import Machine
from simulator.plan.plan import Activity, Flow, Fragment
from simulator.programs.costs import ProgramLabel, SkippedRepetitions
from simulator.records import sums_by_key
from simulator.results import WORDS, rounded_integer
from simulator.results.held import HeldAt
from simulator.results.program import ProgramResult
from simulator.results.ran import critical_path
from simulator.results.result import Result
from simulator.step.launch import Launch
from simulator.topology.parts import GpuPart
from simulator.training.servers import ARRIVES
from simulator.training.worker import STREAM, ChunkRun, CollectiveLabel, LaunchLabel, SkippedMicroBatches
from simulator.workload.kernels import without_library

MAX_ROUNDS = 64  # rounds of one transfer that are drawn separately
MAX_SLICES = 20_000  # flow slices in one trace; beyond it, rounds are drawn together
_FP32_BYTES = 4


class Slice(NamedTuple):
    """A slice of the thread named ``track`` in the process ``pid``."""

    pid: int
    track: str
    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


class Sheet:
    """The slices and counters of a trace of *machine*, before threads are numbered."""

    def __init__(self, machine: Machine, critical: frozenset[int] = frozenset()) -> None:
        self.machine = machine
        self.critical = critical  # tasks on the critical path
        self.slices: list[Slice] = []
        self.rates: dict[int, list[tuple[int, float]]] = {}  # link -> changes in GB/s
        self.memory: list[tuple[int, float]] = []  # of the first GPU: times, and GB from then on
        nodes = [*machine.gpus, *(node.index for node in machine.nodes if node.index not in set(machine.gpus)), -1]
        self._pids = {node: pid for pid, node in enumerate(nodes)}

    def add(
        self, node: int, track: str, name: str, category: str, start_s: float, end_s: float, args: dict[str, Any]
    ) -> None:
        """Add a slice of the process of *node* (-1: the host thread)."""
        args = {**args, "critical": True} if args.get("task") in self.critical else args
        drawn = _nanoseconds(start_s), _nanoseconds(end_s)
        self.slices.append(Slice(self._pids[node], track, name, category, *drawn, args))

    def add_rate(self, link: int, start_s: float, end_s: float, rate: float) -> None:
        """Add *rate* in GB/s to the counter of *link*, from one time to another."""
        changes = self.rates.setdefault(link, [])
        changes += [(_nanoseconds(start_s), rate), (_nanoseconds(end_s), -rate)]

    def text(self, name: str, n_ranks: int = 1) -> str:
        """Return the trace as JSON text; equal sheets give equal text."""
        events = [*self._threads()]
        held = dict(self.memory).items()
        events += [_counter("memory in use GB", 0, at_ns, {"GB": round(size, 6)}) for at_ns, size in held]
        events += self._counters()
        head = {
            "schemaVersion": 1,
            "deviceProperties": [self._properties(i) for i in range(len(self.machine.gpus))],
            "distributedInfo": {"backend": "simulated", "rank": 0, "world_size": n_ranks},
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 0,
            "traceName": name,
        }
        body = ",\n".join(events)
        return json.dumps(head)[:-1] + ', "traceEvents": [\n' + body + "\n]}\n"

    def _threads(self) -> Iterator[str]:
        """Yield names and slices; overlapping slices of one thread are moved to threads of their own."""
        names = {pid: self.machine.nodes[node].name if node >= 0 else "host" for node, pid in self._pids.items()}
        tracks: dict[int, dict[str, list[Slice]]] = {}
        for item in self.slices:
            tracks.setdefault(item.pid, {}).setdefault(item.track, []).append(item)
        counted = {self._pids[self.machine.links[link].src] for link in self.rates}
        for pid in sorted({*tracks, *counted}):
            yield _metadata("process_name", pid, 0, {"name": names[pid]})
            yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
            tid = 0
            for track, items in tracks.get(pid, {}).items():
                lanes: list[list[Slice]] = []
                for item in sorted(items, key=lambda s: (s.start_ns, s.end_ns)):
                    lane = next((lane for lane in lanes if lane[-1].end_ns <= item.start_ns), None)
                    if lane is None:
                        lanes.append(lane := [])
                    lane.append(item)
                for i, lane in enumerate(lanes):
                    tid += 1
                    yield _metadata("thread_name", pid, tid, {"name": track if i == 0 else f"{track} ({i + 1})"})
                    yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
                    for item in lane:
                        head = {"ph": "X", "cat": item.category, "name": item.name, "pid": item.pid, "tid": tid}
                        span = f'"ts": {_us(item.start_ns)}, "dur": {_us(item.end_ns - item.start_ns)}'
                        yield f'{json.dumps(head)[:-1]}, {span}, "args": {json.dumps(item.args)}}}'

    def _counters(self) -> Iterator[str]:
        for link in sorted(self.rates):
            name, pid = f"link {self.machine.links[link].name} GB/s", self._pids[self.machine.links[link].src]
            changes = sums_by_key(self.rates[link])
            rate, shown = 0.0, -1.0
            for at_ns in sorted(changes):
                rate += changes[at_ns]
                value = round(rate, 6) + 0.0
                if value != shown:
                    shown = value
                    yield _counter(name, pid, at_ns, {"GB/s": abs(value)})

    def _properties(self, gpu: int) -> dict[str, Any]:
        node = self.machine.nodes[self.machine.gpus[gpu]]
        part = node.part
        properties: dict[str, Any] = {"id": gpu, "name": part.description or node.name}
        if isinstance(part, GpuPart):
            major, _, minor = (part.compute_capability or "").partition(".")
            told = {"totalGlobalMem": part.memory_size, "computeMajor": major, "computeMinor": minor}
            told["numSms"] = part.sm_count
            properties |= {name: int(figure) for name, figure in told.items() if figure}
        return properties


def _counter(name: str, pid: int, at_ns: int, args: dict[str, float]) -> str:
    head = json.dumps({"ph": "C", "name": name, "pid": pid, "tid": 0})[:-1]
    return f'{head}, "ts": {_us(at_ns)}, "args": {json.dumps(args)}}}'


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args})


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _is_drawn(start_s: float, end_s: float) -> bool:
    return _nanoseconds(start_s) < _nanoseconds(end_s)


# -- a collective ----------------------------------------------------------------------


def chrome_trace(result: Result) -> str:
    """Return the timeline of *result* as the JSON text of a trace; equal results give equal text."""
    tasks, machine = result.timeline.plan.tasks, result.timeline.machine
    sheet = Sheet(machine)
    _collective_slices(result, sheet)
    wanted = sum(len(task.flows) * min(task.repeat, MAX_ROUNDS) for task in tasks)
    rounds_drawn = MAX_ROUNDS if wanted <= MAX_SLICES else 0
    for task, span in result.timeline.ran():
        if not task.place:
            _flow_slices(task, span, rounds_drawn, sheet)
        elif _is_drawn(span.start_s, span.end_s) or task.duration_s:  # not a join of streams, which takes no time
            found = machine.find(task.place)
            node = found.index if found else -1
            category = "kernel" if node in machine.gpus else "cpu_op"
            sheet.add(node, task.stream, task.label, category, span.start_s, span.end_s, {"task": task.id})
    return sheet.text(f"{result.machine} {result.strategy}", result.n_ranks)


def _collective_slices(result: Result, sheet: Sheet) -> None:
    """Add one slice per rank for the whole collective, as the kernel that NCCL would launch."""
    called, kernel = WORDS["kineto"][result.collective], WORDS["nccl_kernels"][result.collective]
    how = str(result.facts.get("algorithm", result.strategy)).upper().replace("-", "_")
    protocol = str(result.facts.get("protocol", "SIMPLE")).upper()
    count = int(result.size_bytes) // _FP32_BYTES
    for rank, gpu in enumerate(result.gpus):
        args = {
            "Collective name": called,
            "dtype": "Float",
            "In msg nelems": count // (result.n_ranks if result.collective == "all-gather" else 1),
            "Out msg nelems": count // (result.n_ranks if result.collective == "reduce-scatter" else 1),
            "Group size": result.n_ranks,
            "Process Group Name": "default",
            "Process Group Ranks": list(range(result.n_ranks)) if result.n_ranks <= 64 else "all",
            "Rank": rank,
            "Seq": 0,
            "strategy": result.strategy,
            "bytes": int(result.size_bytes),
        }
        name = f"ncclDevKernel_{kernel}_{how}_{protocol}"
        sheet.add(sheet.machine.gpus[gpu], "collective", name, "kernel", 0.0, result.sync_time_s, args)


def _flow_slices(task: Activity, span: Span, rounds_drawn: int, sheet: Sheet) -> None:
    nodes = sheet.machine.nodes
    ends_s = _flow_ends_s(task, span)
    for first, last, start_s, length_s in _stretches(task, span, rounds_drawn):
        n_rounds = last - first + 1
        for flow, own_s in zip(task.flows, ends_s, strict=True):
            drawn_s = length_s if n_rounds > 1 else min(own_s, length_s)
            target = nodes[flow.route.dst].name
            args = {
                "from": nodes[flow.route.src].name,
                "to": target,
                "bytes": rounded_integer(flow.bytes * flow.count * n_rounds),
                "on the wire": rounded_integer(flow.wire_bytes * flow.count * n_rounds),
                "round": first if n_rounds == 1 else f"{first} to {last}",
                "rounds": task.repeat,
                "flows": flow.count,
                "path": flow.route.path_class,
                "transport": flow.route.transport,
                "task": task.id,
            }
            name = task.label if n_rounds == 1 else f"{task.label}, {n_rounds} rounds"
            track, end_s = f"{task.stream} to {target}", start_s + drawn_s
            sheet.add(flow.route.src, track, name, "comm", start_s, end_s, args)
            for link, share in flow.route.links if _is_drawn(start_s, end_s) else ():
                rate = flow.wire_bytes * flow.count * share * n_rounds / drawn_s / 1e9
                sheet.add_rate(link, start_s, end_s, rate)


def _stretches(task: Activity, span: Span, rounds_drawn: int) -> Iterator[tuple[int, int, float, float]]:
    """Yield (first round, last round, start, length) of each group of rounds that is one slice per flow."""
    total_s = span.length_s
    if task.repeat == 1:
        yield 1, 1, span.start_s, total_s
        return
    alike = abs(task.repeat * span.round_s - total_s) <= 1e-9 * total_s
    single = min(task.repeat if alike else 1, rounds_drawn)
    for i in range(single):
        yield i + 1, i + 1, span.start_s + i * span.round_s, span.round_s
    if single < task.repeat:
        begin_s = span.start_s + single * span.round_s
        yield single + 1, task.repeat, begin_s, span.end_s - begin_s


def _flow_ends_s(task: Activity, span: Span) -> list[float]:
    """Return the end of each flow of *task* within its round; copies that ran separately count as one."""
    ends = iter(span.flow_ends_s)
    if len(span.flow_ends_s) == len(task.parts):
        return [
            end_s for part, end_s in zip(task.parts, ends, strict=True) if isinstance(part, Flow) for _ in part.apart()
        ]
    if len(span.flow_ends_s) == sum(flow.count for flow in task.flows):
        return [max((next(ends) for _ in range(flow.count)), default=0.0) for flow in task.flows]
    return [span.round_s] * len(task.flows)


# -- a program -------------------------------------------------------------------------


def program_trace(result: ProgramResult) -> str:
    """Return the trace as JSON text; equal results give equal text."""
    sheet = Sheet(result.timeline.machine)
    for task, span in result.timeline.ran(ProgramLabel, SkippedRepetitions):
        about = task.about
        named = isinstance(about, ProgramLabel)
        if not _is_drawn(span.start_s, span.end_s) or (named and about.use in ("hidden", "mark")):
            continue
        on_host = task.stream.split(" ")[0] == "host"
        node = None if on_host else sheet.machine.find(task.place)
        told = {"task": task.id, "waits for": list(task.after)}
        if named:
            told |= {"does": about.use} | ({"bound by": about.bound} if about.use == "kernel" else {})
            told |= {"bytes": int(about.bytes)} if about.bytes else {}
        category = "kernel" if node is not None and node.kind == "gpu" else "cpu_op"
        track = task.stream if on_host else task.stream.partition("/")[2] or task.stream
        sheet.add(-1 if node is None else node.index, track, task.label, category, span.start_s, span.end_s, told)
    return sheet.text(f"{result.machine} {result.name}")


# -- a step ----------------------------------------------------------------------------


def step_trace(timeline: Timeline, name: str, n_ranks: int = 1, held: Sequence[HeldAt] = ()) -> str:
    """Return *timeline* as the JSON text of a trace called *name*, with the memory *held* as a counter.

    Equal timelines give equal text.  Of equal ranks, only the simulated one is drawn.
    """
    sheet = Sheet(timeline.machine, frozenset(critical_path(timeline)))
    at = _places(timeline, timeline.machine)
    for task, span in timeline.ran():
        track, node = task.stream.rpartition("/")[2], at.get(task.stream, -1)
        if isinstance(task.about, LaunchLabel):
            _issue(sheet, node, track, task, span, task.about)
        elif span.end_s > span.start_s and (task.about != ARRIVES or span.end_s == timeline.end_s):
            on_device = isinstance(task.about, CollectiveLabel | ChunkRun)
            category = "kernel" if on_device else "cpu_op"
            number = f" {task.about.micro_batch}" if isinstance(task.about, ChunkRun) else ""
            sheet.add(node, track, f"{task.label}{number}", category, span.start_s, span.end_s, _told(task))
            for part in (part for part in task.parts if isinstance(part, Fragment)):
                for link, n_bytes in alone(timeline.machine, part).link_bytes.carried():
                    sheet.add_rate(link, span.start_s, span.end_s, n_bytes / span.length_s / 1e9)
    sheet.memory = [(_nanoseconds(each.at_s), each.total_bytes / 1e9) for each in held]
    return sheet.text(name, n_ranks)


def _places(timeline: Timeline, machine: Machine) -> dict[str, int]:
    """Return the node of each stream: sends and reductions of a stage at its GPU, collectives at the first GPU."""
    places = {task.stream: machine.find(task.place) for task in timeline.plan.tasks if task.place}
    at = {stream: node.index if node else -1 for stream, node in places.items()}
    first = next((node for node in at.values() if node in machine.gpus), machine.gpus[0] if machine.gpus else -1)
    for stream in dict.fromkeys(task.stream for task in timeline.plan.tasks):
        whose = stream.rpartition("/")[0]
        if whose or stream.endswith(STREAM):
            at.setdefault(stream, at.get(f"{whose}/compute", first))
    return at


def _told(task: Activity) -> dict[str, Any]:
    told: dict[str, Any] = {"task": task.id, "waits for": list(task.after)}
    about = task.about
    if isinstance(about, CollectiveLabel):
        told |= {"bytes": int(about.size_bytes), "micro-batch": about.micro_batch}
        for part in task.parts:
            told |= part.plan.facts if isinstance(part, Fragment) else {}
    if isinstance(about, ChunkRun):
        told |= {"micro-batch": about.micro_batch, "share": about.share}
    if isinstance(about, SkippedMicroBatches):
        told |= {"micro-batches": about.count}
    return told


def _issue(sheet: Sheet, node: int, track: str, task: Activity, span: Span, about: LaunchLabel) -> None:
    """Add the slices of an issue: the operator on a host, its kernels on a device, or both on a CPU."""
    issue = about.issue
    if not about.on_host:
        stretch = span.length_s / issue.device_s if issue.device_s > 0 else 1.0
        _kernels(sheet, node, issue, span.start_s, stretch, _told(task))
    elif _is_drawn(span.start_s, span.end_s):
        told = {**_told(task), "part": issue.part}
        sheet.add(node, track, f"{issue.name}, {issue.part}", "cpu_op", span.start_s, span.end_s, told)
        if span.length_s > issue.host_s + 1e-12:  # a CPU, which computes where it launches
            _kernels(sheet, node, issue, span.start_s + issue.host_s, 1.0, {"task": task.id})


def _kernels(sheet: Sheet, node: int, issue: Launch, start_s: float, stretch: float, args: dict[str, Any]) -> None:
    for kind, cost in zip(issue.work.kinds, issue.work.costs, strict=True):
        end_s = start_s + stretch * cost.time_s
        if _is_drawn(start_s, end_s):
            told: dict[str, Any] = {"part": issue.part, "class": without_library(kind), "bound by": cost.bound}
            told |= {"FLOP": cost.flop, "bytes": cost.bytes}
            told |= {"algorithm": cost.detail} if cost.detail else {}
            sheet.add(node, "compute", f"{issue.name}, {issue.part}", "kernel", start_s, end_s, {**args, **told})
        start_s = end_s
