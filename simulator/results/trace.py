"""A timeline as a Chrome trace in Kineto's format, for Perfetto.

It has one process for each device and host thread, one thread for each stream and peer, an ``X`` slice for each flow
and piece of work, and a counter in GB/s for each link.  On each rank, one slice stands for the collective, named and
described as NCCL's kernels are.  Times are whole nanoseconds, written in microseconds with three decimals.

Only the content of the timeline is drawn: a flow's slice ends when its last byte has arrived, and a link's counter
is the mean rate of the flows with slices at that time, so that its area is the bytes that crossed the link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from simulator.engine.executor import alone
from simulator.engine.timeline import Span, Timeline
from simulator.network.machine import Machine
from simulator.plan.plan import Activity, Flow, Fragment
from simulator.results import rounded_integer
from simulator.results.held import HeldAt
from simulator.results.limits import critical_path
from simulator.results.result import Result
from simulator.results.trace_sheet import Sheet, is_drawn, nanoseconds
from simulator.step.launch import Launch
from simulator.training.exchange import STREAM, CollectiveLabel
from simulator.training.servers import ARRIVES
from simulator.training.worker import ChunkRun, LaunchLabel, SkippedMicroBatches
from simulator.workload.kernels import without_library

MAX_ROUNDS = 64  # rounds of one transfer that are drawn separately
MAX_SLICES = 20_000  # flow slices in one trace; beyond it, rounds are drawn together
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


def chrome_trace(result: Result) -> str:
    """Return the timeline of *result* as the JSON text of a trace; equal results give equal text."""
    timeline = result.timeline
    sheet = Sheet(timeline.machine)
    _collective_slices(result, sheet)
    wanted = sum(len(task.flows) * min(task.repeat, MAX_ROUNDS) for task in timeline.plan.tasks)
    rounds_drawn = MAX_ROUNDS if wanted <= MAX_SLICES else 0
    for task, span in timeline.ran():
        if task.place:
            _work_slice(task, span, sheet)
        else:
            _flow_slices(task, span, rounds_drawn, sheet)
    return sheet.text(f"{result.machine} {result.strategy}", result.n_ranks)


# -- slices and counters -----------------------------------------------------------


def _collective_slices(result: Result, sheet: Sheet) -> None:
    """Add one slice per rank for the whole collective, as the kernel that NCCL would launch."""
    called, kernel = _KINETO_NAMES[result.collective]
    how = str(result.facts.get("algorithm", result.strategy)).upper().replace("-", "_")
    protocol = str(result.facts.get("protocol", "SIMPLE")).upper()
    count = int(result.size_bytes) // _FP32_BYTES
    inputs = count // (result.n_ranks if result.collective == "all-gather" else 1)
    outputs = count // (result.n_ranks if result.collective == "reduce-scatter" else 1)
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
        sheet.add(sheet.machine.gpus[gpu], "collective", name, "kernel", 0.0, result.sync_time_s, args)


def _work_slice(task: Activity, span: Span, sheet: Sheet) -> None:
    if not is_drawn(span) and task.duration_s == 0:
        return  # a join of streams, which takes no time
    found = sheet.machine.find(task.place)
    node = found.index if found else -1
    category = "kernel" if node in sheet.machine.gpus else "cpu_op"
    sheet.add(node, task.stream, task.label, category, span.start_s, span.end_s, {"task": task.id})


def _flow_slices(task: Activity, span: Span, rounds_drawn: int, sheet: Sheet) -> None:
    nodes = sheet.machine.nodes
    ends_s = _flow_ends_s(task, span)
    for first, last, start_s, length_s in _stretches(task, span, rounds_drawn):
        for flow, end_s in zip(task.flows, ends_s, strict=True):
            n_rounds = last - first + 1
            drawn_s = length_s if n_rounds > 1 else min(end_s, length_s)
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
            track = f"{task.stream} to {target}"
            sheet.add(flow.route.src, track, name, "comm", start_s, start_s + drawn_s, args)
            if is_drawn(Span(task.id, start_s, start_s + drawn_s)):
                for link, share in flow.route.links:
                    rate = flow.wire_bytes * flow.count * share * n_rounds / drawn_s / 1e9
                    sheet.add_rate(link, start_s, start_s + drawn_s, rate)


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
    ends = list(span.flow_ends_s)
    if len(ends) == len(task.parts):
        each = zip(task.parts, ends, strict=True)
        return [end_s for part, end_s in each if isinstance(part, Flow) for _ in part.apart()]
    if len(ends) == sum(flow.count for flow in task.flows):
        position, joined = 0, []
        for flow in task.flows:
            joined.append(max(ends[position : position + flow.count], default=0.0))
            position += flow.count
        return joined
    return [span.round_s] * len(task.flows)


def step_trace(timeline: Timeline, name: str, n_ranks: int = 1, held: Sequence[HeldAt] = ()) -> str:
    """Return *timeline* as the JSON text of a trace called *name*; equal timelines give equal text.

    *held*: the memory that a rank has in use over the step, which becomes a counter.

    Of equal ranks, only the simulated one is drawn.  Latencies of transfers to and from servers overlap the next ones
    and are not drawn, but for the last, with which the timeline ends.
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
    sheet.memory = [(nanoseconds(each.at_s), each.total_bytes / 1e9) for each in held]
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
        told |= {
            key: value for part in task.parts if isinstance(part, Fragment) for key, value in part.plan.facts.items()
        }
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
    elif is_drawn(span):
        told = {**_told(task), "part": issue.part}
        sheet.add(node, track, f"{issue.name}, {issue.part}", "cpu_op", span.start_s, span.end_s, told)
        if span.length_s > issue.host_s + 1e-12:  # a CPU, which computes where it launches
            _kernels(sheet, node, issue, span.start_s + issue.host_s, 1.0, {"task": task.id})


def _kernels(sheet: Sheet, node: int, issue: Launch, start_s: float, stretch: float, args: dict[str, Any]) -> None:
    """Add the kernels of *issue*, one after the other from *start_s*, each *stretch* times as long as alone."""
    for kind, cost in zip(issue.work.kinds, issue.work.costs, strict=True):
        end_s = start_s + stretch * cost.time_s
        if is_drawn(Span(-1, start_s, end_s)):
            told = {
                "part": issue.part,
                "class": without_library(kind),
                "bound by": cost.bound,
                "FLOP": cost.flop,
                "bytes": cost.bytes,
            }
            how = {"algorithm": cost.detail} if cost.detail else {}
            name = f"{issue.name}, {issue.part}"
            sheet.add(node, "compute", name, "kernel", start_s, end_s, {**args, **told, **how})
        start_s = end_s
