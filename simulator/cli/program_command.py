"""``simulate`` for a program: answer on each machine, write the trace, print."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace

from simulator.api.session import Session
from simulator.cli.calibrations import read_calibrations
from simulator.cli.machines import find_machines
from simulator.cli.options import parse_count
from simulator.cli.output import Files, show
from simulator.cli.program_text import program_lines
from simulator.cli.written import Written
from simulator.console.progress import Progress
from simulator.console.style import choose_style
from simulator.questions.program import ProgramQuestion
from simulator.results.document import to_json
from simulator.results.program import ProgramResult


def run_program_command(written: Written) -> None:
    """Answer the question in *written*; raises TopocastError."""
    with ExitStack() as stack:
        files = Files(written, stack)
        results = answer_programs(written)
        if files.wants_trace:
            from simulator.results.program_trace import program_trace

            files.trace(program_trace(results[0]), f" of {results[0].machine}" if len(results) > 1 else "")
        if files.plot_kind:
            from reports.program import draw_program

            files.plot(draw_program(results[0], files.plot_kind))
        if written.json:
            from simulator.results.program_document import programs_document

            sys.stdout.write(to_json(programs_document(written.what, results)))
            return
        style = choose_style(sys.stdout)
        show([line for i, result in enumerate(results) for line in ([""] if i else []) + program_lines(result, style)])


def answer_programs(written: Written) -> list[ProgramResult]:
    """Return the answer of each machine, fastest first; raises InputError."""
    session = Session()
    machines = find_machines(written, session)
    session = session.calibrated(read_calibrations(written.calibration, [session.machine(w) for w in machines]))
    threads = None if written.threads is None else parse_count("threads", written.threads)
    results = []
    with Progress(len(machines), "simulating", quiet=written.quiet) as progress:
        for where in machines:
            question = ProgramQuestion(
                where=where,
                workload=written.what,
                device=written.device,
                threads=threads,
                compiled=written.compiled,
                captured=written.cuda_graph,
                trust_code=written.trust_code,
            )
            result = session.program(question)
            results.append(replace(result, changed=session.changed(question, result.done_s)))
            progress.advance(results[-1].machine)
    return sorted(results, key=lambda result: result.done_s)
