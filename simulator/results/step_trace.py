"""A step's timeline as a Chrome trace: the host's operators above the device's kernels."""

from __future__ import annotations

from typing import Any

from simulator.plan.plan import Work
from simulator.results.step import StepResult
from simulator.results.trace_sheet import Sheet, Slice, nanoseconds, processes, trace_text

__all__ = ["step_trace"]


def step_trace(result: StepResult) -> str:
    """Return *result*'s timeline as the text of a trace; the same result gives the same text."""
    timeline = result.timeline
    machine = timeline.machine
    pids = processes(machine)
    sheet = Sheet()
    for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True):
        if not isinstance(task, Work):
            continue
        start_ns, end_ns = nanoseconds(span.start_s), nanoseconds(span.end_s)
        if start_ns == end_ns:
            continue
        category = "cpu_op" if task.stream == "host" else "kernel"
        args: dict[str, Any] = {"task": task.id, "waits for": list(task.after)}
        pid = pids[machine.index_of.get(task.place, -1)]
        sheet.slices.append(Slice(pid, task.stream, task.label, category, start_ns, end_ns, args))
    name = f"{result.machine} {result.workload} batch {result.samples}"
    return trace_text(sheet, machine, name=name, n_ranks=1)
