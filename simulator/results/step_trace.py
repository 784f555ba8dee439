"""A step's timeline as a Chrome trace: launches, kernels, collectives and the links they use."""

from __future__ import annotations

from typing import Any

from simulator.engine.executor import alone
from simulator.engine.timeline import Span, Timeline
from simulator.network.machine import Machine
from simulator.plan.plan import Activity, Fragment
from simulator.results.trace_sheet import Sheet, is_drawn
from simulator.step.issue import Launch
from simulator.training.exchange import STREAM, CollectiveLabel
from simulator.training.servers import ARRIVES
from simulator.training.worker import ChunkRun, LaunchLabel, SkippedMicroBatches


def step_trace(timeline: Timeline, name: str, n_ranks: int = 1) -> str:
    """Return *timeline* as the JSON text of a trace called *name*; equal timelines give equal text.

    Of equal ranks, only the simulated one is drawn.  Latencies of transfers to and from servers overlap the next ones
    and are not drawn, but for the last, with which the timeline ends.
    """
    sheet = Sheet(timeline.machine)
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
            _add_rates(timeline, task, span, sheet)
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
            told = {"part": issue.part, "class": kind, "bound by": cost.bound, "FLOP": cost.flop, "bytes": cost.bytes}
            how = {"algorithm": cost.detail} if cost.detail else {}
            name = f"{issue.name}, {issue.part}"
            sheet.add(node, "compute", name, "kernel", start_s, end_s, {**args, **told, **how})
        start_s = end_s


def _add_rates(timeline: Timeline, task: Activity, span: Span, sheet: Sheet) -> None:
    """Add the mean rate of each link that the fragments of *task* use to *sheet*."""
    for part in task.parts:
        if isinstance(part, Fragment):
            for link, n_bytes in alone(timeline.machine, part).link_bytes.carried():
                rate = n_bytes / span.length_s / 1e9
                sheet.add_rate(link, span.start_s, span.end_s, rate)
