"""``simulate best``: the fastest layouts of a step that fit in memory; ``simulate scale``: its scaling curve."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from simulator.cli.launch_line import check_emitted, emission_document, emitted_or_why, launch_rows, row_command
from simulator.cli.options import parse_choice, parse_count, read_all, refuse, wants_best
from simulator.cli.output import Answers, Asked
from simulator.cli.processes import fingerprint, kept_in, process_count, runner_of
from simulator.cli.step_command import check_fits, rate_columns
from simulator.cli.step_questions import ask_points, ask_steps, of_point
from simulator.cli.step_text import memory_column, memory_head
from simulator.cli.table import Column, head_lines, next_lines, table_lines, trust_lines
from simulator.cli.written import CommandOptions, check_read, shell_command, written_of
from simulator.collectives.communicator import Unsuitable
from simulator.console import Progress, Style, later
from simulator.errors import InputError, counted, mention, one_line, refused
from simulator.launch.emit.emitted import EMITTERS
from simulator.questions.checks import From
from simulator.questions.layout import REPLICAS
from simulator.records import replace
from simulator.results.columns import duration_column, percent, rate_words
from simulator.results.comparison import comparison_width, ratio_of, times_words
from simulator.results.confidence import BAND_HEAD, band_words
from simulator.results.headline import over_words
from simulator.results.rates import rates_of
from simulator.results.step_confidence import UNSURE
from simulator.results.step_view import MODE_WORDS, limit_words, precision_words, time_shares
from simulator.results.training import TrainingResult
from simulator.search.run import Curve, Ranking, best_document, curve_document, curve_of, find_best, loss_words
from simulator.search.space import SEARCHED, Space, parse_fixed
from simulator.topology.load import load_topology
from simulator.units import format_duration, format_size
from simulator.workload.network import Network

_COUNT = From(1, 10**7)
_TOP = "10"
_SAFE = 1.05  # relative time that is worth a memory that is surely enough


def ask_best(**given: Any) -> Asked:
    """Return the search that the options *given* ask for."""
    written, wanted = written_of(given, "micro_batch", "parallel", "recompute", "emit")
    said = {name: value for name, value in wanted.items() if name != "top" or value != _TOP}
    return Asked(written, partial(answer_best, wanted=wanted), command=shell_command(written, ["best"], **said))


def answer_best(written: CommandOptions, wanted: Mapping[str, Any]) -> Answers:
    """Search the layouts as the options *wanted* of the search say; raises InputError."""
    if written.global_batch is None:
        example = mention("global_batch", 1024)
        raise InputError(f"{mention('global_batch')} is needed: the samples of a step, for example {example}")
    if written.topology == "-":
        raise refused("topology", "several processes read the machine; write it to a file", "-")
    chosen = mention("gpus", one_line(written.gpus or "", 60))
    refuse({chosen: wants_best(written.gpus)}, "is simulate's; name the GPUs here")
    micro_batch, recompute = wanted["micro_batch"], wanted["recompute"]
    global_batch, each, shown, processes, fixed, recomputed = read_all(
        lambda: parse_count("global_batch", written.global_batch or "", _COUNT),
        lambda: None if micro_batch is None else parse_count("micro_batch", micro_batch, _COUNT),
        lambda: parse_count("top", wanted["top"], _COUNT),
        lambda: process_count(wanted["jobs"], wanted["dask"]),
        lambda: parse_fixed(wanted["parallel"]),
        lambda: None if recompute is None else parse_choice("recompute", recompute, SEARCHED),
    )
    framework = None if wanted["emit"] is None else parse_choice("emit", wanted["emit"], EMITTERS)
    sharded = ("fsdp",) if dict(fixed).get("zero") == 3 else ()
    if written.framework == "deepspeed-zero3" and not sharded:
        raise refused("framework", f"is ZeRO-3; fix {mention('layout', 'zero=3')}", "deepspeed-zero3")
    divides = any(isinstance(degree, int) and degree > (axis != "zero") for axis, degree in fixed if axis != "dp")
    if written.gradient_as_bucket_view and divides:
        said = mention("layout", one_line(wanted["parallel"], 60))
        raise refused("bucket_views", f"is for replicas, and {said} has none")
    session, questions = ask_steps(written.but(global_batch=None, batch="1", parallel=sharded))
    question = replace(questions[0], layout=REPLICAS)
    if len(questions) > 1:
        raise refused("topology", "best searches one machine; name one")
    if question.gpus is None or len(question.gpus) < 2:
        more = f"add {mention('nodes')}, or name another"
        raise InputError(f"best divides a step over several GPUs, and one takes part; {more}")
    if framework is not None:
        check_emitted(session, question, framework)
    machine = session.machine(question.where)
    node_size = max(map(len, session.group(question.where, question.gpus).by_host().values()))
    known = tuple(sorted(session.calibrations.items()))
    space = Space(question, global_batch, len(question.gpus), node_size, fixed, each, recomputed, known)
    topology = load_topology(question.where.topology, n_nodes=question.where.nodes, fabric=question.where.fabric)
    of = fingerprint("own errors", repr(space), repr(topology), repr(session.network(question)))
    with ExitStack() as stack:
        kept = kept_in(wanted["resume"], of, "search", stack)
        runner = runner_of(processes, wanted["dask"], stack)
        progress = stack.enter_context(Progress(0, "searching", quiet=written.quiet))

        def advance(total: int, done: str) -> None:
            progress.total = total
            progress.advance(done)

        found = find_best(space, session, shown, runner, kept, advance)
    asked = [space.asked(entry.candidate) for entry in found.ranking]
    commands = [row_command(written, entry.candidate) for entry in found.ranking]
    launches = [] if framework is None else [emitted_or_why(session, each, framework) for each in asked]

    def lines(style: Style) -> list[str]:
        shown = best_lines(space, machine.name, session.network(question), found, style)
        others = " (--json has the commands of the others)" * (len(commands) > 1)
        shown += ["", *next_lines(f"run the fastest{others}", style, commands[0]), "", *_counts(found, style)]
        return shown + (launch_rows(asked, launches) if launches else [])

    def document() -> dict[str, Any]:
        data = best_document(space, machine.name, found)
        for row, command in zip(data["ranking"], commands, strict=True):
            row["command"] = command
        for row, launch in zip(data["ranking"], launches, strict=False):
            row["launch"] = emission_document(launch, framework)
        return data

    return Answers(document=document, lines=lines)


def best_lines(space: Space, machine: str, network: Network, best: Ranking, style: Style) -> list[str]:
    """Return the layouts in order with what each loses time to, and the infeasible ones."""
    options = space.question.options
    named = "fp32, convolutions in TF32 if the GPU has it" if options.precision == "torch" else options.precision
    title = f"{machine}, {space.device_count} GPUs: {MODE_WORDS[options.mode]} of {network.title}, "
    title += f"{space.global_batch:,} {network.sample}, {named}, {options.optimizer}"
    ways = [entry.candidate for entry in best.ranking]
    unsure = [entry for entry in best.ranking if entry.fits_by_band is False]  # fits, but not by its band
    recompute = [way.recompute for way in ways]
    head, _ = memory_head({entry.available_bytes for entry in best.ranking[:1]})
    columns = [
        Column("layout", [way.layout.words for way in ways], right=False),
        Column("micro-batch", [f"{way.micro_batch} x {way.micro_batches}" for way in ways], spare=2),
        Column("recompute", recompute, right=False) if set(recompute) != {"none"} else None,
        Column("step", duration_column([entry.step_time_s for entry in best.ranking])),
        Column(BAND_HEAD, [band_words(entry.band) for entry in best.ranking], spare=1),
        Column(f"{network.sample}/s", [rate_words(space.global_batch / e.step_time_s) for e in best.ranking], spare=3),
        *rate_columns([entry.rates for entry in best.ranking]),
        Column(head, [format_size(e.memory_bytes, 3) + " *" * (e in unsure) for e in best.ranking]),
        Column("largest losses", [loss_words(entry.shares_s, 1) for entry in best.ranking], right=False),
    ]
    outside = [text for entry in best.ranking for text in entry.outside]
    lines = head_lines(title, style, outside=outside)
    for said in _best_verdict(best):
        lines += style.wrap(said, "bold", hang=2)
    lines += ["", *table_lines(columns, style)]
    return [*lines, *(style.wrap(f"* {UNSURE}", "dim", hang=2) if unsure else [])]


def _counts(best: Ranking, style: Style) -> list[str]:
    count = f"{best.feasible_count:,} layouts fit; the best {best.simulated_count} were simulated"
    lines = style.wrap(f"{count}, the others estimated from the costs of their parts", hang=2)
    reasons = sorted(best.infeasible.items(), key=lambda i: (-i[1], i[0]))
    why = ", ".join(f"{n:,} ({reason})" for reason, n in reasons)
    return lines + (style.wrap(f"not feasible: {why}", "dim", hang=2) if why else [])


def _best_verdict(best: Ranking) -> list[str]:
    if not best.ranking:
        return []
    first, *others = best.ranking
    name = first.candidate.layout.words
    ratios = {
        each.candidate.layout.words: ratio_of(each.step_time_s, first.step_time_s, (each.width, first.width))
        for each in others
    }
    alike = [way for way, ratio in ratios.items() if not ratio.is_clear]
    took = f"{format_duration(first.step_time_s)} ({BAND_HEAD} {band_words(first.band)})"
    said = f"{name} is {'first' if alike else 'fastest'} of those that fit, {took}"
    if alike:
        said += f"; the next {len(alike)} are" if len(alike) > 1 else "; the next is"
        said += f" equal within {ratios[alike[-1]].unsure_words}"
    elif others:
        ratio = next(iter(ratios.values()))
        said += f", {times_words(ratio.value)} times as fast as the next{ratio.band}"
    safe = [each for each in others if not each.is_tight and each.step_time_s <= _SAFE * first.step_time_s]
    for other in safe[: first.is_tight]:
        needs, has, less = map(format_size, (first.memory_bytes, first.available_bytes, other.memory_bytes), (3, 3, 3))
        more = f"{100 * (other.step_time_s / first.step_time_s - 1.0):.1f} % more time and needs {less}"
        said += f"; it needs {needs} of {has} and may run out of memory: {other.candidate.layout.words} takes {more}"
    computing = first.shares_s.get("computing", 0.0) / (sum(first.shares_s.values()) or 1.0)
    lost = loss_words(first.shares_s)
    spent = f"{100 * computing:.0f} % of its step is compute"
    return [said, f"{spent}; the rest: {lost}" if lost != "-" else f"{spent}: bound by compute"]


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
