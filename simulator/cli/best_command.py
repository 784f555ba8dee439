"""``simulate best``: find the fastest layouts of a step that fit in memory, and resume from a file (``--resume``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from simulator.cli.launch_line import (
    check_emitted,
    emission_document,
    emitted_or_why,
    launch_rows,
    row_command,
)
from simulator.cli.options import parse_choice, parse_count, read_all, refuse, wants_best
from simulator.cli.output import Answers, Asked
from simulator.cli.processes import fingerprint, kept_in, process_count, runner_of
from simulator.cli.step_command import rate_columns
from simulator.cli.step_questions import ask_steps
from simulator.cli.table import Column, head_lines, next_lines, table_lines
from simulator.cli.written import CommandOptions, shell_command, written_of
from simulator.console.style import Progress, Style
from simulator.errors import InputError, one_line, refused
from simulator.launch.emit.emitted import EMITTERS
from simulator.questions.checks import From
from simulator.questions.layout import REPLICAS
from simulator.records import replace
from simulator.results.columns import duration_column, rate_words
from simulator.results.comparison import Ratio, ratio_of, times_words
from simulator.results.confidence import BAND_HEAD, band_words
from simulator.results.step_confidence import UNSURE
from simulator.results.step_view import MODE_WORDS
from simulator.search.run import RankedLayout, Ranking, best_document, find_best, loss_words
from simulator.search.space import SEARCHED, Space, parse_fixed
from simulator.spelling import mention
from simulator.topology.load import load_topology
from simulator.units import format_capacity, format_duration, format_size
from simulator.workload.network import Network

_COUNT = From(1, 10**7)
_TOP = "10"


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
    group = session.group(question.where, question.gpus)
    space = Space(
        question,
        global_batch,
        len(question.gpus),
        max(map(len, group.by_host().values())),
        fixed,
        each,
        recomputed,
        tuple(sorted(session.calibrations.items())),
    )
    with ExitStack() as stack:
        kept = kept_in(wanted["resume"], _fingerprint(space, session.network(question)), "search", stack)
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
        shown += ["", *_next(commands, style), "", *_counts(found, style)]
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
    columns = [
        Column("layout", [way.layout.words for way in ways], right=False),
        Column("micro-batch", [f"{way.micro_batch} x {way.micro_batches}" for way in ways], spare=2),
        Column("recompute", recompute, right=False) if set(recompute) != {"none"} else None,
        Column("step", duration_column([entry.step_time_s for entry in best.ranking])),
        Column(BAND_HEAD, [band_words(entry.band) for entry in best.ranking], spare=1),
        Column(f"{network.sample}/s", [rate_words(space.global_batch / e.step_time_s) for e in best.ranking], spare=3),
        *rate_columns([entry.rates for entry in best.ranking]),
        Column(_memory_head(best), [format_size(e.memory_bytes, 3) + " *" * (e in unsure) for e in best.ranking]),
        Column("largest losses", [loss_words(entry.shares_s, 1) for entry in best.ranking], right=False),
    ]
    outside = [text for entry in best.ranking for text in entry.outside]
    lines = head_lines(title, style, outside=outside)
    for said in _verdict(best):
        lines += style.wrap(said, "bold", hang=2)
    lines += ["", *table_lines(columns, style)]
    return [*lines, *(style.wrap(f"* {UNSURE}", "dim", hang=2) if unsure else [])]


def _counts(best: Ranking, style: Style) -> list[str]:
    count = f"{best.feasible_count:,} layouts fit; the best {best.simulated_count} were simulated"
    lines = style.wrap(f"{count}, the others estimated from the costs of their parts", hang=2)
    reasons = sorted(best.infeasible.items(), key=lambda i: (-i[1], i[0]))
    why = ", ".join(f"{n:,} ({reason})" for reason, n in reasons)
    return lines + (style.wrap(f"not feasible: {why}", "dim", hang=2) if why else [])


def _verdict(best: Ranking) -> list[str]:
    """Return the fastest layout, which others are as good, what bounds it and what it loses time to; empty if none."""
    if not best.ranking:
        return []
    first, *others = best.ranking
    name = first.candidate.layout.words
    ratios = {each.candidate.layout.words: _ratio(each, first) for each in others}
    alike = [way for way, ratio in ratios.items() if not ratio.is_clear]
    took = f"{format_duration(first.step_time_s)} ({BAND_HEAD} {band_words(first.band)})"
    said = f"{name} is {'first' if alike else 'fastest'}, {took}"
    if alike:
        said += f"; the next {len(alike)} are" if len(alike) > 1 else "; the next is"
        said += f" equal within the model's error of {100 * ratios[alike[-1]].unsure:.0f} %"
    elif others:
        ratio = next(iter(ratios.values()))
        said += f", {times_words(ratio.value)} times as fast as the next{f' ({ratio.band})' if ratio.band else ''}"
    computing = first.shares_s.get("computing", 0.0) / (sum(first.shares_s.values()) or 1.0)
    lost = loss_words(first.shares_s)
    spent = f"{100 * computing:.0f} % of its step is compute"
    return [said, f"{spent}; the rest: {lost}" if lost != "-" else f"{spent}: bound by compute"]


def _memory_head(best: Ranking) -> str:
    return f"memory of {format_capacity(best.ranking[0].available_bytes)}" if best.ranking else "memory"


def _ratio(other: RankedLayout, first: RankedLayout) -> Ratio:
    return ratio_of(other.step_time_s, first.step_time_s, (other.ways_error, first.ways_error))


def _next(commands: Sequence[str], style: Style) -> list[str]:
    lines = next_lines("run the fastest", style, commands[0])
    if commands[1:]:
        lines += [
            *style.wrap("or another of these:"),
            *(line for each in commands[1:] for line in style.wrap_command(each)),
        ]
    return lines


def _fingerprint(space: Space, network: Network) -> str:
    """Return a hash of a search: question, contents of machine and network, constants and program version."""
    where = space.question.where
    topology = load_topology(where.topology, n_nodes=where.nodes, fabric=where.fabric)
    return fingerprint("errors", repr(space), repr(topology), repr(network))
