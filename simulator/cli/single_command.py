"""What ``simulate`` does with a single operation: an operator, a copy, accesses to memory, a launch, a disk."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from simulator.api.session import Session
from simulator.cli.machines import find_machines
from simulator.cli.options import parse_count
from simulator.cli.output import show
from simulator.cli.step_questions import read_calibrations
from simulator.cli.written import Written
from simulator.console.style import Style, choose_style
from simulator.errors import InputError
from simulator.questions.words import Single, parse_question, question_words
from simulator.results.columns import lay_out
from simulator.results.document import SCHEMA_VERSION, to_json
from simulator.results.words import BOUND_WORDS
from simulator.units import format_duration

__all__ = ["run_single"]


def run_single(written: Written) -> None:
    """Answer on each machine, and print; raises ToposimError."""
    session = Session()
    machines = find_machines(written, session)
    session = session.calibrated(read_calibrations(written.calibration, [session.machine(w) for w in machines]))
    threads = None if written.threads is None else parse_count("--threads", written.threads)
    questions = [parse_question(written.workload, where, written.device, threads) for where in machines]
    entries = [_entry(session, question) for question in questions]
    entries.sort(key=lambda entry: float(f"{entry['time_s']:.9e}"))
    if written.json:
        sys.stdout.write(to_json({"schema_version": SCHEMA_VERSION, "workload": written.workload, "results": entries}))
        return
    show(_lines(questions[0], entries, choose_style(sys.stdout)))


def _entry(session: Session, question: Single) -> dict[str, Any]:
    account = asdict(session.account(question))
    known = {name: value for name, value in account.items() if value and name != "is_gpu"}
    least_s = None
    with suppress(InputError):  # a latency, or the host's part: no data sheet says it
        least_s = session.bound_s(question)
    return {
        "topology": session.machine(question.where).name,
        "question": question_words(question),
        "time_s": session.time_s(question),
        "least_s": least_s,
        "account": known,
    }


def _lines(question: Single, entries: Sequence[dict[str, Any]], style: Style) -> list[str]:
    """Return the answer: how long it takes, how long at the least by the data sheet, and what bounds it."""
    rows = [["machine", "time", "data sheet", "against it", "bound by"]]
    for entry in entries:
        account = entry["account"]
        bound = BOUND_WORDS.get(account.get("bound", ""), "-")
        detail = f" ({account['detail']})" if account.get("detail") else ""
        time_s, least_s = entry["time_s"], entry["least_s"]
        sheet = [format_duration(least_s), f"{time_s / least_s:.3g} x"] if least_s else ["-", "-"]
        rows.append([entry["topology"], format_duration(time_s), *sheet, bound + detail])
    lines = lay_out(rows, [False, True, True, True, False])
    if style.width is not None and max(map(len, lines)) > style.width:
        lines = []
        for row in rows[1:]:
            lines.append(style.mark(row[0], "bold"))
            lines += [f"  {name.ljust(11)} {text}" for name, text in zip(rows[0][1:], row[1:], strict=True)]
    else:
        lines[0] = style.mark(lines[0], "dim")
    return [style.mark(question_words(question), "bold"), "", *lines]
