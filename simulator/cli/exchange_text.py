"""Results as text: aligned on a wide screen or in a pipe, stacked on a narrow screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.cli.confidence_text import outside_lines
from simulator.cli.ranking import exchange_ranking_lines, price_words
from simulator.cli.table import table_lines
from simulator.console.style import Style
from simulator.results.columns import (
    bandwidth_column,
    duration_column,
    percent,
    shortened_ring,
    size_column,
)
from simulator.results.confidence import BAND_HEAD
from simulator.results.reason import BOUNDS, best_of, verdict
from simulator.results.result import LinkUse, Result
from simulator.results.sweep import winners
from simulator.units import format_duration, format_size
from simulator.workload.parse import Payload

__all__ = ["comparison", "detail", "sweep_lines", "sweep_trust", "title", "unfit_lines"]

_SHOWN_LINKS = 8
_SPARE = ("against first", "use", "algbw", "bottleneck", "GPUs")  # columns that a narrow screen drops, in this order
_SHOWN_RINGS = 8


def title(results: Sequence[Result], payload: Payload, n_gpus: Sequence[int], style: Style) -> list[str]:
    """Return the title lines; *n_gpus* holds the number of GPUs of each machine."""
    first = results[0]
    machines = dict.fromkeys(result.machine for result in results)
    what = payload.text if not payload.description else f"{payload.text}, {payload.description}"
    text = f"{first.collective} of {format_size(first.size_bytes)}"
    if len(machines) == 1:
        gpus = f"{first.n_ranks} GPUs" if first.n_ranks != 1 else "1 GPU"
        if first.gpus != tuple(range(n_gpus[0])):
            gpus += f" ({shortened_ring(first.gpus)})"
        text = f"{first.machine}: {text} over {gpus}"
    else:
        text += f" on {len(machines)} machines"
    if not what.startswith("bytes:"):
        text += f" ({what})"
    return [*style.wrap(text, "bold"), *outside_lines([result.confidence for result in results], style)]


def comparison(results: Sequence[Result], style: Style) -> list[str]:
    """Return a table of *results*, real software before ideal schedules, and the verdict."""
    software = [result for result in results if result.counts_software]
    bounds = [result for result in results if not result.counts_software]
    ordered = [*software, *bounds]
    first_s = ordered[0].sync_time_s
    many = len(results) > 1 and first_s > 0  # a single GPU exchanges nothing
    bandwidths = bandwidth_column([*(r.algbw_Bps for r in ordered), *(r.busbw_Bps for r in ordered)])
    columns = {
        "strategy": [r.strategy for r in ordered],
        "machine": [r.machine for r in ordered],
        "GPUs": [str(r.n_ranks) for r in ordered],
        "time": duration_column([r.sync_time_s for r in ordered]),
        "against first": [f"{r.sync_time_s / first_s:.3f} x" if many else "" for r in ordered],
        BAND_HEAD: [r.confidence.words for r in ordered],
        "algbw": bandwidths[: len(ordered)],
        "busbw": bandwidths[len(ordered) :],
        "bottleneck": [r.bottleneck.name if r.bottleneck else "none" for r in ordered],
        "use": [percent(r.bottleneck.utilisation) if r.bottleneck else "-" for r in ordered],
        "per million": [price_words(r.price_per_million) for r in ordered],
    }
    if not any(r.price_per_hour for r in ordered):
        del columns["per million"]
    if len({r.machine for r in ordered}) == 1:
        del columns["machine"], columns["GPUs"]
    if not many:
        del columns["against first"]
    if all(r.band is None for r in ordered):
        del columns[BAND_HEAD]
    right = [name not in ("strategy", "machine", "bottleneck") for name in columns]
    names = list(columns)
    spare = [names.index(name) for name in _SPARE if name in columns]
    marks = {len(software): BOUNDS} if software and bounds else {}
    lines = table_lines(names, list(columns.values()), right, style, spare, marks)
    if many and software:
        lines[1] = style.mark(lines[1], "bold", "green")
    if many:
        lines += ["", *style.wrap(verdict(ordered))]
        if not software:
            lines += style.wrap(f"these are {BOUNDS}", "dim")
        lines += exchange_ranking_lines(software or bounds, style)
    if why := ordered[0].confidence.why:
        lines += ["", *style.wrap(f"trust: {why}", "dim", hang=2)]
    return lines


def sweep_lines(by_size: Sequence[Sequence[Result]], style: Style) -> list[str]:
    """Return the results by size where nccl-tests' own format does not fit: times, or bandwidths of a single strategy.

    Real software comes first, then what is fastest at the largest size; a narrow screen drops the last columns.
    """
    last = sorted(by_size[-1], key=lambda result: not result.counts_software)
    ways = list(dict.fromkeys((r.strategy, r.machine) for found in (last, *by_size) for r in found))
    of = [{(r.strategy, r.machine): r for r in found} for found in by_size]
    columns = {"size": [format_size(found[0].size_bytes, 3) for found in by_size]}
    if len(ways) == 1:
        one = [found[ways[0]] for found in of]
        columns["time"] = [format_duration(r.sync_time_s) for r in one]
        columns["algbw"] = bandwidth_column([r.algbw_Bps for r in one])
        columns["busbw"] = bandwidth_column([r.busbw_Bps for r in one])
    else:
        for way in ways:
            name = way[0] if len({machine for _, machine in ways}) == 1 else " on ".join(way)
            columns[name] = [format_duration(found[way].sync_time_s, 3) if way in found else "-" for found in of]
    spare = list(range(len(columns) - 1, 0, -1)) if len(ways) > 1 else [2]  # the last columns are dropped first
    lines = table_lines(list(columns), list(columns.values()), [True] * len(columns), style, spare)
    lines += ["", *style.wrap(winners(by_size))]
    if trust := sweep_trust(by_size):
        lines += ["", *style.wrap(trust, "dim", hang=2)]
    return lines


def sweep_trust(by_size: Sequence[Sequence[Result]]) -> str:
    """Return how sure the time of the largest size is, where anything is known of that."""
    best = best_of(by_size[-1])
    why = best.confidence.why
    return f"trust at {format_size(best.size_bytes)}: {why}" if why else ""


def unfit_lines(unfit: Mapping[str, str], style: Style) -> list[str]:
    """Return one line for each strategy that does not fit, with the reason."""
    lines = [style.wrap(f"{name} does not fit: {reason}", "dim", hang=2) for name, reason in unfit.items()]
    return [line for wrapped in lines for line in wrapped]


def detail(result: Result, style: Style) -> list[str]:
    """Return the rings, the links in use and the notes of one *result*."""
    lines: list[str] = []
    if result.rings:
        alike: dict[tuple[int, ...], int] = {}
        for ring in result.rings:
            alike[ring] = alike.get(ring, 0) + 1
        lines += ["", style.mark(f"rings ({len(result.rings)}, by GPU)", "bold")]
        for ring, count in list(alike.items())[:_SHOWN_RINGS]:
            times = f"  x {count}" if count > 1 else ""
            lines += style.wrap("  " + shortened_ring(ring) + times, hang=4)
        if len(alike) > _SHOWN_RINGS:
            lines.append(f"  and {len(alike) - _SHOWN_RINGS} more (--json lists all)")
    lines += _links(result, style)
    if result.notes:
        lines += ["", style.mark("notes", "bold")]
        for note in result.notes:
            lines += style.wrap(f"  {note}", hang=4)
    return lines


def _links(result: Result, style: Style) -> list[str]:
    """Return the links by use, equally used ones on one line."""
    same: dict[tuple[float, float], list[LinkUse]] = {}
    for use in result.links:
        if use.bytes > 0:
            same.setdefault((use.utilisation, use.bytes), []).append(use)
    alike: dict[tuple[float, float], list[LinkUse]] = {}
    for (utilisation, n_bytes), uses in same.items():
        alike.setdefault((round(utilisation, 6), round(n_bytes, 3)), []).extend(uses)
    if not alike:
        return []
    kinds = sorted(alike.values(), key=lambda uses: -round(uses[0].utilisation, 6))
    shown = kinds[:_SHOWN_LINKS]
    names = [f"{u[0].name} and {len(u) - 1} more" if len(u) > 1 else u[0].name for u in shown]
    columns = [names, size_column([u[0].bytes for u in shown]), [percent(u[0].utilisation) for u in shown]]
    lines = table_lines(["links by use", "bytes each", "use"], columns, [False, True, True], style, spare=(1,))
    hidden = sum(len(uses) for uses in kinds[_SHOWN_LINKS:])
    if hidden:
        lines.append(f"and {hidden} more (--json lists all)")
    return ["", *lines]
