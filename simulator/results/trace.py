"""A timeline as a Chrome trace, in the shape that Kineto writes, for Perfetto.

One process for each device and host thread, one thread for each stream and peer, an ``X``
slice for each flow and piece of work, a counter for each link in GB/s, and on each rank one
slice for the collective, named and described as NCCL's kernels are.  Times are whole
nanoseconds, written in microseconds with three decimals.

What the timeline does not hold is not drawn: a flow's slice ends when its last byte has
arrived, and a link's counter is the mean rate of the flows whose slices cover that instant,
so that its area is the bytes that crossed the link.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from simulator.engine.timeline import Span, Timeline
from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Transfer, Work
from simulator.results.document import whole_number
from simulator.results.result import Result
from simulator.topology.parts import GpuPart

__all__ = ["MAX_ROUNDS", "MAX_SLICES", "chrome_trace"]

MAX_ROUNDS = 64  # rounds of one transfer that are drawn one by one
MAX_SLICES = 20_000  # flows' slices in one trace, above which rounds are drawn together
_FP32_BYTES = 4
_KINETO_NAMES = {
    "all-reduce": ("allreduce", "AllReduce_Sum_f32"),
    "all-gather": ("all_gather", "AllGather"),
    "reduce-scatter": ("reduce_scatter", "ReduceScatter_Sum_f32"),
    "broadcast": ("broadcast", "Broadcast"),
    "reduce": ("reduce", "Reduce_Sum_f32"),
    "all-to-all": ("all_to_all", "SendRecv"),
    "send-recv": ("send_recv", "SendRecv"),
}


@dataclass(frozen=True, slots=True)
class _Slice:
    """``track`` is the thread it belongs to, by name, within the process ``pid``."""

    pid: int
    track: str
    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]


@dataclass(slots=True)
class _Sheet:
    """What is drawn, before threads have numbers."""

    slices: list[_Slice] = field(default_factory=list)
    rates: dict[int, list[tuple[int, float]]] = field(default_factory=dict)  # link -> changes of GB/s


def chrome_trace(result: Result) -> str:
    """Return *result*'s timeline as the text of a trace; the same result gives the same text."""
    timeline = result.timeline
    machine = timeline.machine
    pids = _processes(machine)
    sheet = _Sheet()
    _collective_slices(result, pids, sheet)
    wanted = sum(
        len(task.flows) * min(task.repeat, MAX_ROUNDS) for task in timeline.plan.tasks if isinstance(task, Transfer)
    )
    rounds_drawn = MAX_ROUNDS if wanted <= MAX_SLICES else 0
    for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True):
        if isinstance(task, Work):
            _work_slice(task, span, machine, pids, sheet)
        else:
            _flow_slices(task, span, timeline, rounds_drawn, pids, sheet)
    events = [*_thread_events(sheet, machine, pids), *_counter_events(sheet, machine, pids)]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [_properties(machine, i) for i in range(len(machine.gpus))],
        "distributedInfo": {"backend": "simulated", "rank": 0, "world_size": result.n_ranks},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": f"{result.machine} {result.strategy}",
    }
    body = ",\n".join(events)
    return json.dumps(head)[:-1] + ', "traceEvents": [\n' + body + "\n]}\n"


# -- what is drawn -----------------------------------------------------------------


def _collective_slices(result: Result, pids: dict[int, int], sheet: _Sheet) -> None:
    """On each rank, one slice over the whole collective, as the kernel that NCCL would launch."""
    called, kernel = _KINETO_NAMES[result.collective]
    how = str(result.facts.get("algorithm", result.strategy)).upper().replace("-", "_")
    protocol = str(result.facts.get("protocol", "SIMPLE")).upper()
    count = int(result.size_bytes) // _FP32_BYTES
    inputs, outputs = count, count
    if result.collective == "all-gather":
        inputs = count // result.n_ranks
    if result.collective == "reduce-scatter":
        outputs = count // result.n_ranks
    machine = result.timeline.machine
    for rank, gpu in enumerate(result.gpus):
        args = {
            "Collective name": called,
            "dtype": "Float",
            "In msg nelems": inputs,
            "Out msg nelems": outputs,
            "Group size": result.n_ranks,
            "Process Group Name": "default",
            "Process Group Ranks": list(range(result.n_ranks)) if result.n_ranks <= 64 else "all",
            "Rank": rank,
            "Seq": 0,
            "strategy": result.strategy,
            "bytes": int(result.size_bytes),
        }
        name = f"ncclDevKernel_{kernel}_{how}_{protocol}"
        end_ns = _ns(result.sync_time_s)
        sheet.slices.append(_Slice(pids[machine.gpus[gpu]], "collective", name, "kernel", 0, end_ns, args))


def _work_slice(task: Work, span: Span, machine: Machine, pids: dict[int, int], sheet: _Sheet) -> None:
    start_ns, end_ns = _ns(span.start_s), _ns(span.end_s)
    if start_ns == end_ns and task.duration_s == 0:
        return  # joins streams, takes no time
    node = machine.index_of.get(task.place, -1)
    category = "kernel" if node in machine.gpus else "cpu_op"
    sheet.slices.append(_Slice(pids[node], task.stream, task.label, category, start_ns, end_ns, {"task": task.id}))


def _flow_slices(
    task: Transfer, span: Span, timeline: Timeline, rounds_drawn: int, pids: dict[int, int], sheet: _Sheet
) -> None:
    machine = timeline.machine
    ends_s = _flow_ends_s(task, span)
    for first, last, start_s, length_s in _stretches(task, span, rounds_drawn):
        for flow, end_s in zip(task.flows, ends_s, strict=True):
            n_rounds = last - first + 1
            drawn_s = length_s if n_rounds > 1 else min(end_s, length_s)
            start_ns, end_ns = _ns(start_s), _ns(start_s + drawn_s)
            source, target = machine.nodes[flow.route.src].name, machine.nodes[flow.route.dst].name
            args = {
                "from": source,
                "to": target,
                "bytes": whole_number(flow.bytes * flow.count * n_rounds),
                "on the wire": whole_number(flow.wire_bytes * flow.count * n_rounds),
                "round": first if n_rounds == 1 else f"{first} to {last}",
                "rounds": task.repeat,
                "flows": flow.count,
                "path": flow.route.path_class,
                "transport": flow.route.transport,
                "task": task.id,
            }
            name = task.label if n_rounds == 1 else f"{task.label}, {n_rounds} rounds"
            track = f"{task.stream} to {target}"
            sheet.slices.append(_Slice(pids[flow.route.src], track, name, "comm", start_ns, end_ns, args))
            _add_rates(flow, n_rounds / drawn_s if drawn_s > 0 else 0.0, start_ns, end_ns, sheet)


def _stretches(task: Transfer, span: Span, rounds_drawn: int) -> Iterator[tuple[int, int, float, float]]:
    """Yield (first round, last round, start, length) of what is drawn as one slice a flow."""
    total_s = span.end_s - span.start_s
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


def _flow_ends_s(task: Transfer, span: Span) -> list[float]:
    """Return when each flow of *task* ends within its round; copies that ran apart count as one."""
    ends = list(span.flow_ends_s)
    if len(ends) == len(task.flows):
        return ends
    if len(ends) == sum(flow.count for flow in task.flows):
        position, joined = 0, []
        for flow in task.flows:
            joined.append(max(ends[position : position + flow.count], default=0.0))
            position += flow.count
        return joined
    return [span.round_s] * len(task.flows)


def _add_rates(flow: Flow, rounds_per_s: float, start_ns: int, end_ns: int, sheet: _Sheet) -> None:
    if end_ns <= start_ns:
        return
    for link, share in flow.route.links:
        rate = flow.wire_bytes * flow.count * share * rounds_per_s / 1e9
        changes = sheet.rates.setdefault(link, [])
        changes.append((start_ns, rate))
        changes.append((end_ns, -rate))


# -- how it is written -------------------------------------------------------------


def _processes(machine: Machine) -> dict[int, int]:
    """Return the process of each node: a GPU's number, then the other devices, then (-1) the host thread."""
    pids = {node: i for i, node in enumerate(machine.gpus)}
    for node in machine.nodes:
        if node.index not in pids:
            pids[node.index] = len(pids)
    pids[-1] = len(pids)
    return pids


def _thread_events(sheet: _Sheet, machine: Machine, pids: dict[int, int]) -> Iterator[str]:
    """Yield names and slices.  Slices of one thread follow one another: those that overlap get threads of their own."""
    names = {pid: machine.nodes[node].name if node >= 0 else "host" for node, pid in pids.items()}
    tracks: dict[int, dict[str, list[_Slice]]] = {}
    for item in sheet.slices:
        tracks.setdefault(item.pid, {}).setdefault(item.track, []).append(item)
    counted = {pids[machine.links[link].src] for link in sheet.rates}
    for pid in sorted({*tracks, *counted}):
        yield _metadata("process_name", pid, 0, {"name": names[pid]})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
        tid = 0
        for track, items in tracks.get(pid, {}).items():
            for i, lane in enumerate(_lanes(items)):
                tid += 1
                yield _metadata("thread_name", pid, tid, {"name": track if i == 0 else f"{track} ({i + 1})"})
                yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
                for item in lane:
                    yield _written(item, tid)


def _lanes(items: list[_Slice]) -> list[list[_Slice]]:
    lanes: list[list[_Slice]] = []
    for item in sorted(items, key=lambda s: (s.start_ns, s.end_ns)):
        lane = next((lane for lane in lanes if lane[-1].end_ns <= item.start_ns), None)
        if lane is None:
            lanes.append([item])
        else:
            lane.append(item)
    return lanes


def _counter_events(sheet: _Sheet, machine: Machine, pids: dict[int, int]) -> Iterator[str]:
    for link in sorted(sheet.rates):
        name = f"link {machine.links[link].name} GB/s"
        pid = pids[machine.links[link].src]
        changes: dict[int, float] = {}
        for at_ns, change in sheet.rates[link]:
            changes[at_ns] = changes.get(at_ns, 0.0) + change
        rate, shown = 0.0, -1.0
        for at_ns in sorted(changes):
            rate += changes[at_ns]
            value = round(rate, 6) + 0.0
            if value != shown:
                shown = value
                head = json.dumps({"ph": "C", "name": name, "pid": pid, "tid": 0})[:-1]
                yield f'{head}, "ts": {_us(at_ns)}, "args": {json.dumps({"GB/s": abs(value)})}}}'


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args})


def _written(item: _Slice, tid: int) -> str:
    head = json.dumps({"ph": "X", "cat": item.category, "name": item.name, "pid": item.pid, "tid": tid})[:-1]
    span = f'"ts": {_us(item.start_ns)}, "dur": {_us(item.end_ns - item.start_ns)}'
    return f'{head}, {span}, "args": {json.dumps(item.args)}}}'


def _properties(machine: Machine, gpu: int) -> dict[str, Any]:
    node = machine.nodes[machine.gpus[gpu]]
    part = node.part
    properties: dict[str, Any] = {"id": gpu, "name": part.description or node.name}
    if isinstance(part, GpuPart):
        if part.memory_size:
            properties["totalGlobalMem"] = int(part.memory_size)
        if part.compute_capability:
            major, minor = part.compute_capability.split(".")
            properties |= {"computeMajor": int(major), "computeMinor": int(minor)}
        if part.sm_count:
            properties["numSms"] = part.sm_count
    return properties


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"
