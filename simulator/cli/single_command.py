"""``simulate`` for a single operation: an operator, a copy, memory accesses, a launch, a disk, ..."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from typing import Any

from simulator.api.session import Session
from simulator.bands.band import Band
from simulator.cli.calibrations import read_calibrations
from simulator.cli.confidence_text import outside_words
from simulator.cli.machines import find_machines
from simulator.cli.options import parse_count
from simulator.cli.output import Files, show, warn
from simulator.cli.table import Column, table_lines
from simulator.cli.unread import unread_options
from simulator.cli.written import Written
from simulator.console.progress import Progress
from simulator.console.style import Style, choose_style
from simulator.errors import InputError
from simulator.questions.launch import LaunchQuestion
from simulator.questions.sweep import swept
from simulator.questions.words import Single, parse_question, question_words
from simulator.results.confidence import BAND_HEAD, band_words
from simulator.results.document import SCHEMA_VERSION, to_json
from simulator.results.words import BOUND_WORDS
from simulator.units import format_duration, format_size

__all__ = ["run_single"]


def run_single(written: Written) -> None:
    """Answer on each machine and print; raises TopocastError."""
    session, by_size = _asked(written)
    is_sweep = by_size[0][0] is not None
    if written.plot is not None and not is_sweep:
        raise InputError(
            "--plot: a single operation is drawn over sizes; write for example access:chase,sweep:4KiB-1GiB"
        )
    with ExitStack() as stack:
        files = Files(written, stack)
        entries: list[dict[str, Any]] = []
        with Progress(len(by_size), "simulating", quiet=written.quiet) as progress:
            for size, questions in by_size:
                found = [_entry(session, question, size) for question in questions]
                found.sort(key=lambda entry: float(f"{entry['time_s']:.9e}"))
                entries += found
                progress.advance("" if size is None else format_size(size))
        if files.plot_kind:
            from reports.sizes import draw_sizes

            files.plot(draw_sizes(entries, written.workload, files.plot_kind))
        asked = [session.time_s(question) for _, questions in by_size for question in questions]
        warn(written, unread_options(written, _times_s, asked))
        document = {"schema_version": SCHEMA_VERSION, "workload": written.workload, "results": entries}
        if written.json:
            sys.stdout.write(to_json(document))
            return
        style = choose_style(sys.stdout)
        if is_sweep:
            show(_sweep_lines(written.workload, entries, style))
        else:
            show(_lines(by_size[0][1][0], entries, style))


def _asked(written: Written) -> tuple[Session, list[tuple[int | None, list[Single]]]]:
    """Return the session, and the questions about all machines for each size of a sweep."""
    session = Session()
    machines = find_machines(written, session)
    session = session.calibrated(read_calibrations(written.calibration, [session.machine(w) for w in machines]))
    threads = None if written.threads is None else parse_count("--threads", written.threads)
    return session, [
        (size, [parse_question(text, where, written.device, threads) for where in machines])
        for size, text in swept(written.workload)
    ]


def _times_s(written: Written) -> Iterator[float]:
    session, by_size = _asked(replace(written, quiet=True))
    return (session.time_s(question) for _, questions in by_size for question in questions)


def _entry(session: Session, question: Single, size_bytes: int | None) -> dict[str, Any]:
    time_s = session.time_s(question)
    known: dict[str, Any] = {}
    with suppress(InputError):  # the part may lack figures that only the account needs
        account = asdict(session.account(question))
        known = {name: value for name, value in account.items() if value and name != "is_gpu"}
    least_s = None
    if not isinstance(question, LaunchQuestion):  # the data sheet says nothing of launches
        with suppress(InputError):  # nor of latencies
            least_s = session.bound_s(question)
    sure = session.confidence(question)
    entry = {
        "topology": session.machine(question.where).name,
        "question": question_words(question),
        "time_s": time_s,
        **sure.to_dict(),
        "trust": sure.why or None,
        "least_s": least_s,
        "account": known,
    }
    if size_bytes is not None:
        entry["size_bytes"] = size_bytes
    answer = session.explained(question)
    if answer is not None:
        entry |= {"of": answer.of, "bound": answer.bound, "why": list(answer.why), "figures": dict(answer.figures)}
    return entry


def _lines(question: Single, entries: Sequence[dict[str, Any]], style: Style) -> list[str]:
    """Return the answer: its time, the least time by the data sheet, and the limiter with its reason."""
    sheets = [(entry["time_s"], entry["least_s"]) for entry in entries]
    columns = [
        Column("machine", [entry["topology"] for entry in entries], right=False),
        Column("time", [_time(entry) for entry in entries]),
        Column(BAND_HEAD, [_band(entry) for entry in entries]),
        Column("data sheet", [format_duration(least_s) if least_s else "-" for _, least_s in sheets], spare=1),
        Column("against it", [f"{time_s / least_s:.3g} x" if least_s else "-" for time_s, least_s in sheets], spare=2),
        Column("bound by", [_bound(entry) for entry in entries], right=False),
    ]
    lines = table_lines(columns, style)
    outside = outside_words([text for entry in entries for text in entry["outside"]], style)
    trust = style.wrap(f"trust: {entries[0]['trust']}", "dim", hang=2) if entries[0]["trust"] else []
    return [*style.wrap(question_words(question), "bold"), *outside, "", *lines, *trust, *_why(entries, style)]


def _time(entry: dict[str, Any]) -> str:
    return format_duration(entry["time_s"]) + (f" {entry['of']}" if "of" in entry else "")


def _band(entry: dict[str, Any]) -> str:
    return band_words(None if entry["band"] is None else Band(**entry["band"]))


def _bound(entry: dict[str, Any]) -> str:
    if "bound" in entry:
        return str(entry["bound"])
    account = entry["account"]
    bound = BOUND_WORDS.get(account.get("bound", ""), "-")
    return bound + (f" ({account['detail']})" if account.get("detail") else "")


def _why(entries: Sequence[dict[str, Any]], style: Style) -> list[str]:
    """Return the reasons, each with the name of its machine if there are several."""
    lines: list[str] = []
    for entry in entries:
        if entry.get("why"):
            lines += ["", *([f"{entry['topology']}:"] if len(entries) > 1 else [])]
            lines += [line for reason in entry["why"] for line in style.wrap(f"  {reason}", hang=4)]
    return lines


def _sweep_lines(workload: str, entries: Sequence[dict[str, Any]], style: Style) -> list[str]:
    """Return one line for each size and machine."""
    columns = [
        Column("machine", [entry["topology"] for entry in entries], right=False),
        Column("size", [format_size(entry["size_bytes"]) for entry in entries]),
        Column("time", [_time(entry) for entry in entries]),
        Column(BAND_HEAD, [_band(entry) for entry in entries], spare=2),
        Column("bound by", [_bound(entry) for entry in entries], right=False, spare=1),
    ]
    outside = outside_words([text for entry in entries for text in entry["outside"]], style)
    return [*style.wrap(workload, "bold"), *outside, "", *table_lines(columns, style)]
