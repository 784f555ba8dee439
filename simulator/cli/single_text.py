"""The answer to a single operation as text."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.cli.confidence_text import changed_lines, outside_lines
from simulator.cli.table import Column, table_lines
from simulator.console.style import Style
from simulator.results.confidence import BAND_HEAD
from simulator.results.single import SingleResult
from simulator.results.words import BOUND_WORDS
from simulator.units import format_duration, format_size


def single_lines(found: Sequence[SingleResult], style: Style) -> list[str]:
    """Return the answer of each machine: its time, the data sheet's, and the limiter with its reason."""
    first = found[0]
    columns = [
        Column("machine", [each.machine for each in found], right=False),
        Column("time", [_time(each) for each in found]),
        Column(BAND_HEAD, [each.confidence.words for each in found]),
        Column("data sheet", [format_duration(each.least_s) if each.least_s else "-" for each in found], spare=1),
        Column("against it", [f"{e.time_s / e.least_s:.3g} x" if e.least_s else "-" for e in found], spare=2),
        Column("bound by", [_bound(each) for each in found], right=False),
    ]
    trust = style.wrap(f"trust: {first.confidence.why}", "dim", hang=2) if first.confidence.why else []
    return [*_head(first.words, found, style), *table_lines(columns, style), *trust, *_why(found, style)]


def sizes_lines(workload: str, found: Sequence[SingleResult], style: Style) -> list[str]:
    """Return one line for each size and machine."""
    columns = [
        Column("machine", [each.machine for each in found], right=False),
        Column("size", [format_size(each.size_bytes or 0) for each in found]),
        Column("time", [_time(each) for each in found]),
        Column(BAND_HEAD, [each.confidence.words for each in found], spare=2),
        Column("bound by", [_bound(each) for each in found], right=False, spare=1),
    ]
    return [*_head(workload, found, style), *table_lines(columns, style)]


def _head(title: str, found: Sequence[SingleResult], style: Style) -> list[str]:
    changed = changed_lines(found[-1].changed, style, found[-1].name_among(found))
    return [*style.wrap(title, "bold"), *changed, *outside_lines([each.confidence for each in found], style), ""]


def _time(result: SingleResult) -> str:
    return format_duration(result.time_s) + (f" {result.answer.of}" if result.answer is not None else "")


def _bound(result: SingleResult) -> str:
    if result.answer is not None:
        return result.answer.bound
    bound = BOUND_WORDS.get(result.account.get("bound", ""), "-")
    return bound + (f" ({result.account['detail']})" if result.account.get("detail") else "")


def _why(found: Sequence[SingleResult], style: Style) -> list[str]:
    """Return the reasons, each with the name of its machine if there are several."""
    lines: list[str] = []
    for result in found:
        if result.answer is not None and result.answer.why:
            lines += ["", *(style.wrap(f"{result.machine}:") if len(found) > 1 else [])]
            lines += [line for reason in result.answer.why for line in style.wrap(f"  {reason}", hang=4)]
    return lines
