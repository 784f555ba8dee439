"""``simulate`` for an exchange: a collective with each strategy, on each machine, at each size, and its text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from simulator.api.session import Session
from simulator.cli.machines import faster_gpus, find_machines, on_fastest
from simulator.cli.options import fields_of, parse_gpus, parse_strategies, read_all, refuse
from simulator.cli.output import Answers, warn
from simulator.cli.table import Column, head_lines, loss_lines, next_lines, table_lines, trust_lines, widths_of
from simulator.cli.written import CommandOptions
from simulator.collectives.communicator import Unsuitable
from simulator.collectives.registry import unlisted_strategies
from simulator.console import Progress, Style, later
from simulator.errors import InputError, SimulationError, mention, one_line, spelt
from simulator.questions.checks import WITHOUT_NCCL, in_ways, refuse_all
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Software
from simulator.records import lists_by_key, replace
from simulator.results import bandwidth_column, duration_column, percent, shortened_ring, size_column
from simulator.results.bottleneck import LinkUse
from simulator.results.confidence import BAND_HEAD, missed_words
from simulator.results.result import BOUNDS, Result, bare_words, best_of, by_time, grouped, name_among, results_document
from simulator.units import format_bandwidth, format_duration, format_size
from simulator.workload.parse import Payload, parse_workload

_UNEVEN = 4.0  # times as far to the lower end of a band as to the upper one
_NEAR = 0.9  # of the share of a link that NCCL reaches
_SHOWN_LINKS = 8
_SHOWN_RINGS = 8


def exchange_questions(written: CommandOptions, session: Session) -> tuple[list[CollectiveQuestion], list[str]]:
    """Return the questions about each machine, still without a size, and the name that distinguishes each strategy."""
    machines, strategies, said, software = read_all(
        lambda: find_machines(written, session),
        lambda: parse_strategies(written.strategy or "all"),
        lambda: fields_of(written, CollectiveQuestion),
        lambda: Software(**fields_of(written, Software)),
    )
    if "nccl" not in strategies:
        refuse({mention("nccl"): written.nccl is not None}, WITHOUT_NCCL)
    values = {**said, "size_bytes": 0.0, "software": software}
    questions, names = [], []
    for where in machines:
        machine = session.machine(where)
        if not machine.gpus:
            step = f"{mention('batch', 32)} runs a step on its CPU"
            raise InputError(f"{machine.name} has no GPU, so nothing is exchanged; {step}")
        gpus = parse_gpus(written.gpus, machine)
        values |= {"where": where, "gpus": None if written.gpus is None else tuple(gpus)}
        found = in_ways(CollectiveQuestion, values, [{"strategy": name} for name in strategies])
        refuse_all(found[0].rank_faults(len(gpus)))
        questions += found
        names += [f"{name} on {machine.name}" if len(machines) > 1 else name for name in strategies]
    return questions, names


def answer_exchanges(written: CommandOptions, session: Session) -> Answers:
    """Return the results for each size; raises InputError if no strategy fits."""

    def exchanged() -> Payload:
        source = session.networks.get(written.what)
        if source is None:
            return parse_workload(written.what)
        return Payload(written.what, (), gradients=source.build(0).trained_count)

    payload, (questions, names) = read_all(exchanged, lambda: exchange_questions(written, session))
    payload = payload.in_type(questions[0].dtype)
    apart = unlisted_strategies() if "all" in (written.strategy or "all").split(",") else []
    code = f"--strategy all: without {', '.join(apart)}; a file may run such code only with --trust-code"
    warn(written, [*payload.notes, *([code] if apart else [])])
    if written.trace is not None and payload.is_sweep:
        raise InputError(f"{mention('trace')} shows one size; {one_line(payload.text, 60)} has {len(payload.sizes)}")
    largest = float(max(payload.sizes))
    questions = on_fastest(written, session, [replace(question, size_bytes=largest) for question in questions])
    by_size: list[tuple[Result, ...]] = []
    unfit: dict[str, str] = {}
    fitting = list(zip(questions, names, strict=True))
    with Progress(len(payload.sizes) * len(fitting), "simulating", quiet=written.quiet) as progress:
        for size in payload.sizes:
            found: list[Result] = []
            for question, name in fitting:
                try:
                    asked = replace(question, size_bytes=float(size))
                    result = session.collective(asked, fold=written.fold)
                    found.append(replace(result, changed=session.changed(asked, result)))
                except Unsuitable as reason:
                    unfit[name] = reason.why
                except SimulationError as error:
                    machine = session.machine(question.where).name
                    raise SimulationError(f"{question.strategy} on {machine}: {error}") from error
                progress.advance(name)
            fitting = [(question, name) for question, name in fitting if name not in unfit]
            if len(payload.sizes) == len(questions) == 1 and questions[0].strategy == "nccl":
                from simulator.api.exchanges import with_faster_algorithm

                found = [with_faster_algorithm(session, result) for result in found]
            by_size.append(tuple(by_time(found)))
    one_machine = len({question.where for question in questions}) == 1
    if not fitting:
        where = f" {session.machine(questions[0].where).name}" if one_machine else ""
        refuse_all(f"{mention('strategy', name)} does not fit{where}: {why}" for name, why in unfit.items())
    unfit = {name: spelt(why, "command") for name, why in unfit.items()}
    first, best = by_size[0], best_of(by_size[-1])
    which = f" of {name_among(best, by_size[-1])}" if len(first) > 1 else ""
    faster = None
    if written.gpus is not None and one_machine:
        asked = next(question for question in questions if question.strategy == best.strategy)
        asked = replace(asked, size_bytes=best.size_bytes, gpus=best.gpus)
        faster = faster_gpus(written, session, best.sync_time_s, asked)
    results = list(chain(*by_size))
    of_all = partial(results_document, first[0].timeline.machine.name, payload.text, results, unfit)

    def lines(style: Style) -> list[str]:
        if payload.is_sweep:
            return _sweep(by_size, payload, questions[0], style)
        shown = [*_title(first, payload, style), *_reached(first, style), *_comparison(first, style)]
        shown += faster.lines(best.sync_time_s, style) if faster else []
        shown += loss_lines(best.changed, style)
        shown += _detail(first[0], style) if len(first) == 1 else []
        return [*shown, "", *_unfit_lines(unfit, style)] if unfit else shown

    return Answers(
        results=results,
        best=best,
        notes=[*payload.notes, *chain(*(session.machine(question.where).notes for question in questions))],
        document=lambda: of_all() | (faster.document("sync_time_s") if faster else {}),
        lines=lines,
        remarks=partial(_remarks, first, payload, unfit),
        trace=lambda: (later("simulator.results.trace:chrome_trace")(best), which),
        draw=later("reports.figure:draw", by_size),
    )


def _remarks(results: Sequence[Result], payload: Payload, unfit: Mapping[str, str], style: Style) -> list[str]:
    if payload.is_sweep:
        return _unfit_lines(unfit, style)
    network = "resnet50" if payload.text.startswith(("bytes:", "sweep:")) else payload.text
    step = f"{mention('workload', network)} {mention('batch', 32)}"
    return [] if results[0].n_ranks > 1 else [f"one GPU exchanges nothing; {step} simulates a step on it"]


def _title(results: Sequence[Result], payload: Payload, style: Style) -> list[str]:
    first, fastest = results[0], best_of(results)
    machines = dict.fromkeys(result.machine for result in results)
    what = payload.text if not payload.description else f"{payload.text}, {payload.description}"
    text = f"{first.collective} of {format_size(first.size_bytes)}"
    if len(machines) == 1:
        gpus = f"{first.n_ranks} GPU{'s' * (first.n_ranks != 1)}"
        if first.gpus != tuple(range(len(first.timeline.machine.gpus))):
            gpus += f" ({shortened_ring(first.gpus)})"
        text = f"{first.machine}: {text} over {gpus}"
    else:
        text += f", compared on {len(machines)} machines"
    text += "" if what.startswith("bytes:") else f" ({what})"
    of = fastest.strategy if len(results) > 1 else ""
    return head_lines(text, style, [result.confidence for result in results], fastest.changed, of)


def _comparison(results: Sequence[Result], style: Style) -> list[str]:
    ordered, marks = grouped(results)
    first_s = ordered[0].sync_time_s
    many = len(results) > 1 and first_s > 0  # a single GPU exchanges nothing
    bandwidths = bandwidth_column([*(r.algbw_Bps for r in ordered), *(r.busbw_Bps for r in ordered)])
    named = len({r.machine for r in ordered}) > 1
    prices = [r.price_per_million for r in ordered]
    priced = any(r.price_per_hour for r in ordered)
    columns = [
        Column("strategy", [r.strategy for r in ordered], right=False),
        Column("machine", [r.machine for r in ordered], right=False) if named else None,
        Column("GPUs", [str(r.n_ranks) for r in ordered], spare=2) if named else None,
        Column("time", duration_column([r.sync_time_s for r in ordered])),
        Column("against first", [f"{r.sync_time_s / first_s:.3f} x" for r in ordered], spare=6) if many else None,
        Column(BAND_HEAD, [r.confidence.words for r in ordered], spare=1) if any(r.band for r in ordered) else None,
        Column("algbw", bandwidths[: len(ordered)], spare=4),
        Column("busbw", bandwidths[len(ordered) :]),
        Column("bottleneck", [r.bottleneck.name if r.bottleneck else "none" for r in ordered], right=False, spare=3),
        Column("use", [percent(r.bottleneck.utilisation) if r.bottleneck else "-" for r in ordered], spare=5),
        Column("per million", ["-" if each is None else each.words() for each in prices]) if priced else None,
    ]
    best = ("bold", "green") if many and not ordered[0].is_bound else ()
    lines = table_lines(columns, style, marks if many else {}, best)
    said = []
    if many:
        from simulator.results.reason import verdict

        said = style.wrap(verdict(ordered), "bold", hang=2)
    if many and named:
        from simulator.cli.step_command import price_lines

        alike = [r for r in ordered if r.is_bound == ordered[0].is_bound]
        lines += price_lines(alike, "exchanges", "the cheapest machine", style)
    trust = trust_lines(ordered[0].confidence, style, f"time of {ordered[0].strategy}" if many else "time")
    return [*said, "", *lines, *(["", *trust, *_measured(ordered[0], style)] if trust else [])]


def _measured(result: Result, style: Style) -> list[str]:
    command, _, more = result.confidence.narrowed.partition(" (")
    slowed = result.asked is not None and result.asked.where.slow_links
    kinds = {link.kind for link in result.timeline.machine.links}
    check = " and nvidia-smi nvlink -s (are all links up?)" * bool(slowed and "nvlink" in kinds)
    words = f"measure it on the machine with nccl-tests{check}{f' ({more}' if more else ''}"
    return next_lines(words, style, command) if command else []


def _reached(results: Sequence[Result], style: Style) -> list[str]:
    result, *others = results
    if others or not result.sync_time_s or result.bottleneck is None:
        return []
    return style.wrap(f"{_bus_words(result)}, limited by {_limit_words(result, result.bottleneck)}", "bold", hang=2)


def _bus_words(result: Result) -> str:
    """Return the bus bandwidth of *result* with its band, near whose upper end it may lie, and the one per byte."""
    bus, algorithm = format_bandwidth(result.busbw_Bps), f"algbw {format_bandwidth(result.algbw_Bps)}"
    if (band := result.band) is None:
        return f"busbw {bus} ({algorithm})"
    low, high = rates = band.of_rate(result.sync_time_s, result.busbw_Bps)
    less = ", perhaps far less" * (_UNEVEN * (high - result.busbw_Bps) < result.busbw_Bps - low)
    most = missed_words("exchanges", result.sync_time_s, band) or less
    return f"{bus} busbw{most} ({BAND_HEAD} {' to '.join(bandwidth_column(rates))}; {algorithm})"


def _limit_words(result: Result, use: LinkUse) -> str:
    """Return the kind of the link that limits *result* and its use, and the next kind if that is nearly as busy."""
    reached, algorithm = (str(result.facts.get(name, "")) for name in ("bound_share", "algorithm"))
    by = f" by {algorithm.replace('_', ' ').replace('nvls', 'NVLS')}" * bool(algorithm)
    near = float(reached or 0.0)
    most = f", about the most that NCCL reaches{by}" * (near > 0 and use.utilisation > _NEAR * near)
    adds = " (its switch does the sums, so busbw exceeds what a link carries)" * algorithm.startswith("nvls")
    carries = f"{result.limiting_kind} at {percent(use.utilisation)} of its rate{most}{adds}"
    busy = {result.kind_of(each): each.utilisation for each in sorted(result.links, key=lambda each: each.utilisation)}
    close = [kind for kind in busy if kind != result.limiting_kind and busy[kind] > _NEAR * use.utilisation]
    return "; ".join([carries, *(f"{kind} is close behind, at {percent(busy[kind])}" for kind in close[-1:])])


def _sweep(
    by_size: Sequence[Sequence[Result]], payload: Payload, question: CollectiveQuestion, style: Style
) -> list[str]:
    from simulator.results.sweep import SWEEP_WIDTH, sweep_table, winners

    if style.width is not None and style.width < SWEEP_WIDTH:
        return [*_title(by_size[-1], payload, style), *_sweep_lines(by_size, style)]
    of_ways = lists_by_key(((result.machine, result.strategy), result) for result in chain(*by_size))
    tables = [sweep_table(results, question) for results in of_ways.values()]
    said = [winners(by_size), bare_words(by_size[-1])] if len(of_ways) > 1 else []
    within = Style(None if style.width is None else style.width - 2)
    for each in filter(None, [*said, _sweep_trust(by_size)]):
        tables.append("".join(f"# {line}\n" for line in within.wrap(each)))
    return "\n".join(tables).splitlines()


def _sweep_lines(by_size: Sequence[Sequence[Result]], style: Style) -> list[str]:
    """Return the results by size for a narrow screen, on which the table continues below."""
    from simulator.results.sweep import winners

    every = sorted((r for found in (by_size[-1], *by_size) for r in found), key=lambda result: result.is_bound)
    ways = list(dict.fromkeys((r.strategy, r.machine) for r in every))
    of = [{(r.strategy, r.machine): r for r in found} for found in by_size]
    sizes = Column("size", [format_size(found[0].size_bytes, 3) for found in by_size])
    if len(ways) == 1:
        one = [found[ways[0]] for found in of]
        columns = [
            sizes,
            Column("time", [format_duration(r.sync_time_s) for r in one]),
            Column("algbw", bandwidth_column([r.algbw_Bps for r in one]), spare=1),
            Column("busbw", bandwidth_column([r.busbw_Bps for r in one])),
        ]
        lines = [*_sweep_verdict(one, style), *table_lines(columns, style)]
    else:
        named = len({machine for _, machine in ways}) > 1
        above = len({(r.strategy, r.machine) for r in every if not r.is_bound})
        times = [[format_duration(f[way].sync_time_s, 3) if way in f else "-" for f in of] for way in ways]
        columns = [Column(" on ".join(way[: 1 + named]), time) for way, time in zip(ways, times, strict=True)]
        lines = []
        for some in (columns[:above], columns[above:]):
            lines += ["", *style.wrap(BOUNDS, "dim")] if lines and some else []
            at = 0
            while at < len(some):  # those for which there is no room form further tables below
                fit = (n for n in range(len(some), at + 1, -1) if widths_of([sizes, *some[at:n]], style.width))
                end = next(fit, at + 1)
                lines += [*([""] if at else []), *table_lines([sizes, *some[at:end]], style)]
                at = end
    lines += ["", *style.wrap(winners(by_size))] if len(ways) > 1 or by_size[0][0].is_bound else []
    if bare := bare_words(by_size[-1]) if len(ways) > 1 else "":
        lines += style.wrap(bare, "dim", hang=2)
    if trust := _sweep_trust(by_size):
        lines += ["", *style.wrap(trust, "dim", hang=2), *_measured(best_of(by_size[-1]), style)]
    return lines


def _sweep_verdict(one: Sequence[Result], style: Style) -> list[str]:
    first, last = one[0], one[-1]
    if not last.sync_time_s or first.bottleneck is None or last.bottleneck is None:
        return []
    said = f"{format_size(last.size_bytes)}: {_bus_words(last)}, limited by {_limit_words(last, last.bottleneck)}"
    if first.bottleneck.utilisation < last.bottleneck.utilisation / 2:
        said += f"; {format_size(first.size_bytes)}: {format_duration(first.sync_time_s)}, limited by latency"
    return [*style.wrap(said, "bold", hang=2), ""]


def _sweep_trust(by_size: Sequence[Sequence[Result]]) -> str:
    best = best_of(by_size[-1])
    said = best.confidence.brief
    return f"trust: time of {format_size(best.size_bytes)}{said.removeprefix('band')}" if said else ""


def _unfit_lines(unfit: Mapping[str, str], style: Style) -> list[str]:
    told = (f"{name} does not fit: {reason}" for name, reason in unfit.items())
    return [line for text in told for line in style.wrap(text, "dim", hang=2)]


def _detail(result: Result, style: Style) -> list[str]:
    alike = Counter(result.rings)
    channels = int(str(result.facts.get("channels", 0))) // (len(result.rings) or 1)
    each = f", {channels} channels each" * (channels > 1)
    lines = ["", style.mark(f"rings ({len(result.rings)}, by GPU{each})", "bold")] if alike else []
    for ring, count in list(alike.items())[:_SHOWN_RINGS]:
        lines += style.wrap(f"  {shortened_ring(ring)}{f'  x {count}' if count > 1 else ''}", hang=4)
    if len(alike) > _SHOWN_RINGS:
        lines.append(f"  and {len(alike) - _SHOWN_RINGS} more (--json lists all)")
    lines += _links(result, style)
    lines += ["", style.mark("notes", "bold")] if result.notes else []
    return [*lines, *(line for note in result.notes for line in style.wrap(f"  {note}", hang=4))]


def _links(result: Result, style: Style) -> list[str]:
    used = (use for use in result.links if use.bytes > 0)
    alike = lists_by_key(((round(use.utilisation, 6), round(use.bytes, 3)), use) for use in used)
    if not alike:
        return []
    kinds = sorted(alike.values(), key=lambda uses: -round(uses[0].utilisation, 6))
    shown = kinds[:_SHOWN_LINKS]
    names = [f"{u[0].name} x {len(u)}" if len(u) > 1 else u[0].name for u in shown]
    columns = [
        Column("links by use", names, right=False),
        Column("bytes each", size_column([u[0].bytes for u in shown]), spare=1),
        Column("use", [percent(u[0].utilisation) for u in shown]),
    ]
    hidden = sum(len(uses) for uses in kinds[_SHOWN_LINKS:])
    more = f"and {hidden} more (--json lists all)" if hidden else ""
    return ["", *table_lines(columns, style, more=more)]
