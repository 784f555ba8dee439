"""``simulate`` for a single operation: an operator, a copy, memory accesses, a launch, a disk, ..."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from typing import Any

from simulator.api.session import Session
from simulator.cli.calibrations import read_calibrations
from simulator.cli.machines import find_machines
from simulator.cli.options import parse_count
from simulator.cli.output import Files, show, warn
from simulator.cli.single_text import single_lines, sizes_lines
from simulator.cli.unread import unread_options
from simulator.cli.written import Written
from simulator.console.progress import Progress
from simulator.console.style import choose_style
from simulator.errors import InputError, refused
from simulator.questions.single import LaunchQuestion
from simulator.questions.sweep import swept
from simulator.questions.words import Single, parse_question, question_words
from simulator.results.document import SCHEMA_VERSION, to_json
from simulator.results.single import SingleResult
from simulator.units import format_size


def run_single(written: Written) -> None:
    """Answer on each machine and print; raises TopocastError."""
    is_sweep = swept(written.what)[0][0] is not None
    if written.plot is not None and not is_sweep:
        raise refused("plot", "a single operation is drawn over sizes; write for example access:chase,sweep:4KiB-1GiB")
    with ExitStack() as stack:
        files = Files(written, stack)
        found, remarks = answer_singles(written)
        if files.plot_kind:
            from reports.sizes import draw_sizes

            files.plot(draw_sizes(found, written.what, files.plot_kind))
        warn(written, remarks)
        if written.json:
            document = {
                "schema_version": SCHEMA_VERSION,
                "workload": written.what,
                "results": [result.to_dict() for result in found],
            }
            sys.stdout.write(to_json(document))
            return
        style = choose_style(sys.stdout)
        show(sizes_lines(written.what, found, style) if is_sweep else single_lines(found, style))


def answer_singles(written: Written) -> tuple[list[SingleResult], list[str]]:
    """Return the answers, fastest first within a size, and remarks on options that change none; raises InputError."""
    session, by_size = _asked(written)
    results: list[SingleResult] = []
    with Progress(len(by_size), "simulating", quiet=written.quiet) as progress:
        for size, questions in by_size:
            found = [_answer(session, question, size) for question in questions]
            results += sorted(found, key=lambda result: float(f"{result.time_s:.9e}"))
            progress.advance("" if size is None else format_size(size))
    asked = [session.time_s(question) for _, questions in by_size for question in questions]
    return results, unread_options(written, _times_s, asked)


def _asked(written: Written) -> tuple[Session, list[tuple[int | None, list[Single]]]]:
    """Return the session, and the questions about all machines for each size of a sweep."""
    session = Session()
    machines = find_machines(written, session)
    session = session.calibrated(read_calibrations(written.calibration, [session.machine(w) for w in machines]))
    threads = None if written.threads is None else parse_count("threads", written.threads)
    return session, [
        (size, [parse_question(text, where, written.device, threads) for where in machines])
        for size, text in swept(written.what)
    ]


def _times_s(written: Written) -> Iterator[float]:
    session, by_size = _asked(replace(written, quiet=True))
    return (session.time_s(question) for _, questions in by_size for question in questions)


def _answer(session: Session, question: Single, size_bytes: int | None) -> SingleResult:
    known: dict[str, Any] = {}
    with suppress(InputError):  # the part may lack figures that only the account needs
        account = asdict(session.account(question))
        known = {name: value for name, value in account.items() if value and name != "is_gpu"}
    least_s = None
    if not isinstance(question, LaunchQuestion):  # the data sheet says nothing of launches
        with suppress(InputError):  # nor of latencies
            least_s = session.bound_s(question)
    time_s = session.time_s(question)
    return SingleResult(
        words=question_words(question),
        machine=session.machine(question.where).name,
        time_s=time_s,
        confidence=session.confidence(question),
        least_s=least_s,
        account=known,
        answer=session.explained(question),
        size_bytes=size_bytes,
        changed=session.changed(question, time_s),
    )
