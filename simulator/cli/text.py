"""Results as text for a reader: aligned on a wide screen or a pipe, stacked on a narrow one."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from simulator.console.style import Style
from simulator.results.columns import (
    bandwidth_column,
    duration_column,
    lay_out,
    percent,
    shortened_ring,
    size_column,
)
from simulator.results.reason import why_fastest
from simulator.results.result import LinkUse, Result
from simulator.units import format_size
from simulator.workload.parse import Payload

__all__ = ["comparison", "detail", "title", "unfit_lines"]

_SHOWN_LINKS = 8
_SHOWN_RINGS = 8


def title(result: Result, payload: Payload, n_gpus: int, style: Style) -> list[str]:
    """Return what was simulated."""
    gpus = f"{result.n_ranks} GPUs" if result.n_ranks != 1 else "1 GPU"
    if result.gpus != tuple(range(n_gpus)):
        gpus += f" ({shortened_ring(result.gpus)})"
    what = payload.text if not payload.description else f"{payload.text}, {payload.description}"
    text = f"{result.machine}: {result.collective} of {format_size(result.size_bytes)} over {gpus}"
    if not what.startswith("bytes:"):
        text += f" ({what})"
    return [style.mark(line, "bold") for line in _wrapped(text, style)]


def comparison(results: Sequence[Result], style: Style) -> list[str]:
    """Return a table of *results*, the first marked as best, and why it is."""
    many = len(results) > 1
    header = ["strategy", "time", "algbw", "busbw", "bottleneck", "use"]
    best_s = results[0].sync_time_s
    bandwidths = bandwidth_column([*(r.algbw_Bps for r in results), *(r.busbw_Bps for r in results)])
    columns = [
        [r.strategy for r in results],
        duration_column([r.sync_time_s for r in results]),
        bandwidths[: len(results)],
        bandwidths[len(results) :],
        [r.bottleneck.name if r.bottleneck else "none" for r in results],
        [percent(r.bottleneck.utilisation) if r.bottleneck else "-" for r in results],
    ]
    right = [False, True, True, True, False, True]
    if many:
        header.insert(2, "against best")
        columns.insert(2, [f"{r.sync_time_s / best_s:.3f} x" if best_s > 0 else "-" for r in results])
        right.insert(2, True)
    rows = [header, *(list(row) for row in zip(*columns, strict=True))]
    lines = lay_out(rows, right)
    if style.width is not None and max(len(line) for line in lines) > style.width:
        lines = _stacked(rows, style)
    else:
        lines[0] = style.mark(lines[0], "dim")
        if many:
            lines[1] = style.mark(lines[1], "bold", "green")
    if many:
        lines += ["", *_wrapped(why_fastest(results), style)]
        paying = [r.strategy for r in results if r.counts_software]
        if paying and len(paying) < len(results):
            text = f"{' and '.join(paying)} pays for launches and protocols"
            text += "; the others are ideal schedules and pay for neither"
            lines += [style.mark(line, "dim") for line in _wrapped(text, style)]
    return lines


def _stacked(rows: Sequence[Sequence[str]], style: Style) -> list[str]:
    header, *entries = rows
    width = max(len(name) for name in header[1:])
    lines: list[str] = []
    for i, entry in enumerate(entries):
        marks = ("bold", "green") if i == 0 and len(entries) > 1 else ("bold",)
        lines.append(style.mark(entry[0], *marks))
        lines += [f"  {name.ljust(width)}  {text}" for name, text in zip(header[1:], entry[1:], strict=True)]
    return lines


def unfit_lines(unfit: Mapping[str, str], style: Style) -> list[str]:
    """Return one line for each strategy that does not fit, and why."""
    return [
        style.mark(line, "dim")
        for name, reason in unfit.items()
        for line in _wrapped(f"{name} does not fit: {reason}", style, hang=2)
    ]


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
            lines += _wrapped("  " + shortened_ring(ring) + times, style, hang=4)
        if len(alike) > _SHOWN_RINGS:
            lines.append(f"  and {len(alike) - _SHOWN_RINGS} more (--json lists all)")
    lines += _links(result, style)
    if result.notes:
        lines += ["", style.mark("notes", "bold")]
        for note in result.notes:
            lines += _wrapped(f"  {note}", style, hang=4)
    return lines


def _links(result: Result, style: Style) -> list[str]:
    """Return the links by use, those that are used alike in one line."""
    alike: dict[tuple[float, float], list[LinkUse]] = {}
    for use in result.links:
        if use.bytes > 0:
            alike.setdefault((round(use.utilisation, 6), round(use.bytes, 3)), []).append(use)
    if not alike:
        return []
    kinds = sorted(alike.values(), key=lambda uses: -round(uses[0].utilisation, 6))
    shown = kinds[:_SHOWN_LINKS]
    names = [f"{u[0].name} and {len(u) - 1} more" if len(u) > 1 else u[0].name for u in shown]
    columns = [names, size_column([u[0].bytes for u in shown]), [percent(u[0].utilisation) for u in shown]]
    rows = [["links by use", "bytes each", "use"], *(list(row) for row in zip(*columns, strict=True))]
    lines = lay_out(rows, [False, True, True])
    if style.width is not None and max(len(line) for line in lines) > style.width:
        lines = ["links by use"]
        for name, size, use in rows[1:]:
            lines += [f"  {name}", f"    {size}, {use}"]
    lines[0] = style.mark(lines[0], "bold")
    hidden = sum(len(uses) for uses in kinds[_SHOWN_LINKS:])
    if hidden:
        lines.append(f"and {hidden} more (--json lists all)")
    return ["", *lines]


def _wrapped(text: str, style: Style, hang: int = 0) -> list[str]:
    if style.width is None:
        return [text]
    return textwrap.wrap(
        text, style.width, subsequent_indent=" " * hang, break_on_hyphens=False, break_long_words=False
    ) or [text]
