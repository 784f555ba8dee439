"""``simulate`` for a single operation (an operator, a copy, memory accesses, a launch, ...), or a program of them."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from simulator.api.session import Session
from simulator.cli.machines import find_machines, with_calibration
from simulator.cli.options import fields_of, parse_count
from simulator.cli.output import Answers, warn
from simulator.cli.table import Column, blocks_apart, fact_lines, head_lines, table_lines, table_of, trust_lines
from simulator.cli.written import CommandOptions
from simulator.console import Progress, Style, later
from simulator.errors import InputError, mention, one_line, refused
from simulator.questions.single import LaunchQuestion, OperatorQuestion, ProgramQuestion, Single
from simulator.questions.words import parse_question, question_words, swept
from simulator.records import replace
from simulator.results import WORDS, plain
from simulator.results.confidence import BAND_HEAD
from simulator.results.program import ProgramResult, programs_document
from simulator.results.single import SingleResult, singles_document
from simulator.step.operator import operator_kernels
from simulator.units import format_duration, format_size


def answer_singles(written: CommandOptions, session: Session) -> Answers:
    """Return the answers; raises InputError."""
    if written.plot is not None and swept(written.what)[0][0] is None:
        raise refused("plot", "a single operation is drawn over sizes; write for example access:chase,sweep:4KiB-1GiB")
    session, by_size = _asked(written, session)
    results: list[SingleResult] = []
    with Progress(len(by_size), "simulating", quiet=written.quiet) as progress:
        for size, questions in by_size:
            found = [_answer(session, question, size) for question in questions]
            results += sorted(found, key=lambda result: float(f"{result.time_s:.9e}"))
            progress.advance("" if size is None else format_size(size))

    def times_s(written: CommandOptions) -> Iterator[float]:
        session, by_size = _asked(written.but(quiet=True), Session())
        return (session.time_s(question) for _, questions in by_size for question in questions)

    every = [question for _, questions in by_size for question in questions]
    notes = list(dict.fromkeys(note for question in every for note in _too_large(session, question)))
    notes += unread_options(written, times_s, [session.time_s(question) for question in every])
    warn(written, notes)
    is_one = by_size[0][0] is None
    return Answers(
        results=results,
        notes=notes,
        document=partial(singles_document, written.what, results),
        lines=partial(single_lines, written.what, results),
        draw=(lambda _: b"") if is_one else later("reports.curves:draw_sizes", results, written.what),
    )


def _asked(written: CommandOptions, session: Session) -> tuple[Session, list[tuple[int | None, list[Single]]]]:
    machines = find_machines(written, session)
    session = with_calibration(written, session, machines)
    threads = None if written.threads is None else parse_count("threads", written.threads)
    return session, [
        (size, [parse_question(text, where, written.device, threads) for where in machines])
        for size, text in swept(written.what)
    ]


def _answer(session: Session, question: Single, size_bytes: int | None) -> SingleResult:
    known: dict[str, Any] = {}
    with suppress(InputError):  # the part may lack figures that only the account needs
        account = plain(session.account(question))
        known = {name: value for name, value in account.items() if value and name != "is_gpu"}
        if account["sustained_s"] <= _MATTERS * account["kernels_s"]:
            known.pop("sustained_s", None)
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
        answer=None if isinstance(question, OperatorQuestion) else session.answer(question),
        size_bytes=size_bytes,
        changed=session.changed(question, time_s),
    )


def _too_large(session: Session, question: Single) -> Iterator[str]:
    if not isinstance(question, OperatorQuestion):
        return
    moved_bytes = max(kernel.bytes for kernel in operator_kernels(question))
    device = session.device(question.where, question.device, question.threads)
    if moved_bytes > device.memory_bytes:
        has = f"{device.name} has {format_size(device.memory_bytes)}"
        yield f"{question_words(question)}: does not fit: its operands take {format_size(moved_bytes)}, and {has}"


def single_lines(workload: str, found: Sequence[SingleResult], style: Style) -> list[str]:
    """Return the time of each machine, at each size; of one size also the data sheet's, and why it is so."""
    one, last = found[0].size_bytes is None, found[-1]
    sheet = [(each.time_s, each.least_s) for each in found]
    times = [format_duration(each.time_s) + (f" {each.answer.of}" if each.answer else "") for each in found]
    against = [f"{time_s / least_s:.3g} x" if least_s else "-" for time_s, least_s in sheet]
    columns = [
        Column("machine", [each.machine for each in found], right=False),
        None if one else Column("size", [format_size(each.size_bytes or 0) for each in found]),
        Column("time", times),
        Column(BAND_HEAD, [each.confidence.words for each in found], spare=0 if one else 2),
        Column("data sheet", [format_duration(s) if s else "-" for _, s in sheet], spare=1) if one else None,
        Column("against it", against, spare=2) if one else None,
        Column("bound by", [_bound(each) for each in found], right=False, spare=0 if one else 1),
    ]
    title, sure = found[0].words if one else workload, [each.confidence for each in found]
    lines = [*head_lines(title, style, sure, last.changed, last.name_among(found)), "", *table_lines(columns, style)]
    if not one:
        return lines
    lines += [line for each in found for line in _clock(each, found, style)]
    return [*lines, *trust_lines(found[0].confidence, style, "time", full=True), *_why(found, style)]


def _clock(result: SingleResult, found: Sequence[SingleResult], style: Style) -> list[str]:
    if not (sustained_s := result.account.get("sustained_s")):
        return []
    more = sustained_s / result.account["kernels_s"] - 1.0
    name = f" ({result.machine})" if len(found) > 1 else ""
    words = f"clock{name}: of a call after rest; in runs of seconds, which power and heat limit, its kernels take "
    return style.wrap(f"{words}{format_duration(sustained_s)}, {100.0 * more:.0f} % more", "dim", hang=2)


def _bound(result: SingleResult) -> str:
    if result.answer is not None:
        return result.answer.bound
    bound, detail = WORDS["bounds"].get(result.account.get("bound", ""), "-"), result.account.get("detail")
    return f"{bound} ({detail})" if detail else bound


def _why(found: Sequence[SingleResult], style: Style) -> list[str]:
    lines: list[str] = []
    for result in found:
        if result.answer is not None and result.answer.why:
            named = style.wrap(f"{result.machine}:") if len(found) > 1 else []
            lines += ["", *named, *(line for why in result.answer.why for line in style.wrap(f"  {why}", hang=4))]
    return lines


_MATTERS = 1.03  # a long run that takes less more is not told
_REMOVED = ("nodes", "fabric", "slow_link", "neighbour", "threads", "calibration")


def unread_options(
    written: CommandOptions, ask: Callable[[CommandOptions], Iterable[float]], times_s: Sequence[float]
) -> list[str]:
    """Return a remark on each option of *written* that can be removed without changing *times_s*.

    *ask* answers a set of options with an iterator of seconds, which is read up to the first difference.
    """
    remarks = []
    for name in _REMOVED:
        value = getattr(written, name)
        if value is None or written.topology == "-":  # standard input can be read only once
            continue
        with suppress(InputError):  # there is no answer without the option
            together = (name, "fabric") if name == "nodes" else (name,)  # a network needs several machines
            without = written.but(**dict.fromkeys(together))
            if all(a == b for a, b in zip(times_s, ask(without), strict=True)):
                remarks.append(f"{mention(name, one_line(value, 60))}: changes nothing of this answer")
    return remarks


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
        lines=lambda style: blocks_apart(*(program_lines(result, style) for result in results)),
        trace=lambda: (later("simulator.results.trace:program_trace")(results[0]), which),
        draw=later("reports.curves:draw_program", results[0]),
    )


_USES = {"issue": "issuing", "python": "Python", "kernel": "operators", "copy": "copying"}


def program_lines(result: ProgramResult, style: Style) -> list[str]:
    """Return the times of the host and the devices, the limiter, the marks and the streams."""
    head = f"{result.name} on {result.machine}, {result.device}"
    marks = [["mark", "passed", "first", "last", "every"]]
    for name, mark in result.marks.items():
        every = format_duration((mark.last_s - mark.first_s) / (mark.count - 1)) if mark.count > 1 else "-"
        marks.append([name, f"{mark.count:,} x", format_duration(mark.first_s), format_duration(mark.last_s), every])
    alike: dict[tuple[str, ...], list[str]] = {}  # the streams of equal ranks
    for name, times in result.streams.items():
        share = f"{100 * times.busy_s / result.done_s:.3g} %" if result.done_s else "-"
        uses = [f"{_USES.get(use, use)} {format_duration(s, 3)}" for use, s in times.by_use.items() if s]
        waits = format_duration(times.waiting_s) if times.waiting_s else "-"
        what = name.partition("/")[2] or re.sub(r"\d+", "", name)
        busy = format_duration(times.busy_s)
        alike.setdefault((what, busy, share, waits, ", ".join(uses) or "-"), []).append(name)
    rows = [["stream", "busy", "of it", "waits", "with"]]
    for (_, *row), names in alike.items():
        rows.append([f"{names[0]} and {len(names) - 1} alike" if len(names) > 1 else names[0], *row])
    return blocks_apart(
        head_lines(head, style, [result.confidence], result.changed),
        fact_lines(result.view, style),
        table_of(marks, [False, True, True, True, True], style) if result.marks else [],
        table_of(rows, [False, True, True, True, False], style),
    )
