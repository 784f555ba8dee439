"""``simulate`` for a program: the answer on each machine, and its text."""

from __future__ import annotations

from functools import partial

from simulator.api.session import Session
from simulator.cli.machines import find_machines, with_calibration
from simulator.cli.options import fields_of
from simulator.cli.output import Answers
from simulator.cli.table import fact_lines, head_lines, table_of
from simulator.cli.written import CommandOptions
from simulator.console import later
from simulator.console.style import Progress, Style
from simulator.questions.single import ProgramQuestion
from simulator.records import replace
from simulator.results.program import ProgramResult, program_trace, programs_document
from simulator.units import format_duration


def answer_programs(written: CommandOptions, session: Session) -> Answers:
    """Return the answer of each machine; raises InputError."""
    machines = find_machines(written, session)
    session = with_calibration(written, session, machines)
    said = fields_of(written, ProgramQuestion)
    results = []
    with Progress(len(machines), "simulating", quiet=written.quiet) as progress:
        for where in machines:
            question = ProgramQuestion(where=where, workload=written.what, **said)
            result = session.program(question)
            results.append(replace(result, changed=session.changed(question, result.done_s)))
            progress.advance(results[-1].machine)
    results.sort(key=lambda result: result.done_s)
    which = f" of {results[0].machine}" if len(results) > 1 else ""
    return Answers(
        results=results,
        document=partial(programs_document, written.what, results),
        lines=lambda style: [line for result in results for line in ["", *program_lines(result, style)]][1:],
        trace=lambda: (program_trace(results[0]), which),
        draw=later("reports.program:draw_program", results[0]),
    )


_USES = {"issue": "issuing", "python": "Python", "kernel": "operators", "copy": "copying"}


def program_lines(result: ProgramResult, style: Style) -> list[str]:
    """Return the times of the host and the devices, the limiter, the marks and the streams."""
    head = f"{result.name} on {result.machine}, {result.device}"
    lines = [
        *head_lines(head, style, [result.confidence], result.changed),
        "",
        *fact_lines(result.view, style),
    ]
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
