"""``simulate`` for an exchange: a collective with each strategy, on each machine, at each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from simulator.api.session import Session
from simulator.cli import exchange_text as text
from simulator.cli.later import later
from simulator.cli.machines import find_machines
from simulator.cli.options import (
    fields_of,
    parse_gpus,
    parse_strategies,
    read_all,
    refuse,
)
from simulator.cli.output import Answers, warn
from simulator.cli.written import CommandOptions
from simulator.collectives.registry import unlisted_strategies
from simulator.collectives.request import Unsuitable
from simulator.console.progress import Progress
from simulator.console.style import Style
from simulator.errors import Fault, InputError, SimulationError, one_line
from simulator.questions.checks import WITHOUT_NCCL, in_ways, refuse_all
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Software
from simulator.results.order import best_of, by_time
from simulator.results.result import Result, results_document
from simulator.spelling import mention, spelt
from simulator.workload.parse import Payload, parse_workload

if TYPE_CHECKING:
    from simulator.cli.chosen_gpus import FasterGpus


def exchange_questions(written: CommandOptions, session: Session) -> tuple[list[CollectiveQuestion], list[str]]:
    """Return the questions about each machine, still without a size, and the name that distinguishes each strategy."""
    machines, strategies, said, software = read_all(
        lambda: find_machines(written, session),
        lambda: parse_strategies(written.strategy or "all"),
        lambda: fields_of(written, CollectiveQuestion),
        lambda: Software(**fields_of(written, Software)),
    )
    if "nccl" not in strategies:
        refuse({mention("nccl"): written.nccl is not None}, WITHOUT_NCCL)
    values = {**said, "size_bytes": 0.0, "software": software}
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


def answer_exchanges(written: CommandOptions, session: Session) -> Answers:
    """Return the results for each size; raises InputError if no strategy fits."""

    def exchanged() -> Payload:
        source = session.known_network(written.what)
        if source is None:
            return parse_workload(written.what)
        return Payload(written.what, (), gradients=source.build(0).trained_count)

    payload, (questions, names) = read_all(exchanged, lambda: exchange_questions(written, session))
    payload = payload.in_type(questions[0].dtype)
    apart = unlisted_strategies() if "all" in (written.strategy or "all").split(",") else []
    code = f"--strategy all: without {', '.join(apart)}; a file may run such code only with --trust-code"
    warn(written, [*payload.notes, *([code] if apart else [])])
    if written.trace is not None and payload.is_sweep:
        raise InputError(f"{mention('trace')} shows one size; {one_line(payload.text, 60)} has {len(payload.sizes)}")
    largest = float(max(payload.sizes))
    questions = [replace(question, size_bytes=largest) for question in questions]
    if written.gpus is not None:
        from simulator.cli.chosen_gpus import on_fastest

        questions = on_fastest(written, session, questions)
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
    unfit = {name: spelt(why, "command") for name, why in unfit.items()}
    first, best = by_size[0], best_of(by_size[-1])
    faster = None
    if written.gpus is not None and len({question.where for question in questions}) == 1:
        from simulator.cli.chosen_gpus import faster_gpus

        asked = next(question for question in questions if question.strategy == best.strategy)
        faster = faster_gpus(written, session, best, replace(asked, size_bytes=best.size_bytes, gpus=best.gpus))
    results = list(chain(*by_size))
    of_all = partial(results_document, first[0].timeline.machine.name, payload.text, results, unfit)
    return Answers(
        results=results,
        notes=[*payload.notes, *chain(*(session.machine(question.where).notes for question in questions))],
        document=lambda: of_all() | (faster.document("sync_time_s") if faster else {}),
        lines=lambda style: _lines(by_size, payload, questions[0], unfit, faster, style),
        remarks=partial(_remarks, first, payload, unfit),
        trace=lambda: (
            later("simulator.results.trace:chrome_trace")(best),
            f" of {best.strategy}" if len(first) > 1 else "",
        ),
        draw=later("reports.figure:draw", by_size),
    )


def _lines(
    by_size: Sequence[Sequence[Result]],
    payload: Payload,
    question: CollectiveQuestion,
    unfit: Mapping[str, str],
    faster: FasterGpus | None,
    style: Style,
) -> list[str]:
    if payload.is_sweep:
        return text.sweep(by_size, payload, question, style)
    results = by_size[0]
    lines = [*text.title(results, payload, style), "", *text.comparison(results, style)]
    lines += faster.lines(best_of(results).sync_time_s, style) if faster else []
    lines += text.detail(results[0], style) if len(results) == 1 else []
    return [*lines, "", *text.unfit_lines(unfit, style)] if unfit else lines


def _remarks(results: Sequence[Result], payload: Payload, unfit: Mapping[str, str], style: Style) -> list[str]:
    """Return what a sweep's table leaves out, or what to ask instead about a single GPU."""
    if payload.is_sweep or results[0].n_ranks > 1:
        return text.unfit_lines(unfit, style) if payload.is_sweep else []
    network = "resnet50" if payload.text.startswith(("bytes:", "sweep:")) else payload.text
    step = f"{mention('workload', network)} {mention('batch', 32)}"
    return [f"one GPU exchanges nothing; {step} simulates a step on it"]
