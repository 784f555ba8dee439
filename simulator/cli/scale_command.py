"""``simulate scale``: how a step scales with machines or GPUs."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from simulator.cli.options import parse_count
from simulator.cli.output import Answers, Asked
from simulator.cli.step_command import check_fits, rate_columns
from simulator.cli.step_questions import ask_points, of_point
from simulator.cli.step_text import memory_column
from simulator.cli.table import Column, head_lines, next_lines, table_lines, trust_lines
from simulator.cli.written import CommandOptions, check_read, shell_command, written_of
from simulator.collectives.communicator import Unsuitable
from simulator.console import Progress, Style, later
from simulator.errors import InputError, counted, mention, one_line
from simulator.results import duration_column, percent, rate_words
from simulator.results.comparison import comparison_width, ratio_of
from simulator.results.confidence import BAND_HEAD
from simulator.results.headline import over_words
from simulator.results.rates import rates_of
from simulator.results.step_view import MODE_WORDS, limit_words, precision_words, time_shares
from simulator.results.training import TrainingResult
from simulator.search.run import Curve, curve_document, curve_of, loss_words

_MOST_POINTS = 1000


def ask_scale(**given: Any) -> Asked:
    """Return the question about each number of devices that the options *given* ask for; raises InputError."""
    written, own = written_of(given, "nodes", "gpus")
    nodes, gpus = own["nodes"], own["gpus"]
    if (nodes is None) == (gpus is None):
        why = "give one of the two" if nodes else "for example --nodes 1,2,4..64, or --gpus 1,2,4,8"
        raise InputError(f"scale needs --nodes or --gpus: {why}")
    if written.batch is None and written.global_batch is None:
        raise InputError("scale needs --batch (samples a GPU) or --global-batch (of all), for example --batch 32")
    if written.topology == "-":
        raise InputError("--topology -: is read for each point; write it to a file")
    name = "nodes" if nodes else "gpus"
    counts = parse_counts(f"--{name}", own[name])
    check_read(written)
    again = shell_command(written, ["scale"], **own)
    return Asked(written, partial(answer_scale, name=name, counts=counts), command=again)


def answer_scale(written: CommandOptions, name: str, counts: Sequence[int]) -> Answers:
    """Return the step on each of *counts* machines or GPUs, as the option *name* says; raises InputError."""
    results = {}
    with Progress(len(counts), "simulating", quiet=written.quiet) as progress:
        of_counts: dict[int, Any] = {n: {name: str(n)} for n in counts}
        asked = ask_points({f"--{name} {n}": written.but(**said) for n, said in of_counts.items()})
        for point, (session, question) in asked.items():
            try:
                results[point] = session.step(question)
            except Unsuitable as error:
                raise InputError(f"{point}: {mention('strategy', question.way)} does not fit: {error.why}") from None
            except InputError as error:
                raise error.changed(partial(of_point, point)) from None
            progress.advance(point)
    curve = curve_of(list(results.values()))
    return Answers(
        document=partial(curve_document, curve),
        lines=partial(_curve_lines, curve, partial(_after_curve, curve, written, name)),
        draw=later("reports.curves:draw_curve", curve),
        check=partial(check_fits, results),
    )


def parse_counts(option: str, text: str | None) -> list[int]:
    """Return the numbers in *text*, ascending: ``1,2,4..64`` doubles, ``8..64+8`` adds 8; raises InputError."""
    found: set[int] = set()
    shown = f"{option} {one_line(text, 60)}"
    for word in (text or "").split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:\.\.(\d{1,7})(?:\+(\d{1,7}))?)?\s*", word, re.ASCII)
        if match is None:
            raise InputError(f"{shown}: write numbers and ranges, for example 1,2,4..64 (doubles) or 8..64+8 (adds 8)")
        first = parse_count(option, match[1])
        last, step = int(match[2] or first), int(match[3] or 0)
        if first < 1 or last < first or (match[3] is not None and step < 1):
            raise InputError(f"{shown}: '{one_line(word)}' goes nowhere; counts are from 1 up, the smaller one first")
        reached = count = first
        while count <= last and len(found) <= _MOST_POINTS:
            found.add(reached := count)
            count = count + step if step else 2 * count
        if len(found) > _MOST_POINTS:
            raise InputError(f"{shown}: more than {_MOST_POINTS} points")
        if reached < last:
            how = f"adds {step}" if step else f"doubles ({first}..{last}+1 adds 1)"
            raise InputError(f"{shown}: '{one_line(word)}' misses {last}: it {how}, and {reached} is the last")
    return sorted(found)


def _after_curve(curve: Curve, written: CommandOptions, name: str, style: Style) -> list[str]:
    results, knee = curve.results, curve.knee
    if knee is None:
        last, whose = results[-1], "nodes"
        most = last.question.where.nodes or 1
        if name == "gpus" and 4 * last.device_count <= len(last.timeline.machine.gpus):
            most, whose = last.device_count, "gpus"
        return next_lines(f"--{whose} {most}..{4 * most}, to find where it stops scaling" * (len(results) > 1), style)
    result = next(result for result in results if result.device_count == knee.after)
    count = str(knee.after if name == "gpus" else result.question.where.nodes)
    of: dict[str, Any] = {name: count}
    asked = shell_command(written.but(quiet=False, what_if=True, **of))
    return next_lines("which links or options would help there", style, asked)


def _curve_lines(curve: Curve, more: Callable[[Style], list[str]], style: Style) -> list[str]:
    results, first, last, step = curve.results, curve.results[0], curve.results[-1], curve.results[0].step
    each = counted(first.samples, step.sample.removesuffix("s"))
    which = f"{'weak' if curve.is_weak else 'strong'} scaling" if len(results) > 1 else f"{first.device_count:,} GPUs"
    if len(results) > 1 and curve.is_weak:
        whole, rest = divmod(first.samples, first.device_count)
        each = f"{each} on {first.device_count:,} devices" if rest else f"batch {whole:,} per device"
    machine = re.sub(r"^\d+ x ", "", first.machine)
    how = f"{which}, {each}, {precision_words(step)}, {last.called}"
    title = f"{machine}: {MODE_WORDS[step.options.mode]} of {step.workload}, {how}"
    columns = [
        Column("GPUs", [f"{result.device_count:,}" for result in results]),
        Column("step", duration_column([result.step_time_s for result in results])),
        Column(BAND_HEAD, [result.confidence.words for result in results], spare=1),
        Column(f"{step.sample}/s", [rate_words(result.throughput) for result in results], spare=3),
        *rate_columns([rates_of(result) for result in results]),
        Column("efficiency", [percent(value) for value in curve.efficiency]),
        Column("per doubling", ["-", *(percent(gain) for gain in curve.gains)], spare=5),
        memory_column(results),
        Column("bound by", [limit_words(result) for result in results], right=False, spare=2),
        Column("largest losses", [loss_words(time_shares(result)) for result in results], right=False, spare=4),
    ]
    lines = head_lines(title, style, [result.confidence for result in results])
    lacking = [f"{result.device_count:,}" for result in results if not result.fits]
    if lacking:
        on = f"{', '.join(lacking)} GPU{'s' if lacking != ['1'] else ''}"
        whose = "the devices" if first.offload is None else "the devices and their hosts"
        lines += style.wrap(f"does not fit into the memory of {whose}: on {on}", "red")
    if len(results) > 1:
        lines += style.wrap(_curve_verdict(curve), "bold", hang=2)
    lines += ["", *table_lines(columns, style), ""]
    of = f"time of {last.device_count:,} GPUs" if len(results) > 1 else "time"
    return [*lines, *trust_lines(last.confidence, style, of), *more(style)]


def _curve_verdict(curve: Curve) -> str:
    knee, results = curve.knee, curve.results
    sample, last = results[0].step.sample, results[-1]
    widths = [comparison_width(result.confidence.estimate) for result in results]
    fits = "; all fit" * all(result.fits for result in results)
    kept_of = [ratio_of(each, 1.0, (widths[0], width)) for each, width in zip(curve.efficiency, widths, strict=True)]
    if knee is None:
        rate = f"{rate_words(last.throughput)} {sample}/s"
        kept = f"at efficiency {kept_of[-1].share_words}, {rate}; bound by {limit_words(last)}{fits}"
        return f"scales to {last.device_count:,} GPUs, the most simulated, {kept}"
    at = next(i for i, result in enumerate(results) if result.device_count == knee.after)
    then, now = results[at - 1 : at + 1]
    rates = f"{rate_words(now.throughput)} against {rate_words(then.throughput)} {sample}/s"
    efficiency = f"efficiency {kept_of[at].share_words}"
    over = over_words(now)
    cause = f"communication{over} takes {100 * now.exposed_s / (now.step_time_s or 1.0):.0f} % of the step"
    why = cause if over and now.bound == "exchange" else knee.cause
    if now.throughput < then.throughput:
        return f"poorly: {_size(now)} are slower than {_size(then)}, {rates}, {efficiency}: {why}{fits}"
    before = f" from {_size(then)} to {_size(now)}"
    return f"scales less well{before}: {rates}, {efficiency} after {percent(curve.efficiency[at - 1])}: {why}{fits}"


def _size(result: TrainingResult) -> str:
    nodes = len(result.timeline.machine.hosts_of(result.timeline.machine.gpus))
    return f"{counted(nodes, 'node')} ({counted(result.device_count, 'GPU')})"
