"""``simulate run``: the days, failures and price of a whole run of equal steps."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from simulator.api.run import run_of, saves
from simulator.cli.launch_line import with_launch
from simulator.cli.options import fields_of
from simulator.cli.output import Answers, Asked, warn
from simulator.cli.step_command import check_fits, cut_by
from simulator.cli.step_questions import ask_steps
from simulator.cli.step_text import fit_words, how_words, parameter_words, remedy_lines
from simulator.cli.table import Column, blocks_apart, fact_lines, head_lines, next_lines, table_lines, trust_lines
from simulator.cli.written import CommandOptions, check_read, written_of
from simulator.console import Progress, Style
from simulator.errors import InputError, counted, mention
from simulator.questions.run import RunQuestion
from simulator.results import Fact, percent, rate_words
from simulator.results.confidence import BAND_HEAD
from simulator.results.headline import count_words
from simulator.results.rates import days_words, energy_words, rate_of_device
from simulator.results.result import listed
from simulator.results.run import Run, run_document
from simulator.results.step_view import device_words, largest_words, limit_words, precision_words
from simulator.results.training import TrainingResult
from simulator.units import format_duration, format_size

_SHOWN_REMEDIES = 3
_GPU_HOURS_A_FAILURE = 50_000  # 419 in 54 days of 16,384 H100: The Llama 3 Herd of Models (2024), section 3.3.4
_WORDS = {"checkpoints": "stopped to write checkpoints", "repeated": "work lost since checkpoints"}


def ask_run(**given: Any) -> Asked:
    """Return the question about a run that the options *given* ask for; raises InputError."""
    written, own = written_of(given)
    written, notes = with_launch(written)
    warn(written, notes)
    if written.batch is None and written.global_batch is None:
        raise InputError(f"run needs {mention('batch')} or {mention('global_batch')}: the samples of a step")
    check_read(_step_of(written))
    return Asked(written, partial(answer_run, own=own), launch_notes=notes)


def answer_run(written: CommandOptions, own: Mapping[str, Any]) -> Answers:
    """Return the answer to a run; raises InputError for what cannot be read or answered."""
    said = fields_of(SimpleNamespace(**{**vars(written), **own}), RunQuestion)
    session, steps = ask_steps(_step_of(written))
    if len(steps) > 1:
        raise InputError("run is about one machine, layout, strategy and overlap; name one of each")
    question = RunQuestion(step=steps[0], **said)
    with Progress(1, "simulating", quiet=written.quiet):
        found = run_of(session, question)
        if not found.result.fits:
            found = replace(found, result=session.advised(question.step, cut_by(written)))
    result = found.result
    assert isinstance(result, TrainingResult)
    return Answers(
        results=[result],
        document=lambda: run_document(found, result.to_dict()),
        lines=lambda style: run_lines(found, style, saves=saves(session, question, result)),
        check=partial(check_fits, {result.way: result}),
    )


def run_lines(run: Run, style: Style, *, saves: bool) -> list[str]:
    """Return the run as text: its days, what of it trains, its price; *saves*: how long a checkpoint takes is known."""
    result, question, cycle, step = run.result, run.question, run.cycle, run.result.step
    assert isinstance(result, TrainingResult)
    each = step.sample.removesuffix("s")
    of = counted(int(question.samples or 0), each)
    if question.tokens:
        of = f"{count_words(question.tokens).replace(' ', '')} token{'s' * (question.tokens != 1)}"
    how = [f"{counted(result.samples, each)} a step", *how_words(result, precision_words(step)), result.called]
    what = f"{of} of {step.workload} ({parameter_words(step)})"
    title = f"{result.machine}, {device_words(result)}: {what}, {', '.join(how)}"
    work = f"{counted(run.steps, 'step')}, {rate_words(run.gpu_hours)} GPU-hours"
    facts = [Fact("run", work, _days(run.wall_s), ("bold",))]
    if (price := run.price) is not None:
        ends = [end for each in run.band_s or () if (end := run.price_of(each)) is not None]
        words = [f"80 % band {ends[0].words()} to {ends[1].words()}"] if ends else []
        if question.gpu_hour and (own := result.price_per_hour):
            words.append(f"--gpu-hour in place of the file's {own.words()} an hour")
        facts.append(Fact("price", "; ".join(words), price.words()))
    if run.energy_J is not None:
        facts.append(Fact("energy", "upper bound: every GPU at TDP", energy_words(run.energy_J)))
    counts = "" if question.fails else ", without failures"
    facts.append(Fact("goodput", f"of the time trains{counts}", percent(cycle.goodput)))
    each_gpu = "per GPU: " if result.device_count > 1 else ""
    facts.append(Fact("step", f"{each_gpu}{rate_of_device(run.rates, step)}", format_duration(result.step_time_s)))
    limit = limit_words(result).partition(",")[0]
    facts += [Fact("memory", fit_words(result)), Fact("bound by", f"{limit}; {largest_words(result)}")]
    if question.fails:
        again = f"one every {format_duration(cycle.mtbf_s)}, {format_duration(cycle.restart_s)} each to restart"
        facts.append(Fact("failures", again, f"{run.failures:,.1f} expected"))
    if run.every_steps:
        behind = f", safe {format_duration(cycle.background_s)} later" if question.asynchronous else ""
        size, stops = format_size(run.checkpoint_bytes, 3), format_duration(cycle.stopped_s)
        every = f"every {run.every_steps:,} steps" if run.every_steps > 1 else "every step"
        facts.append(Fact("checkpoints", f"of {size}, each stops training for {stops}{behind}", every))
    shares = {name: share for name, share in cycle.shares.items() if share > 0}
    columns = [
        Column("where the days go", [_WORDS.get(name, name) for name in shares], right=False),
        Column("time", [_days(share * (run.wall_s - run.first_s)) for share in shares.values()]),
        Column("share", [percent(share) for share in shares.values()]),
    ]
    head = head_lines(title, style, [result.confidence], result.changed)
    return blocks_apart(
        head + style.wrap(_verdict(run), "bold", hang=2),
        fact_lines(facts, style),
        table_lines(columns, style) if len(shares) > 1 else [],
        remedy_lines(result.remedies[:_SHOWN_REMEDIES], result, style) if result.remedies else [],
        [*trust_lines(result.confidence, style), *next_lines(_next(run, saves=saves), style)],
    )


def _verdict(run: Run) -> str:
    shares, count = run.cycle.shares, counted(run.result.device_count, "GPU")
    band = "not measured" if run.band_s is None else f"{_days(run.band_s[0])} to {_days(run.band_s[1])}"
    said = [f"{_days(run.wall_s)} on {count} ({BAND_HEAD} {band})"]
    names = [name for name in ("evaluation", "checkpoints") if shares[name] > 0.0] + ["failures"] * run.question.fails
    if names:
        ends = run.lost_band_s
        band = "not measured" if ends is None else f"{_days(ends[0])} to {_days(ends[1])}"
        times = f"; {run.failed_times[0]:,} to {counted(run.failed_times[1], 'failure')}" * run.question.fails
        lost = f"{_days(run.lost_s)} of it, {percent(1.0 - run.cycle.goodput)}"
        said.append(f"{listed(names)} cost {lost} ({BAND_HEAD} {band}{times})")
    if not run.question.fails:
        said[0] += ", without failures"
    return "; ".join([*said, "fits in memory" if run.result.fits else "does not fit in memory"])


def _next(run: Run, *, saves: bool) -> str:
    if not run.question.fails:
        hours = max(1, round(_GPU_HOURS_A_FAILURE / run.result.device_count))
        written = "" if saves else f" {mention('write_s', '30s')}"
        return f"--mtbf {hours}h{written}, usual for so many GPUs, to count failures, checkpoints and restarts"
    stops = run.cycle.shares["checkpoints"]
    if run.every_steps and not run.question.asynchronous and stops > 0.0:
        return f"--async-checkpoints, to train while they are written ({percent(stops)} of the time)"
    return ""


def _step_of(written: CommandOptions) -> CommandOptions:
    return written.but(mtbf=None, checkpoint_every=None, checkpoint_time=None, restart_time=None)


def _days(seconds: float) -> str:
    if seconds >= 3600.0:
        return days_words(seconds / 86_400.0)
    return f"{seconds / 60.0:.3g} min" if seconds >= 60.0 else format_duration(seconds)
