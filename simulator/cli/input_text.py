"""The input of a step as text: whether it feeds the devices, its limiter, and remedies."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from simulator.cli.table import fact_lines, table_of
from simulator.console.style import Style
from simulator.results.columns import percent
from simulator.results.input import STEP, InputRun
from simulator.results.view import Fact
from simulator.results.words import INPUT_WORDS
from simulator.units import format_duration, format_size


def input_lines(run: InputRun, samples: int, sample: str, rate_of: Callable[[float], str], style: Style) -> list[str]:
    """Return the lines about the input of *run*, with *samples* per step; *rate_of* formats a rate."""
    where = " and ".join(dict.fromkeys(run.disks)) if run.disks else "memory"
    name = "" if run.asked.name == "input" else f"{run.asked.name} "
    resized = "resized to what the network reads, " if run.load.is_resized else ""
    lines = style.wrap(f"input: {name}from {where}, {resized}{_loader(run)}", "bold")
    rows = [
        [INPUT_WORDS[limit.name], format_duration(limit.seconds), f"{rate_of(samples / limit.seconds)} {sample}/s"]
        for limit in run.limits
    ]
    lines += table_of([["what each alone would take", "a step", ""], *rows], [False, True, True], style)
    idle = f"wait for their input, {percent(run.idle_share)} of the time"
    facts = [Fact("devices", "are fed in time" if run.bound == STEP else idle)]
    if run.bound != STEP:
        facts.append(Fact("bound by", INPUT_WORDS[run.bound]))
        if run.cure is not None:
            rate = rate_of(samples / run.cure.step_time_s)
            facts.append(Fact("cheapest cure", f"{run.cure.change}: {rate} {sample}/s"))
        else:
            facts.append(Fact("cheapest cure", "none of the input's own; another disk, or a host with more cores"))
    if run.epoch_steps:
        facts += _epochs(run)
    has = f" of {format_size(run.memory_bytes, 3)}" if isfinite(run.memory_bytes) else ""
    kept = f", {format_size(run.kept_bytes, 3)} of the set" if run.kept_bytes else ""
    lacks = ": more than there is" if run.buffers_bytes > run.memory_bytes else ""
    facts.append(Fact("host memory", f"{format_size(run.buffers_bytes, 3)} of batches{kept}{has}{lacks}"))
    lines += fact_lines(facts, style)
    if run.cures:
        rows = [
            [cure.change, format_duration(cure.step_time_s), f"{run.period_s / cure.step_time_s:.2f} x"]
            for cure in run.cures
        ]
        lines += ["", *table_of([["what would feed it", "time", "gain"], *rows], [False, True, True], style)]
    return lines


def _loader(run: InputRun) -> str:
    asked = run.asked
    if not asked.workers:
        return "loaded by the process that issues"
    workers = f"{asked.workers} worker{'s' if asked.workers > 1 else ''} a process"
    return f"{workers}, {asked.prefetch} batch{'es' if asked.prefetch > 1 else ''} ahead each"


def _epochs(run: InputRun) -> list[Fact]:
    asked = run.asked
    rows = []
    if asked.epochs > 1 and run.cached_share:
        rows.append(Fact("first epoch", f"{format_duration(run.first_s)}, {run.epoch_steps:,} steps"))
        rows.append(Fact("later epochs", f"{format_duration(run.later_s)}, {percent(run.cached_share)} from memory"))
    else:
        rows.append(Fact("epoch", f"{format_duration(run.later_s)}, {run.epoch_steps:,} steps"))
    if asked.evaluate:
        rows.append(
            Fact("evaluation", f"{format_duration(run.evaluation_s)}, {asked.evaluate:,} samples on one device")
        )
    if asked.epochs > 1 or asked.evaluate:
        rows.append(Fact("all epochs", f"{format_duration(run.total_s)}, {asked.epochs:,} of them"))
    return rows
