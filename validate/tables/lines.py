"""Line numbers in short form, and tables of the lines left out, by reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from simulator.cli.table import table_of
from simulator.console.style import Style

L = TypeVar("L", bound=Sequence[int])


def line_ranges(lines: Sequence[int], limit: int | None = 6) -> str:
    """Return ascending line numbers as ``3-7, 12``; only the first *limit* ranges (None: all)."""
    spans: list[list[int]] = []
    for line in lines:
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        elif limit is not None and len(spans) > limit:
            break
        else:
            spans.append([line, line])
    shown = [f"{a}-{b}" if b > a else str(a) for a, b in spans[:limit]]
    return ", ".join(shown) + (", ..." if limit is not None and len(spans) > limit else "")


def by_frequency(lines: Mapping[str, L]) -> dict[str, L]:
    """Return lines by reason, the most frequent reason first."""
    return dict(sorted(lines.items(), key=lambda item: (-len(item[1]), item[0])))


def percent_text(value: float | None, sign: str = "") -> str:
    """Return the fraction *value* in percent, with a *sign* "+" always with its sign; ``-`` for None."""
    if value is None:
        return "-"
    return f"{value * 100:{sign}.1f} %" if abs(value) < 1e4 else f"{value * 100:{sign}.1e} %"


def skipped_table(
    title: str, lines: Mapping[str, Sequence[int]], style: Style, medians: Mapping[str, float | None] | None = None
) -> list[str]:
    """Return a table of the rows left out, their number and lines by reason; empty where there are none.

    *medians*: the median absolute error that those rows would have which are predicted, by reason.
    """
    if not lines:
        return []
    of = medians or {}
    rows = [[title, "rows", *(["would be"] if of else []), "lines"]]
    for reason, found in lines.items():
        rows.append([reason, str(len(found)), *([percent_text(of.get(reason))] if of else []), line_ranges(found)])
    return table_of(rows, [False, True, *([True] if of else []), False], style)
