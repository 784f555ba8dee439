"""``simulate`` for an exchange: a collective with each strategy, on each machine, at each size."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from simulator.api.session import Session
from simulator.cli import exchange_text as text
from simulator.cli.chosen_gpus import Faster, faster_gpus, on_fastest
from simulator.cli.circumstances import parse_servers
from simulator.cli.machines import find_machines
from simulator.cli.options import (
    parse_algorithm,
    parse_choice,
    parse_collective,
    parse_count,
    parse_gpus,
    parse_software,
    parse_strategies,
    read_all,
    refuse,
)
from simulator.cli.output import Files, show, tell, warn
from simulator.cli.written import Written
from simulator.collectives.registry import left_out
from simulator.collectives.request import Unsuitable
from simulator.console.progress import Progress
from simulator.console.style import Style, choose_style, printable
from simulator.errors import Fault, InputError, SimulationError, one_line, refused
from simulator.questions.checks import WITHOUT_NCCL, in_ways, refuse_all
from simulator.questions.collective import DTYPES, REDUCTIONS, CollectiveQuestion
from simulator.results.document import document, to_json
from simulator.results.order import bare_words, best_of, by_time
from simulator.results.result import Result
from simulator.spelling import mention, spelt
from simulator.workload.parse import Payload, parse_workload


@dataclass(frozen=True, slots=True)
class ExchangeRuns:
    """The results of each size, fastest first (``by_size``), and why strategies do not fit, by name (``unfit``)."""

    by_size: tuple[tuple[Result, ...], ...]
    unfit: dict[str, str]
    faster: Faster | None = None  # other GPUs, as many as asked for, with the first strategy


def run_exchange(written: Written) -> None:
    """Check the options, simulate, write the requested files and print the results; raises TopocastError."""
    session = Session()
    payload, (questions, names) = read_all(
        lambda: parse_workload(written.what), lambda: exchange_questions(written, session)
    )
    payload = payload.in_type(questions[0].dtype)
    apart = left_out() if "all" in (written.strategy or "all").split(",") else []
    code = f"--strategy all: without {', '.join(apart)}; a file may run such code only with --trust-code"
    warn(written, [*payload.notes, *([code] if apart else [])])
    if written.trace is not None and payload.is_sweep:
        raise InputError(f"{mention('trace')} shows one size; {one_line(payload.text, 60)} has {len(payload.sizes)}")
    with ExitStack() as stack:
        files = Files(written, stack)
        runs = answer_exchanges(written, session, questions, names, payload)
        runs = replace(runs, faster=_faster(written, session, questions, runs))
        if files.wants_trace:
            from simulator.results.trace import chrome_trace

            best = best_of(runs.by_size[0])
            several = len(runs.by_size[0]) > 1
            files.trace(chrome_trace(best), f" of {best.strategy}" if several else "")
        if files.plot_kind:
            from reports.figure import draw

            files.plot(draw(runs.by_size, files.plot_kind))
        _print(written, session, questions, payload, runs)


def exchange_questions(written: Written, session: Session) -> tuple[list[CollectiveQuestion], list[str]]:
    """Return the questions about each machine, still without a size, and the name that distinguishes each strategy."""
    machines, collective, strategies, algorithm, dtype, reduction, software, root, driven, size, pairs, servers = (
        read_all(
            lambda: find_machines(written, session),
            lambda: parse_collective(written.collective),
            lambda: parse_strategies(written.strategy or "all"),
            lambda: parse_algorithm(written.algorithm),
            lambda: parse_choice("dtype", written.dtype, DTYPES),
            lambda: parse_choice("reduction", written.redop, REDUCTIONS),
            lambda: parse_software(written.nccl),
            lambda: parse_count("root", written.root),
            lambda: parse_count("gpus_per_process", written.gpus_per_process),
            lambda: None if written.group_size is None else parse_count("group_size", written.group_size),
            lambda: _pairs(written.pairs),
            lambda: parse_servers(written.servers),
        )
    )
    if "nccl" not in strategies:
        refuse({mention("nccl"): written.nccl is not None}, WITHOUT_NCCL)
    values = {
        "size_bytes": 0.0,
        "collective": collective,
        "group_size": size,
        "root": root,
        "pairs": pairs,
        "gpus_per_process": driven,
        "algorithm": algorithm,
        "dtype": dtype,
        "reduction": reduction,
        "servers": servers,
        "software": software,
    }
    questions, names = [], []
    for where in machines:
        machine = session.machine(where)
        if not machine.gpus:
            raise InputError(
                f"{machine.name} has no GPU, so nothing is exchanged; {mention('batch', 32)} runs a step on its CPU"
            )
        gpus = parse_gpus(written.gpus, machine)
        values |= {"where": where, "gpus": None if written.gpus is None else tuple(gpus)}
        found = in_ways(CollectiveQuestion, values, [{"strategy": name} for name in strategies])
        refuse_all(found[0].rank_faults(len(gpus)))
        questions += found
        names += [f"{name} on {machine.name}" if len(machines) > 1 else name for name in strategies]
    return questions, names


def _pairs(text: str | None) -> tuple[tuple[int, ...], ...]:
    """Return the pairs of ranks in *text*: ``0>1,2>3``; raises InputError."""
    words = [] if text is None else [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"\d{1,6}>\d{1,6}", word, re.ASCII) for word in words):
        raise refused("pairs", "write for example 0>1,2>3", one_line(text, 60))
    return tuple(tuple(int(end) for end in word.split(">")) for word in words)


def answer_exchanges(
    written: Written, session: Session, questions: Sequence[CollectiveQuestion], names: Sequence[str], payload: Payload
) -> ExchangeRuns:
    """Return the results for each size of *payload*; raises InputError if no strategy fits."""
    largest = float(max(payload.sizes))
    questions = on_fastest(written, session, [replace(question, size_bytes=largest) for question in questions])
    by_size: list[tuple[Result, ...]] = []
    unfit: dict[str, str] = {}
    fitting = list(zip(questions, names, strict=True))
    with Progress(len(payload.sizes) * len(fitting), "simulating", quiet=written.quiet) as progress:
        for size in payload.sizes:
            found: list[Result] = []
            for question, name in fitting:
                try:
                    asked = replace(question, size_bytes=float(size))
                    result = session.collective(asked, fold=written.fold)
                    found.append(replace(result, changed=session.changed(asked, result.sync_time_s)))
                except Unsuitable as reason:
                    unfit[name] = reason.why
                except SimulationError as error:
                    machine = session.machine(question.where).name
                    raise SimulationError(f"{question.strategy} on {machine}: {error}") from error
                progress.advance(name)
            fitting = [(question, name) for question, name in fitting if name not in unfit]
            if len(payload.sizes) == len(questions) == 1 and questions[0].strategy == "nccl":
                from simulator.api.nccl_choice import with_faster_algorithm

                found = [with_faster_algorithm(session, result) for result in found]
            by_size.append(tuple(by_time(found)))
    if not fitting:
        where = session.machine(questions[0].where).name
        many = len({question.where for question in questions}) > 1
        raise InputError(
            [
                Fault(f"{mention('strategy', name)} does not fit{'' if many else f' {where}'}: {why}")
                for name, why in unfit.items()
            ]
        )
    return ExchangeRuns(tuple(by_size), {name: spelt(why, "command") for name, why in unfit.items()})


def _faster(
    written: Written, session: Session, questions: Sequence[CollectiveQuestion], runs: ExchangeRuns
) -> Faster | None:
    """Return other GPUs of a single machine that are faster at the largest size, or None."""
    if len({question.where for question in questions}) > 1:
        return None
    best = best_of(runs.by_size[-1])
    asked = next(question for question in questions if question.strategy == best.strategy)
    return faster_gpus(written, session, best, replace(asked, size_bytes=best.size_bytes, gpus=best.gpus))


def _print(
    written: Written, session: Session, questions: Sequence[CollectiveQuestion], payload: Payload, runs: ExchangeRuns
) -> None:
    results = [result for found in runs.by_size for result in found]
    machines = [session.machine(where) for where in dict.fromkeys(question.where for question in questions)]
    if written.json:
        found = document(machines[0].name, payload.text, results, runs.unfit)
        if runs.faster is not None:
            found["faster_gpus"] = {"gpus": list(runs.faster.gpus), "sync_time_s": runs.faster.seconds}
        sys.stdout.write(to_json(found))
        return
    style = choose_style(sys.stdout)
    if payload.is_sweep:
        from simulator.results.sweep import SWEEP_WIDTH, sweep_table, winners

        if style.width is not None and style.width < SWEEP_WIDTH:
            show([*text.title(runs.by_size[-1], payload, [len(m.gpus) for m in machines], style), ""])
            show(text.sweep_lines(runs.by_size, style))
        else:
            ways = dict.fromkeys((result.machine, result.strategy) for result in results)
            tables = [sweep_table([r for r in results if (r.machine, r.strategy) == way], questions[0]) for way in ways]
            said = [winners(runs.by_size), bare_words(runs.by_size[-1])] if len(ways) > 1 else []
            said.append(text.sweep_trust(runs.by_size))
            within = Style(None if style.width is None else style.width - 2)
            tables += ["".join(f"# {line}\n" for line in within.wrap(each)) for each in said if each]
            sys.stdout.write(printable("\n".join(tables), sys.stdout))
        for line in text.unfit_lines(runs.unfit, style):
            tell(written, line)
        return
    if results[0].n_ranks == 1:
        network = "resnet50" if payload.text.startswith(("bytes:", "sweep:")) else payload.text
        tell(
            written,
            f"one GPU exchanges nothing; {mention('workload', network)} {mention('batch', 32)} simulates a step on it",
        )
    lines = text.title(results, payload, [len(machine.gpus) for machine in machines], style)
    lines += ["", *text.comparison(results, style)]
    if runs.faster is not None:
        lines += ["", *style.wrap(runs.faster.words(best_of(results).sync_time_s), "bold")]
    if len(results) == 1:
        lines += text.detail(results[0], style)
    if runs.unfit:
        lines += ["", *text.unfit_lines(runs.unfit, style)]
    show(lines)
