"""``simulate --batch``: a training step on one or several devices, with each strategy and layout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from simulator.api.session import Session
from simulator.cli.machines import faster_gpus, on_fastest, on_machine
from simulator.cli.output import Answers, warn
from simulator.cli.step_questions import ask_steps
from simulator.cli.step_text import step_lines
from simulator.cli.table import Collected
from simulator.cli.written import CommandOptions
from simulator.collectives.request import Unsuitable
from simulator.console import later
from simulator.console.style import Progress, Style
from simulator.errors import Fault, InputError, SimulationError
from simulator.questions.options import SamplesOption
from simulator.records import replace
from simulator.results.result import best_of, name_among
from simulator.results.training import TrainingResult, steps_document
from simulator.spelling import mention
from simulator.units import format_size


def answer_steps(written: CommandOptions, session: Session) -> Answers:
    """Return the answers, fastest first; raises InputError if no strategy fits."""
    with Progress(1, "reading the network", quiet=written.quiet):
        session, questions = ask_steps(written, session)
    notes = [note for question in questions for note in session.source(question).notes]
    warn(written, notes)
    notes += [note for question in questions for note in session.machine(question.where).notes]
    questions = on_fastest(written, session, questions)
    found: list[TrainingResult] = []
    unfit: dict[str, str] = {}
    several = len({question.where for question in questions}) > 1
    samples = cut_by(written)
    with Progress(len(questions), "simulating", quiet=written.quiet) as progress:
        for question in questions:
            try:
                # Advice takes longer than the step itself, so only a single question gets it.
                result = session.advised(question, samples) if len(questions) == 1 else session.step(question)
                found.append(replace(result, changed=session.changed(question, result)))
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
    best = best_of(found)
    faster = None
    if written.gpus is not None and len({question.where for question in questions}) == 1:
        faster = faster_gpus(written, session, best.step_time_s, best.question)

    def lines(style: Style) -> list[str]:
        if len(found) == 1 and not unfit:
            shown = step_lines(best, style, full=written.verbose or isinstance(style, Collected))
        else:
            shown = later("simulator.cli.ways_text:ways_lines")(found, unfit, style)
        return [*shown, *(faster.lines(best.step_time_s, style) if faster else [])]

    return Answers(
        results=found,
        best=best,
        notes=notes,
        document=lambda: steps_document(found, unfit) | (faster.document("step_time_s") if faster else {}),
        lines=lines,
        trace=lambda: (_trace(best), f" of {best.way}" if len(found) > 1 else ""),
        chakra=lambda: session.chakra(best.question),
        draw=later("reports.step:draw_steps", found),
        check=partial(check_fits, {name_among(result, found): result for result in found}),
    )


def cut_by(written: CommandOptions) -> SamplesOption:
    """Return the option that cuts the samples of a step that does not fit."""
    if written.global_batch is None:
        return "batch"
    return "micro_batch" if written.micro_batches == "1" else "micro_batches"


def _trace(best: TrainingResult) -> str:
    shown = best.timeline if best.input is None else best.input.timeline
    step_trace = later("simulator.results.trace:step_trace")
    held = later("simulator.results.held:held_over", best)() if best.input is None else ()
    name = f"{best.machine} {best.step.workload} batch {best.step.samples}"
    return str(step_trace(shown, name, best.device_count, held))


def check_fits(named: Mapping[str, TrainingResult]) -> None:
    """Raise SimulationError if a result does not fit in memory, as if it had been asked for alone; the keys name it."""
    lacking = {name: result for name, result in named.items() if not result.fits}
    if lacking and len(named) == 1:
        raise SimulationError(_out_of_memory(*lacking.values()))
    if lacking:
        words = "; ".join(f"{name} lacks {_lacks(result)}" for name, result in lacking.items())
        raise SimulationError(f"out of memory: {words}")


def _lacks(result: TrainingResult) -> str:
    need, run = result.tightest.need, result.offload
    if run is not None and need.fits:
        return f"{format_size(run.host_missing_bytes, 3)} of {format_size(run.host_bytes, 3)} on the host"
    return f"{format_size(need.missing_bytes, 3)} of {format_size(need.total_bytes, 3)}"


def _out_of_memory(result: TrainingResult) -> str:
    each, part, run = result.tightest.need, result.tightest.part, result.offload
    text = f"out of memory: {result.step.workload} at batch {result.question.batch} needs"
    if run is not None and each.fits:
        text += f" {format_size(run.host_bytes, 3)} on the host, which has {format_size(run.host_available_bytes, 3)},"
        text += f" {format_size(run.host_missing_bytes, 3)} too little"
    else:
        text += f" {format_size(each.total_bytes, 3)}, {part} has {format_size(each.available_bytes, 3)},"
        text += f" {format_size(each.missing_bytes, 3)} too little"
        if run is not None and not run.fits:
            lacks = f"{format_size(run.host_missing_bytes, 3)} of {format_size(run.host_bytes, 3)}"
            text += f"; the host lacks {lacks} too"
    changes = " or ".join(remedy.change for remedy in result.remedies)
    return f"{text}; what would fit: {changes}" if changes else text
