"""The result of a program as text."""

from __future__ import annotations

from simulator.cli.confidence_text import changed_lines, outside_lines
from simulator.cli.table import table_of
from simulator.console.style import Style
from simulator.results.program import ProgramResult
from simulator.units import format_duration, format_size

_BOUNDS = {
    "waiting": "host and device wait for each other",
    "given": "the times that the file gives",
    "nothing": "nothing: it takes no time",
}
_USES = {"issue": "issuing", "python": "Python", "kernel": "operators", "copy": "copying"}


def program_lines(result: ProgramResult, style: Style) -> list[str]:
    """Return the times of the host and the devices, the limiter, the marks and the streams."""
    head = f"{result.name} on {result.machine}, {result.device}"
    counted = f"{result.operators:,} operator{'s' if result.operators != 1 else ''}"
    copies = f", {result.copies:,} cop{'ies' if result.copies != 1 else 'y'}" if result.copies else ""
    bound = _BOUNDS.get(result.bound, result.bound)
    at = f" ({result.bound_stream})" if result.bound_stream not in ("", "host") and bound == result.bound else ""
    lines = [
        *style.wrap(head, "bold"),
        *changed_lines(result.changed, style),
        *outside_lines([result.confidence], style),
        "",
    ]
    facts = [
        f"host returns  {format_duration(result.issued_s)}",
        f"all done      {format_duration(result.done_s)}",
        f"bound by      {bound}{at}",
        f"issued        {counted}{copies}",
    ]
    if result.held_bytes:
        facts.append(f"queued holds  {format_size(result.held_bytes)} at most")
    lines += [line for fact in facts for line in style.wrap(fact, hang=14)]
    if result.marks:
        rows = [["mark", "passed", "first", "last", "every"]]
        for name, mark in result.marks.items():
            every = (mark.last_s - mark.first_s) / (mark.count - 1) if mark.count > 1 else None
            often = f"{mark.count:,} x"
            shown = "-" if every is None else format_duration(every)
            rows.append([name, often, format_duration(mark.first_s), format_duration(mark.last_s), shown])
        lines += ["", *table_of(rows, [False, True, True, True, True], style)]
    rows = [["stream", "busy", "of it", "waits", "with"]]
    for name, times in result.streams.items():
        share = f"{100 * times.busy_s / result.done_s:.3g} %" if result.done_s else "-"
        uses = ", ".join(
            f"{_USES.get(use, use)} {format_duration(seconds, 3)}" for use, seconds in times.by_use.items() if seconds
        )
        waits = format_duration(times.waiting_s) if times.waiting_s else "-"
        rows.append([name, format_duration(times.busy_s), share, waits, uses or "-"])
    return [*lines, "", *table_of(rows, [False, True, True, True, False], style)]
