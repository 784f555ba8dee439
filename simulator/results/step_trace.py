"""A step's timeline as a Chrome trace: the host's operators above the device's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.plan.plan import Work
from simulator.results.step import StepResult
from simulator.results.trace_sheet import Sheet, Slice, nanoseconds, processes, trace_text
from simulator.step.issue import Issue

__all__ = ["step_trace"]


def step_trace(result: StepResult) -> str:
    """Return *result*'s timeline as the text of a trace; the same result gives the same text."""
    timeline = result.timeline
    machine = timeline.machine
    pids = processes(machine)
    sheet = Sheet()
    waiting = {"host": iter(result.issues), "compute": iter(result.issues)}
    for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True):
        if not isinstance(task, Work):
            continue
        pid = pids[machine.index_of.get(task.place, -1)]
        is_launch = result.options.cuda_graph and task.stream == "host"
        issue = None if is_launch else next(waiting[task.stream])
        args: dict[str, Any] = {"task": task.id, "waits for": list(task.after)}
        if issue is not None and task.stream == "compute":
            sheet.slices += _kernels(pid, issue, span.start_s, args)
            continue
        start_ns, end_ns = nanoseconds(span.start_s), nanoseconds(span.end_s)
        if start_ns == end_ns:
            continue
        name = task.label
        if issue is not None:
            name = f"{issue.name}, {issue.part}"
            args["part"] = issue.part
        sheet.slices.append(Slice(pid, task.stream, name, "cpu_op", start_ns, end_ns, args))
        if result.on_host and issue is not None:
            sheet.slices += _kernels(pid, issue, span.start_s + issue.host_s, {"task": task.id})
    name = f"{result.machine} {result.workload} batch {result.samples}"
    return trace_text(sheet, machine, name=name, n_ranks=1)


def _kernels(pid: int, issue: Issue, start_s: float, args: dict[str, Any]) -> Iterator[Slice]:
    """Yield the kernels of *issue*, which run one after the other from *start_s*."""
    for kind, cost in zip(issue.work.kinds, issue.work.costs, strict=True):
        end_s = start_s + cost.time_s
        start_ns, end_ns = nanoseconds(start_s), nanoseconds(end_s)
        start_s = end_s
        if start_ns == end_ns:
            continue
        told = {"part": issue.part, "class": kind, "bound by": cost.bound, "FLOP": cost.flop, "bytes": cost.bytes}
        how = {"algorithm": cost.detail} if cost.detail else {}
        name = f"{issue.name}, {issue.part}"
        yield Slice(pid, "compute", name, "kernel", start_ns, end_ns, {**args, **told, **how})
