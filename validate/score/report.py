"""The scores as text for a reader."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.console.style import PLAIN, Style
from simulator.errors import one_line
from simulator.results.columns import lay_out
from validate.score.baselines import ALPHA_S
from validate.score.document import ScoredTable, skipped_lines
from validate.score.groups import Group, group_rows, median_of_machines, whole

__all__ = ["report"]

_HEADER = ["", "rows", "scored", "median", "p90", "mean", "bias", "ring median", "ring p90"]
_SHOWN = (("size",), ("fit",), ("machine",), ("collective",), ("decade",))
_LINES_SHOWN = 6


def report(
    tables: Sequence[ScoredTable], *, strategy: str, trust: Sequence[str], by: Sequence[str] = (), style: Style = PLAIN
) -> str:
    """Return tables of errors: over all, by size, machine, collective and decade, or by *by*."""
    blocks = [_table(table, strategy, trust, by, style) for table in tables]
    blocks.append(
        "error = (simulated - measured) / measured; median, p90 and mean of its absolute value; bias: its mean\n"
        f"ring: one alpha-beta ring at data sheet rates, alpha {ALPHA_S * 1e6:g} us; size: 1 MiB = 1048576 B;"
        " decade: 1e6 is 1 MB to below 10 MB"
    )
    return "\n\n".join(blocks) + "\n"


def _table(table: ScoredTable, strategy: str, trust: Sequence[str], by: Sequence[str], style: Style) -> str:
    everything = whole(table.rows)
    share = f" ({everything.coverage:.1%})" if everything.coverage is not None else ""
    title = f"{one_line(table.file, 200)}: {everything.errors.n} of {everything.rows} rows scored{share}"
    lines = [style.mark(title, "bold") + f"; strategy {strategy}, trust {', '.join(trust)}", ""]
    body = [_HEADER, _figures("all rows", everything), _machines_alike(table, len(_HEADER))]
    headings: dict[int, str] = {}
    for axes in [tuple(by)] if by else _SHOWN:
        groups = group_rows(table.rows, axes)
        if groups:
            headings[len(body)] = "by " + ", ".join(axes)
            body.append([""] * len(_HEADER))
            body += [_figures("  " + _label(group), group) for group in groups]
    laid = lay_out(body, [False] + [True] * (len(_HEADER) - 1))
    lines += [
        style.mark(headings.get(i, text), "bold") if i in headings or i == 0 else text for i, text in enumerate(laid)
    ]
    lines += _skipped(table)
    return "\n".join(lines)


def _machines_alike(table: ScoredTable, n_columns: int) -> list[str]:
    """Return the median of the machines' medians: a machine of a thousand rows counts as one of ten."""
    cells = ["median of machines"] + [""] * (n_columns - 1)
    cells[3] = _percent(median_of_machines(table.rows))
    return cells


def _label(group: Group) -> str:
    return "  ".join(one_line(label, 40) for label in group.by.values())


def _figures(label: str, group: Group) -> list[str]:
    errors, baseline = group.errors, group.baseline
    cells = [errors.median_ape, errors.p90_ape, errors.mean_ape]
    return [
        label,
        str(group.rows),
        str(errors.n),
        *(_percent(value) for value in cells),
        _percent(errors.bias, sign="+"),
        _percent(baseline.median_ape),
        _percent(baseline.p90_ape),
    ]


def _percent(value: float | None, sign: str = "") -> str:
    if value is None:
        return "-"
    return f"{value * 100:{sign}.1f} %" if abs(value) < 1e4 else f"{value * 100:{sign}.1e} %"


def _skipped(table: ScoredTable) -> list[str]:
    found = skipped_lines(table.rows)
    if not found:
        return []
    rows = [["not scored", "rows", "lines"]]
    rows += [[reason, str(len(lines)), _ranges(lines)] for reason, lines in found.items()]
    return ["", *lay_out(rows, [False, True, False])]


def _ranges(lines: Sequence[int]) -> str:
    """Return line numbers as ``3-7, 12``, the first few."""
    spans: list[list[int]] = []
    for line in lines:
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    shown = [f"{a}-{b}" if b > a else str(a) for a, b in spans[:_LINES_SHOWN]]
    return ", ".join(shown) + (", ..." if len(spans) > _LINES_SHOWN else "")
