"""A program's timeline as a Chrome trace: the host's activities, and each stream of each device."""

from __future__ import annotations

from simulator.programs.about import Did, Passed
from simulator.results.program import ProgramResult
from simulator.results.trace_sheet import Sheet, Slice, nanoseconds, processes, trace_text


def program_trace(result: ProgramResult) -> str:
    """Return the trace as JSON text; equal results give equal text."""
    timeline = result.timeline
    machine = timeline.machine
    pids, sheet = processes(machine), Sheet()
    for task, span in zip(timeline.plan.tasks, timeline.spans, strict=True):
        about = task.about
        start_ns, end_ns = nanoseconds(span.start_s), nanoseconds(span.end_s)
        is_nothing = isinstance(about, Did) and about.use in ("hidden", "mark")
        if start_ns == end_ns or is_nothing or not isinstance(about, Did | Passed):
            continue
        on_host = task.stream.split(" ")[0] == "host"
        node = None if on_host else machine.find(task.place)
        told = {"task": task.id, "waits for": list(task.after)}
        if isinstance(about, Did):
            told |= {"does": about.use} | ({"bound by": about.bound} if about.use == "kernel" else {})
            told |= {"bytes": int(about.bytes)} if about.bytes else {}
        category = "kernel" if node is not None and node.kind == "gpu" else "cpu_op"
        track = task.stream if on_host else task.stream.partition("/")[2] or task.stream
        pid = pids[node.index if node is not None else -1]
        sheet.slices.append(Slice(pid, track, task.label, category, start_ns, end_ns, told))
    return trace_text(sheet, machine, name=f"{result.machine} {result.name}", n_ranks=1)
