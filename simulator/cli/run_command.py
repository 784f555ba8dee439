"""``simulate run``: the days, failures and price of a whole run of equal steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from simulator.api.run import run_of
from simulator.cli.launch_line import with_launch
from simulator.cli.options import parse_count, quantity_of, read_all
from simulator.cli.output import Answers, Asked, warn
from simulator.cli.step_command import check_fits
from simulator.cli.step_questions import ask_steps
from simulator.cli.step_text import how_words, parameter_words
from simulator.cli.table import Column, fact_lines, table_lines
from simulator.cli.written import CommandOptions, check_read, written_of
from simulator.console.style import Progress, Style
from simulator.errors import InputError, one_line, refused
from simulator.questions.checks import From
from simulator.questions.run import RunQuestion
from simulator.results import Fact
from simulator.results.columns import percent, rate_words
from simulator.results.confidence import BAND_HEAD
from simulator.results.rates import days_words, energy_words, rate_of_device
from simulator.results.run import Run, run_document
from simulator.results.training import TrainingResult
from simulator.results.words import device_words, precision_words
from simulator.spelling import mention
from simulator.topology.schema import read_price
from simulator.units import format_duration, format_size

_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,12})?(?:[eE]\d{1,2})?)\s*([kKMGBT]?)", re.ASCII)
_TIMES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_MOST = 1e18
_OWN = (
    *("tokens", "samples", "gpu_mtbf", "storage", "async_checkpoints", "warmup_time"),
    *("evaluate_every", "evaluate_samples", "gpu_hour"),
)
_WORDS = {
    "training": "training",
    "evaluation": "evaluation",
    "checkpoints": "stopped to write checkpoints",
    "restarts": "restarts",
    "repeated": "steps done again",
}


def ask_run(**given: Any) -> Asked:
    """Return the question about a run that the options *given* ask for; raises InputError."""
    own = {name: given.pop(name) for name in _OWN}
    layout = given.pop("parallel")
    written = written_of({**given, "parallel": layout and (layout,)})
    if written.launch is not None:
        written, notes = with_launch(written)
        warn(written, notes)
    if written.batch is None and written.global_batch is None:
        raise InputError(f"run needs {mention('batch')} or {mention('global_batch')}: the samples of a step")
    check_read(_step_of(written))
    return Asked(written, partial(answer_run, own=own))


def answer_run(written: CommandOptions, own: Mapping[str, Any]) -> Answers:
    """Return the answer to a run; raises InputError for what cannot be read or answered."""
    said = read_all(
        lambda: _amount("tokens", own["tokens"]),
        lambda: _amount("samples", own["samples"]),
        lambda: _time("mtbf_s", written.mtbf),
        lambda: _time("gpu_mtbf_s", own["gpu_mtbf"]),
        lambda: None if (n := written.checkpoint_every) is None else parse_count("every_steps", n, From(1)),
        lambda: _time("write_s", written.checkpoint_time),
        lambda: None if (rate := own["storage"]) is None else quantity_of("storage_Bps", rate, "bandwidth"),
        lambda: bool(own["async_checkpoints"]),
        lambda: _time("restart_s", written.restart_time) or 0.0,
        lambda: _time("warmup_s", own["warmup_time"]) or 0.0,
        lambda: 0 if (n := own["evaluate_every"]) is None else parse_count("evaluate_every", n, From(1)),
        lambda: int(_amount("evaluate_samples", own["evaluate_samples"])),
        lambda: _price(own["gpu_hour"]),
    )
    names = [name for name in RunQuestion.__dataclass_fields__ if name != "step"]
    session, steps = ask_steps(_step_of(written))
    if len(steps) > 1:
        raise InputError("run is about one machine, layout, strategy and overlap; name one of each")
    question = RunQuestion(step=steps[0], **dict(zip(names, said, strict=True)))
    with Progress(1, "simulating", quiet=written.quiet):
        found = run_of(session, question)
    result = found.result
    assert isinstance(result, TrainingResult)
    return Answers(
        results=[result],
        document=lambda: run_document(found, result.to_dict()),
        lines=partial(run_lines, found),
        check=partial(check_fits, {result.way: result}),
    )


def run_lines(run: Run, style: Style) -> list[str]:
    """Return the run as text: its days, what of it trains, its price."""
    result, question = run.result, run.question
    step = result.step
    of = f"{_count(question.tokens)} tokens" if question.tokens else f"{question.samples:,.0f} {step.sample}"
    assert isinstance(result, TrainingResult)
    how = ", ".join([f"{result.samples:,} {step.sample} a step", *how_words(result, precision_words(step)), result.way])
    title = f"{result.machine}, {device_words(result)}: {of} of {step.workload} ({parameter_words(step)}), {how}"
    facts = [Fact("run", f"{run.steps:,} steps, {rate_words(run.gpu_hours)} GPU hours", _days(run.wall_s), ("bold",))]
    if run.band_s is not None:
        facts.append(Fact(BAND_HEAD, f"{_days(run.band_s[0])} to {_days(run.band_s[1])}"))
    if (price := run.price) is not None:
        ends = [end for each in run.band_s or () if (end := run.price_of(each)) is not None]
        facts.append(Fact("price", f"80 % band {ends[0].words()} to {ends[1].words()}" if ends else "", price.words()))
    if run.energy_J is not None:
        facts.append(Fact("energy", "at most, with all boards at their limits", energy_words(run.energy_J)))
    facts.append(Fact("trains", "of the time (effective training time, goodput)", percent(run.cycle.goodput)))
    facts.append(Fact("step", rate_of_device(run.rates, step.sample), format_duration(result.step_time_s)))
    if question.fails:
        again = f"{format_duration(run.cycle.restart_s)} each to restart"
        facts.append(
            Fact("failures", f"one every {format_duration(run.cycle.mtbf_s)}, {again}", f"{run.failures:,.0f}")
        )
    if run.every_steps:
        behind = f", safe {format_duration(run.cycle.background_s)} later" if question.asynchronous else ""
        what = (
            f"of {format_size(run.checkpoint_bytes, 3)}, each stops training for {format_duration(run.cycle.stopped_s)}"
        )
        facts.append(
            Fact(
                "checkpoints",
                f"{what}{behind}",
                f"every {run.every_steps:,} steps" if run.every_steps > 1 else "every step",
            )
        )
    shares = {name: share for name, share in run.cycle.shares.items() if share > 0}
    columns = [
        Column("where the days go", [_WORDS[name] for name in shares], right=False),
        Column("time", [_days(share * (run.wall_s - run.first_s)) for share in shares.values()]),
        Column("share", [percent(share) for share in shares.values()]),
    ]
    return [*style.wrap(title, "bold"), "", *fact_lines(facts, style), "", *table_lines(columns, style)]


def _step_of(written: CommandOptions) -> CommandOptions:
    """Return *written* without what the run reads instead of its step."""
    return replace(written, mtbf=None, checkpoint_every=None, checkpoint_time=None, restart_time=None)


def _days(seconds: float) -> str:
    return days_words(seconds / 86_400.0) if seconds >= 3600.0 else format_duration(seconds)


def _count(number: float) -> str:
    scale, letter = next(((s, x) for s, x in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if number >= s), (1.0, ""))
    return f"{number / scale:.4g}{letter}"


def _amount(name: str, text: str | None) -> float:
    """Return the number that *text* is, with a letter for thousands to trillions; 0 if nothing is said."""
    if text is None:
        return 0.0
    match = _AMOUNT.fullmatch(text.strip())
    number = float(match[1]) * _TIMES[match[2]] if match else 0.0
    if not 1.0 <= number <= _MOST:
        raise refused(name, "is a number above 0, for example 15T, 300B or 90M", one_line(text, 60))
    return number


def _time(name: str, text: str | None) -> float | None:
    return None if text is None else quantity_of(name, text, "time", positive=True)


def _price(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return read_price(text)
    except ValueError as error:
        raise refused("gpu_hour", str(error), one_line(text, 60)) from None
