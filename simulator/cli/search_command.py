"""``simulate best``: the fastest layouts of a step that fit in memory, on one machine or on several."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from simulator.api.session import Session
from simulator.cli.launch_line import check_emitted, emission_document, emitted_or_why, launch_rows, row_command
from simulator.cli.options import parse_choice, parse_count, read_all, refuse, wants_best
from simulator.cli.output import Answers, Asked
from simulator.cli.processes import fingerprint, kept_in, process_count, runner_of
from simulator.cli.step_command import rate_columns
from simulator.cli.step_questions import ask_steps
from simulator.cli.step_text import memory_head
from simulator.cli.table import Column, head_lines, next_lines, table_lines
from simulator.cli.written import CommandOptions, shell_command, written_of
from simulator.console import Progress, Style
from simulator.errors import InputError, mention, one_line, refused
from simulator.launch.emit.emitted import EMITTERS, Emitter
from simulator.launch.emit.parts import Emission
from simulator.questions.checks import From
from simulator.questions.layout import REPLICAS
from simulator.records import replace
from simulator.results import SCHEMA_VERSION, duration_column, rate_words
from simulator.results.comparison import ratio_of, times_words
from simulator.results.confidence import BAND_HEAD, band_words
from simulator.results.step_confidence import UNSURE
from simulator.results.step_view import MODE_WORDS
from simulator.search.run import RankedLayout, Ranking, best_document, find_best, loss_words
from simulator.search.space import SEARCHED, Candidate, Space, parse_fixed
from simulator.topology.load import load_topology
from simulator.topology.schema import Price
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
    if dict(fixed).get("sync_bn"):
        raise refused("layout", "best does not try sync_bn; simulate answers it", one_line(wanted["parallel"], 60))
    divides = any(isinstance(degree, int) and degree > (axis != "zero") for axis, degree in fixed if axis != "dp")
    if written.gradient_as_bucket_view and divides:
        said = mention("layout", one_line(wanted["parallel"], 60))
        raise refused("bucket_views", f"is for replicas, and {said} has none")
    session, questions = ask_steps(written.but(global_batch=None, batch="1", parallel=sharded))
    spaces = []
    for question in questions:
        if question.gpus is None or len(question.gpus) < 2:
            more = f"add {mention('nodes')}, or name another"
            raise InputError(f"best divides a step over several GPUs, and one takes part; {more}")
        if framework is not None:
            check_emitted(session, question, framework)
        node_size = max(map(len, session.group(question.where, question.gpus).by_host().values()))
        known = tuple(sorted(session.calibrations.items()))
        asked, count = replace(question, layout=REPLICAS), len(question.gpus)
        spaces.append(Space(asked, global_batch, count, node_size, fixed, each, recomputed, known))
    found, unfit = _searched(session, spaces, shown, processes, written, wanted)
    one_of = written.but(topology=None) if len(spaces) > 1 else written
    searched = [_commanded(session, space, ranking, one_of, framework) for space, ranking in found]
    if len(spaces) > 1:
        searched.sort(key=lambda each: each.found.ranking[0].step_time_s)
        return Answers(
            document=lambda: {
                "schema_version": SCHEMA_VERSION,
                "searches": [each.document() for each in searched],
                "unfit": unfit,
            },
            lines=partial(_machines_lines, searched, unfit),
        )
    return Answers(document=searched[0].document, lines=searched[0].lines)


def _searched(
    session: Session, spaces: Sequence[Space], shown: int, jobs: int, written: CommandOptions, wanted: Mapping[str, Any]
) -> tuple[list[tuple[Space, Ranking]], dict[str, str]]:
    """Return the ranking of each of *spaces*, and why those machines have none; raises InputError if none has one."""
    where = [space.question.where for space in spaces]
    read = [load_topology(each.topology, n_nodes=each.nodes, fabric=each.fabric) for each in where]
    networks = [session.network(space.question) for space in spaces]
    found, unfit = [], {}
    with ExitStack() as stack:
        kept = kept_in(wanted["resume"], fingerprint("own errors", repr((spaces, read, networks))), "search", stack)
        runner = runner_of(jobs, wanted["dask"], stack)
        progress = stack.enter_context(Progress(0, "searching", quiet=written.quiet))

        def advance(total: int, done: str) -> None:
            progress.total = total * len(spaces)
            progress.advance(done)

        for number, space in enumerate(spaces):
            try:
                own = kept.of(f"{number} " * (len(spaces) > 1))
                found.append((space, find_best(space, session, shown, runner, own, advance)))
            except InputError as error:
                if len(spaces) == 1:
                    raise
                unfit[session.machine(space.question.where).name] = error.spelt("command")
    if not found:
        raise InputError("; ".join(f"{name}: {why}" for name, why in unfit.items()))
    return found, unfit


class Searched(NamedTuple):
    """The layouts ``found`` on one machine, the ``commands`` that simulate them, and their ``launches``, if asked."""

    machine: str
    network: Network
    space: Space
    found: Ranking
    commands: list[str]
    launches: list[Emission]
    framework: Emitter | None

    def lines(self, style: Style) -> list[str]:
        """Return the answer as text."""
        shown = best_lines(self.space, self.machine, self.network, self.found, style)
        others = " (--json has the commands of the others)" * (len(self.commands) > 1)
        shown += ["", *next_lines(f"run the fastest{others}", style, self.commands[0]), "", *_counts(self.found, style)]
        asked = [self.space.asked(entry.candidate) for entry in self.found.ranking]
        return shown + (launch_rows(asked, self.launches) if self.launches else [])

    def document(self) -> dict[str, Any]:
        """Return the answer as data."""
        data = best_document(self.space, self.machine, self.found)
        for row, command in zip(data["ranking"], self.commands, strict=True):
            row["command"] = command
        for row, launch in zip(data["ranking"], self.launches, strict=False):
            row["launch"] = emission_document(launch, self.framework)
        return data


def _commanded(
    session: Session, space: Space, found: Ranking, written: CommandOptions, framework: Emitter | None
) -> Searched:
    where = space.question.where
    own = written if written.topology else written.but(topology=where.topology)
    ways = [entry.candidate for entry in found.ranking]
    launches = [] if framework is None else [emitted_or_why(session, space.asked(way), framework) for way in ways]
    commands = [row_command(own, way) for way in ways]
    machine, network = session.machine(where).name, session.network(space.question)
    return Searched(machine, network, space, found, commands, launches, framework)


def _machines_lines(searched: Sequence[Searched], unfit: Mapping[str, str], style: Style) -> list[str]:
    """Return the best layout on each machine, fastest first, and which is cheapest."""
    first = searched[0]
    best = [each.found.ranking[0] for each in searched]
    title = f"the best layout on each machine: {_asked_words(first.space, first.network)}"
    lines = head_lines(title, style, outside=[text for entry in best for text in entry.outside])
    fastest = best[0]
    said = f"{first.machine} is fastest, with {_way_words(fastest.candidate)}: {format_duration(fastest.step_time_s)}"
    said += f" ({BAND_HEAD} {band_words(fastest.band)})"
    for other, entry in list(zip(searched, best, strict=True))[1:2]:
        ratio = ratio_of(entry.step_time_s, fastest.step_time_s, (entry.width_apart, fastest.width_apart))
        said += f", {times_words(ratio.value)} times as fast as {other.machine}{ratio.band}"
        said += f", which is equal within {ratio.unsure_words}" if not ratio.is_clear else ""
    prices = [(price, each.machine) for each, entry in zip(searched, best, strict=True) if (price := _price(entry))]
    if len({price.currency for price, _ in prices}) > 1:
        said += "; prices in unlike currencies are not compared"
    elif len(prices) > 1:
        least, cheapest = min(prices, key=lambda each: each[0].amount)
        said += f"; {cheapest} is cheapest, {least.words()} for a million tokens"
    elif len(prices) < len(best):
        said += "; a machine's file gives its price (price_per_hour), by which the cheapest is told"
    lines += [*style.wrap(said, "bold", hang=2), ""]
    lines += table_lines(_columns(best, first.space, first.network, [each.machine for each in searched]), style)
    for name, why in unfit.items():
        lines += style.wrap(f"{name}: {why}", "dim", hang=2)
    lines += ["", *next_lines("run the fastest; best ranks the layouts of one machine", style, first.commands[0])]
    for each in searched:
        lines += ["", *style.wrap(f"{each.machine}: {_count_words(each.found)}", hang=2)]
        asked = [each.space.asked(each.found.ranking[0].candidate)]
        lines += launch_rows(asked, each.launches[:1]) if each.launches else []
    return lines


def best_lines(space: Space, machine: str, network: Network, best: Ranking, style: Style) -> list[str]:
    """Return the layouts in order with what each loses time to, and the infeasible ones."""
    title = f"{machine}, {space.device_count} GPUs: {_asked_words(space, network)}"
    unsure = any(entry.fits_by_band is False for entry in best.ranking)
    columns = _columns(best.ranking, space, network, ())
    outside = [text for entry in best.ranking for text in entry.outside]
    lines = head_lines(title, style, outside=outside)
    for said in _best_verdict(best):
        lines += style.wrap(said, "bold", hang=2)
    lines += ["", *table_lines(columns, style)]
    lines += style.wrap(f"* {UNSURE}", "dim", hang=2) if unsure else []
    shared = next((entry.shared for entry in best.ranking if entry.shared), None)
    return [*lines, *(style.wrap(f"{BAND_HEAD}: {shared.words}", "dim", hang=2) if shared else [])]


def _asked_words(space: Space, network: Network) -> str:
    options = space.question.options
    named = "fp32, convolutions in TF32 if the GPU has it" if options.precision == "torch" else options.precision
    work = f"{MODE_WORDS[options.mode]} of {network.title}, {space.global_batch:,} {network.sample}"
    return f"{work}, {named}, {options.optimizer}"


def _way_words(way: Candidate) -> str:
    again = f" with {way.recompute} recomputation" if way.recompute != "none" else ""
    return f"{way.layout.words}{' by speed' * way.divided}{again}"


def _samples_words(way: Candidate) -> str:
    return "by speed" if way.divided else f"{way.micro_batch} x {way.micro_batches}"


def _price(entry: RankedLayout) -> Price | None:
    return entry.rates.price_per_million_tokens


def _columns(
    entries: Sequence[RankedLayout], space: Space, network: Network, machines: Sequence[str]
) -> list[Column | None]:
    ways = [entry.candidate for entry in entries]
    recompute = [way.recompute for way in ways]
    head, _ = memory_head({entry.available_bytes for entry in entries[:1]}) if not machines else ("memory", None)
    prices = [price.words() if (price := _price(entry)) else "-" for entry in entries]
    memory = [format_size(e.memory_bytes, 3) + " *" * (e.fits_by_band is False) for e in entries]  # * by its band not
    return [
        Column("machine", list(machines), right=False) if machines else None,
        Column("GPUs", [f"{way.layout.model_ranks * (way.layout.dp or 1):,}" for way in ways]) if machines else None,
        Column("layout", [way.layout.words for way in ways], right=False),
        Column("micro-batch", [_samples_words(way) for way in ways], spare=2),
        Column("recompute", recompute, right=False) if set(recompute) != {"none"} else None,
        Column("step", duration_column([entry.step_time_s for entry in entries])),
        Column(BAND_HEAD, [band_words(entry.band) for entry in entries], spare=1),
        Column(f"{network.sample}/s", [rate_words(space.global_batch / e.step_time_s) for e in entries], spare=3),
        *rate_columns([entry.rates for entry in entries]),
        Column("a million tokens", prices) if {*prices} != {"-"} else None,
        Column(head, memory),
        Column("largest losses", [loss_words(entry.shares_s, 1) for entry in entries], right=False, spare=4),
    ]


def _count_words(best: Ranking) -> str:
    count = f"{best.feasible_count:,} layouts fit; the best {best.simulated_count} were simulated"
    count += ", the others estimated from the costs of their parts"
    if best.estimate_errors:
        middle, most = (100 * figure(best.estimate_errors) for figure in (median, max))
        count += f"; the estimates of those simulated were {middle:.1f} % off in the median, {most:.1f} % at most"
    return count


def _counts(best: Ranking, style: Style) -> list[str]:
    lines = style.wrap(_count_words(best), hang=2)
    reasons = sorted(best.infeasible.items(), key=lambda i: (-i[1], i[0]))
    why = ", ".join(f"{n:,} ({reason})" for reason, n in reasons)
    return lines + (style.wrap(f"not feasible: {why}", "dim", hang=2) if why else [])


def _best_verdict(best: Ranking) -> list[str]:
    if not best.ranking:
        return []
    first, *others = best.ranking
    name = _way_words(first.candidate)
    ratios = {
        _way_words(each.candidate): ratio_of(each.step_time_s, first.step_time_s, (each.width, first.width))
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
        said += f"; it needs {needs} of {has} and may run out of memory: {_way_words(other.candidate)} takes {more}"
    computing = first.shares_s.get("computing", 0.0) / (sum(first.shares_s.values()) or 1.0)
    lost = loss_words(first.shares_s)
    spent = f"{100 * computing:.0f} % of its step is compute"
    return [said, f"{spent}; the rest: {lost}" if lost != "-" else f"{spent}: bound by compute"]
