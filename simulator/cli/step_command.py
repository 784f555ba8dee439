"""``simulate --batch``: a training step on one or several devices, with each strategy and layout."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from simulator.api.session import Session
from simulator.cli.chosen_gpus import Faster, faster_gpus, on_fastest
from simulator.cli.machines import on_machine
from simulator.cli.output import Files, show, warn
from simulator.cli.step_questions import ask_steps
from simulator.cli.written import Written
from simulator.collectives.request import Unsuitable
from simulator.console.progress import Progress
from simulator.console.style import choose_style
from simulator.errors import Fault, InputError, SimulationError
from simulator.questions.step import StepQuestion
from simulator.results.document import to_json
from simulator.results.order import best_of
from simulator.results.step_document import steps_document
from simulator.results.training import TrainingResult
from simulator.spelling import mention, spelt
from simulator.units import format_size


def notes_of(session: Session, question: StepQuestion) -> list[str]:
    """Return the notes of the network's source on what *question* says that is not simulated."""
    return list(session.source(question).notes)


@dataclass(frozen=True, slots=True)
class StepRuns:
    """The results, fastest first (``found``), and why ways do not fit, by name (``unfit``)."""

    found: tuple[TrainingResult, ...]
    unfit: dict[str, str]
    faster: Faster | None = None  # other GPUs, as many as asked for, with the fastest way


def run_steps(written: Written) -> None:
    """Check the options, simulate, write the requested files and print the results.

    Raises TopocastError if the input cannot be used, or after printing the results if one does not fit in memory.
    """
    with Progress(1, "reading the network", quiet=written.quiet):
        session, questions = ask_steps(written)
    warn(written, (note for question in questions for note in notes_of(session, question)))
    with ExitStack() as stack:
        files = Files(written, stack)
        runs = answer_steps(written, session, questions)
        best = best_of(runs.found)
        if len({question.where for question in questions}) == 1:
            runs = replace(runs, faster=faster_gpus(written, session, best, best.question))
        if files.wants_trace:
            from simulator.results.step_trace import step_trace

            shown = best.timeline if best.input is None else best.input.timeline
            several = len(runs.found) > 1
            name = f"{best.machine} {best.step.workload} batch {best.step.samples}"
            files.trace(
                step_trace(shown, name, best.device_count),
                f" of {best.way}" if several else "",
            )
        if files.plot_kind:
            from reports.step import draw_steps

            files.plot(draw_steps(runs.found, files.plot_kind))
        _print(written, runs)
    check_fits({_name(result, runs.found): result for result in runs.found})


def answer_steps(written: Written, session: Session, questions: Sequence[StepQuestion]) -> StepRuns:
    """Return the answers to *questions*; raises InputError if no strategy fits."""
    questions = on_fastest(written, session, questions)
    found: list[TrainingResult] = []
    unfit: dict[str, str] = {}
    several = len({question.where for question in questions}) > 1
    with Progress(len(questions), "simulating", quiet=written.quiet) as progress:
        for question in questions:
            try:
                # Advice takes longer than the step itself, so only a single question gets it.
                result = session.advised(question) if len(questions) == 1 else session.step(question)
                changed = session.changed(question, result.step_time_s)
                if changed is not None and result.servers is not None:
                    changed = replace(changed, delay_s=result.servers.lost_s, then_s=result.servers.then_s)
                found.append(replace(result, changed=changed))
            except Unsuitable as reason:
                of = f" on {session.machine(question.where).name}" if several else ""
                unfit[f"{question.way}{of}"] = reason.why
            except InputError as error:
                raise on_machine(error, session.machine(question.where).name) if several else error from None
            progress.advance(question.way)
    if not found:
        raise InputError([Fault(f"{mention('strategy', name)} does not fit: {why}") for name, why in unfit.items()])
    found.sort(key=lambda answer: (not answer.fits, -answer.throughput))
    if written.what_if:
        from simulator.api.what_if import what_if

        best = best_of(found)
        with Progress(1, "looking for what would be faster", quiet=written.quiet):
            better = replace(best, what_if=what_if(session, best.question, best.step_time_s))
        found = [better if each is best else each for each in found]
    return StepRuns(tuple(found), {name: spelt(why, "command") for name, why in unfit.items()})


def _print(written: Written, runs: StepRuns) -> None:
    from simulator.cli.step_text import step_lines
    from simulator.cli.ways_text import ways_lines

    if written.json:
        document = steps_document(runs.found, runs.unfit)
        if runs.faster is not None:
            document["faster_gpus"] = {"gpus": list(runs.faster.gpus), "step_time_s": runs.faster.seconds}
        sys.stdout.write(to_json(document))
        return
    style = choose_style(sys.stdout)
    alone = len(runs.found) == 1 and not runs.unfit
    lines = step_lines(runs.found[0], style) if alone else ways_lines(runs.found, runs.unfit, style)
    if runs.faster is not None:
        lines += ["", *style.wrap(runs.faster.words(best_of(runs.found).step_time_s), "bold")]
    show(lines)


def check_fits(named: Mapping[str, TrainingResult]) -> None:
    """Raise SimulationError if a result does not fit in memory, as if it had been asked for alone; the keys name it."""
    lacking = {name: result for name, result in named.items() if not result.fits}
    if lacking and len(named) == 1:
        raise SimulationError(_out_of_memory(*lacking.values()))
    if lacking:
        words = "; ".join(f"{name} lacks {_lacks(result)}" for name, result in lacking.items())
        raise SimulationError(f"out of memory: {words}")


def _name(result: TrainingResult, among: Sequence[TrainingResult]) -> str:
    """Return the name of *result* in a table of *among*."""
    ways, machines = ({getattr(other, name) for other in among} for name in ("way", "machine"))
    named = [*([result.way] if len(ways) > 1 else []), *([result.machine] if len(machines) > 1 else [])]
    return " on ".join(named) or result.way


def _lacks(result: TrainingResult) -> str:
    need = result.tightest.need
    return f"{format_size(need.missing_bytes, 3)} of {format_size(need.total_bytes, 3)}"


def _out_of_memory(result: TrainingResult) -> str:
    each, part = result.tightest.need, result.tightest.part
    text = f"out of memory: {result.step.workload} at batch {result.question.batch} needs"
    text += f" {format_size(each.total_bytes, 3)}, {part} has {format_size(each.available_bytes, 3)},"
    text += f" {format_size(each.missing_bytes, 3)} too little"
    return f"{text}; what would fit: {' or '.join(result.remedies)}" if result.remedies else text
