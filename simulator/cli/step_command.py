"""``simulate --batch``: a training step with each strategy and layout; several, and several machines, side by side."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from simulator.api.session import Session
from simulator.cli.machines import faster_gpus, on_fastest, on_machine
from simulator.cli.output import Answers, warn
from simulator.cli.step_questions import ask_steps
from simulator.cli.step_text import alternative_lines, how_words, mark_lines, memory_column, parameter_words, step_lines
from simulator.cli.table import Collected, Column, head_lines, loss_lines, next_lines, table_lines, trust_lines
from simulator.cli.written import CommandOptions, changed_command, shell_command
from simulator.collectives.communicator import Unsuitable
from simulator.console import Progress, Style, later
from simulator.errors import InputError, SimulationError, counted, mention
from simulator.questions.checks import changed, refuse_all
from simulator.questions.options import SamplesOption
from simulator.records import replace
from simulator.results import duration_column, percent, rate_words
from simulator.results.confidence import BAND_HEAD
from simulator.results.headline import lacks
from simulator.results.rates import Rates, rates_of, tflops_words
from simulator.results.result import Result, best_of, grouped, name_among, way_among
from simulator.results.step_view import MODE_WORDS, device_words, limit_words, main_wait, precisions_words
from simulator.results.training import TrainingResult, steps_document
from simulator.units import format_duration


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
    with Progress(len(questions), "simulating", quiet=written.quiet) as progress:
        for question in questions:
            try:
                # Advice takes longer than the step itself, so only a single question gets it.
                alone = len(questions) == 1
                result = session.advised(question, cut_by(written)) if alone else session.step(question)
                found.append(replace(result, changed=session.changed(question, result)))
            except Unsuitable as reason:
                of = f" on {session.machine(question.where).name}" if several else ""
                unfit[f"{question.way}{of}"] = reason.why
            except InputError as error:
                raise on_machine(error, session.machine(question.where).name) if several else error from None
            progress.advance(question.way)
    if not found:
        refuse_all(f"{mention('strategy', name)} does not fit: {why}" for name, why in unfit.items())
    found.sort(key=lambda answer: (not answer.fits, -answer.throughput))
    unfit_from = next((i for i, each in enumerate(found) if not each.fits), 0)
    if unfit_from:  # what would make the first of the others fit
        found[unfit_from] = session.advised(found[unfit_from].question, cut_by(written))
    best, faster = best_of(found), None
    if written.what_if:
        with Progress(1, "looking for what would be faster", quiet=written.quiet):
            gains = later("simulator.api.advice:what_if")(session, best.question, best.step_time_s)
        found = [replace(each, what_if=gains) if each is best else each for each in found]
        best = best_of(found)
    if written.gpus is not None and not several:
        faster = faster_gpus(written, session, best.step_time_s, best.question)

    def lines(style: Style) -> list[str]:
        if len(found) == 1 and not unfit:
            shown = step_lines(best, style, full=written.verbose or isinstance(style, Collected))
        else:
            shown = [*ways_lines(found, unfit, style), *_next(found, written, style)]
        return [*shown, *(faster.lines(best.step_time_s, style) if faster else [])]

    return Answers(
        results=found,
        best=best,
        notes=notes,
        document=lambda: steps_document(found, unfit) | (faster.document("step_time_s") if faster else {}),
        lines=lines,
        trace=lambda: (_trace(best), f" of {name_among(best, found)}" if len(found) > 1 else ""),
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
    """Raise SimulationError if no result fits in memory, as if it had been asked for alone; the keys name each."""
    if any(result.fits for result in named.values()):
        return
    said = "; ".join(f"{name} {lack}" for name, result in named.items() for lack in lacks(result))
    for result in named.values() if len(named) == 1 else ():
        said = f"{result.step.workload} at batch {result.question.batch} {'; '.join(lacks(result))}"
        changes = " or ".join(remedy.change for remedy in result.remedies)
        said += f"; what would fit: {changes}" if changes else ""
    if named:
        raise SimulationError(f"out of memory: {said}")


def _next(found: Sequence[TrainingResult], written: CommandOptions, style: Style) -> list[str]:
    lacking = next((result for result in found if not result.fits and result.remedies), None)
    first = lacking or found[0]
    machines = {result.machine for result in found}
    alone = written.but(topology=first.question.where.topology, quiet=False)
    if lacking is None and not first.fits:
        way = alone.but(parallel=(first.question.layout.words,)) if written.parallel else alone
        return next_lines("what would make it fit", style, shell_command(way))
    if lacking is not None:
        alone = alone.but(parallel=(lacking.question.layout.words,)) if written.parallel else alone
        fitting = [each.change for each in lacking.remedies if each.change.startswith("--")]
        where = changed_command(alone, fitting[0]) if fitting else ""
        words = f"make it fit on {lacking.machine}" if fitting else f"it takes {lacking.remedies[0].change}"
        return next_lines(words, style, where)
    if len(machines) > 1 and len(found) == len(machines) and first.tokens and not first.price_per_hour:
        trains_all = first.step.trained_count == first.step.parameter_count
        if first.step.options.mode == "train":
            command = shell_command(alone, ["run"], tokens="1T" if trains_all else "100M", gpu_hour="2USD")
            return next_lines("what a run costs; ask for each machine, with its price in place of 2USD", style, command)
    if written.what_if:
        return []
    if len(machines) == 1 and written.parallel:
        alone = alone.but(parallel=(first.question.layout.words,))
    use, what = f"use {name_among(first, found)}; ", "it"
    if len(machines) > 1:  # one owns what is slower
        alone, use, what = alone.but(topology=found[-1].question.where.topology), "", found[-1].machine
    late = [name_among(result, found) for result in found if main_wait(result) == "host"]
    if late and _captures(found):
        words = f"compare them as CUDA graphs, because {late[0]} waits for its CPU to launch kernels"
        return next_lines(words, style, shell_command(written.but(cuda_graph=True, quiet=False)))
    command = shell_command(alone.but(what_if=True))
    return next_lines(f"{use}which links or options would make {what} faster", style, command)


def _captures(found: Sequence[TrainingResult]) -> bool:
    """Return whether each of *found* can run as a CUDA graph, and none does."""
    with suppress(InputError):
        for result in found:
            changed(result.question, options=replace(result.question.options, cuda_graph=True))
        return not any(result.step.options.cuda_graph for result in found)
    return False


def ways_lines(results: Sequence[TrainingResult], unfit: Mapping[str, str], style: Style) -> list[str]:
    """Return a table of ways to run a step, by samples per second, ideal schedules last, and the verdict."""
    ordered, marks = grouped(results)
    first, step = ordered[0], ordered[0].step
    named = len({result.machine for result in ordered}) > 1
    formats = precisions_words(ordered)
    tokens = {result.tokens // result.samples for result in ordered} - {0}
    each = f" x {counted(tokens.pop(), 'token')}" if len(tokens) == 1 else ""
    how = how_words(first, formats)
    if any(how_words(result, formats) != how for result in ordered):  # each machine by a kernel of its own
        how = ["fused attention" if words.endswith("attention") else words for words in how]
    alike = {(result.way, result.device_count) for result in ordered} if named else ()
    many = counted(first.device_count, "device" if step.on_host else "GPU")
    shared = [f"{way_among(first, ordered)} on {many} each"] if len(alike) == 1 else []
    how = [f"{_batch_words(ordered)}{each}", *how, *shared, f"ranked by {step.sample}/s"]
    where = "" if named else f"{first.machine}, {device_words(first)}: "
    title = f"{where}{MODE_WORDS[step.options.mode]} of {step.workload} ({parameter_words(step)}), {', '.join(how)}"
    of = f"{way_among(first, ordered)} on {first.machine}" if named else way_among(first, ordered)
    names = [name_among(result, ordered) for result in ordered]
    lines = head_lines(title, style, [result.confidence for result in ordered], first.changed, of, names=names)
    for said in later("simulator.results.reason:steps_verdict")(ordered):
        lines += style.wrap(said, "bold", hang=2)
    unlike = len({result.samples for result in ordered}) > 1
    ways = not named or len({result.way for result in ordered}) > 1
    sure = all(result.confidence.is_exact for result in ordered)
    hours = [r.price_per_hour.words() if r.price_per_hour else "-" for r in ordered]
    rates = [rates_of(result) for result in ordered]
    unit = "tokens" if all(result.tokens for result in ordered) else step.sample
    of_samples = [result.price_per_million for result in ordered]
    millions = [each.price_per_million_tokens for each in rates] if unit == "tokens" else of_samples
    prices = [price.words() if price and result.fits else "-" for price, result in zip(millions, ordered, strict=True)]
    columns = [
        Column("machine", [result.machine for result in ordered], right=False) if named else None,
        Column("devices", [device_words(result) for result in ordered], right=False, spare=4) if named else None,
        Column("strategy", [way_among(result, ordered) for result in ordered], right=False) if ways else None,
        Column(f"{step.sample} a step", [f"{result.samples:,}" for result in ordered], spare=6) if unlike else None,
        Column("step", duration_column([result.step_time_s for result in ordered])),
        None if sure else Column(BAND_HEAD, [result.confidence.words for result in ordered], spare=1),
        Column(f"{step.sample}/s", [rate_words(r.throughput) for r in ordered], spare=0 if unlike else 3),
        *rate_columns(rates),
        Column("exposed", [format_duration(result.exposed_s, 3) for result in ordered], spare=8),
        Column("bottleneck", [r.bottleneck.name if r.bottleneck else "-" for r in ordered], right=False, spare=9),
        Column("an hour", hours, spare=5) if {*hours} != {"-"} else None,
        Column(f"a million {unit}", prices) if any(price != "-" for price in prices) else None,
        memory_column(ordered),
        Column("bound by", [limit_words(result) for result in ordered], right=False, spare=2),
    ]
    runs = [result.fits or not ordered[0].fits for result in ordered]
    said = ("machine", "devices", "strategy", f"{step.sample} a step", "an hour")
    for i, column in enumerate(columns):  # a step that does not fit beside others takes no time
        if column is not None and column.head not in said and not column.head.startswith("memory"):
            cells = [cell if fits else "-" for cell, fits in zip(column.cells, runs, strict=True)]
            columns[i] = replace(column, cells=cells)
    lines += ["", *table_lines(columns, style, marks), *mark_lines(memory_column(ordered).cells, style)]
    lines += loss_lines(first.changed, style, full=False)
    fitting = [result for result in ordered if result.is_bound == first.is_bound and result.fits]
    lines += price_lines(fitting, step.sample, "the cheapest machine that fits", style)
    if trust := trust_lines(first.confidence, style, f"time of {name_among(first, ordered)}"):
        lines += ["", *trust]
    for result in ordered:
        if result.what_if:
            lines += ["", *alternative_lines(f"what if, of {result.way}", result.what_if, result, style)]
    for name, reason in unfit.items():
        lines += style.wrap(f"{name} does not fit: {reason}", "dim", hang=2)
    return lines


def rate_columns(found: Sequence[Rates]) -> list[Column]:
    """Return the columns of tokens and FLOPs of each device; none for networks without tokens."""
    each = [rates.tokens_per_s_per_device for rates in found]
    if any(rate is None for rate in each):
        return []
    return [
        Column("tokens/s/GPU", [rate_words(rate or 0.0) for rate in each], spare=10),
        Column("TFLOP/s/GPU", [tflops_words(rates) for rates in found], spare=5),
        Column("MFU", [percent(rates.mfu) for rates in found], spare=6),
    ]


def _batch_words(results: Sequence[TrainingResult]) -> str:
    shares = {result.samples / result.device_count for result in results}
    divided = any(result.question.layout.divides_network for result in results)
    if len(shares) == 1 and (share := shares.pop()).is_integer() and not divided:
        return f"batch {share:,.0f} per device"
    if len({result.samples for result in results}) == 1:
        micro = {(result.step.micro_batches, result.question.batch) for result in results}
        each = [f" (micro-batches of {size})" for count, size in micro if count > 1 and len(micro) == 1]
        return f"{counted(results[0].samples, results[0].step.sample[:-1])} per step{''.join(each)}"
    replicas = {result.samples / result.replicas for result in results}
    return f"batch {replicas.pop():,.0f} per replica" if len(replicas) == 1 else "unlike batches"


def price_lines(results: Sequence[Result | TrainingResult], what: str, cheapest: str, style: Style) -> list[str]:
    """Return the machines, each by the first of its *results*, by the price of a million of *what*; or none."""
    best = {result.machine: result for result in reversed(results)}
    found = [(price, name) for name, result in best.items() if (price := result.price_per_million) is not None]
    currencies = sorted({price.currency for price, _ in found})
    if len(best) < 2 or not found:
        return []
    if len(currencies) > 1:
        return ["", *style.wrap(f"prices in {' and '.join(currencies)} are not compared: give one currency")]
    (least, first), *others = sorted(found, key=lambda each: each[0].amount)
    text = f"{cheapest}: {first}, {least.words()} for a million {what}"
    return ["", *style.wrap("; then ".join([text, *(f"{name}, {price.words()}" for price, name in others)]))]
