"""A program's timeline as a Chrome trace: the host's activities, and each stream of each device."""

from __future__ import annotations

from simulator.programs.about import ProgramLabel, SkippedRepetitions
from simulator.results.program import ProgramResult
from simulator.results.trace_sheet import Sheet, is_drawn


def program_trace(result: ProgramResult) -> str:
    """Return the trace as JSON text; equal results give equal text."""
    timeline, machine = result.timeline, result.timeline.machine
    sheet = Sheet(machine)
    for task, span in timeline.ran(ProgramLabel, SkippedRepetitions):
        about = task.about
        if not is_drawn(span) or (isinstance(about, ProgramLabel) and about.use in ("hidden", "mark")):
            continue
        on_host = task.stream.split(" ")[0] == "host"
        node = None if on_host else machine.find(task.place)
        told = {"task": task.id, "waits for": list(task.after)}
        if isinstance(about, ProgramLabel):
            told |= {"does": about.use} | ({"bound by": about.bound} if about.use == "kernel" else {})
            told |= {"bytes": int(about.bytes)} if about.bytes else {}
        category = "kernel" if node is not None and node.kind == "gpu" else "cpu_op"
        track = task.stream if on_host else task.stream.partition("/")[2] or task.stream
        sheet.add(-1 if node is None else node.index, track, task.label, category, span.start_s, span.end_s, told)
    return sheet.text(f"{result.machine} {result.name}")
