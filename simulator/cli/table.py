"""A table that stays one on a narrow screen: it gives up columns in a stated order, and after the last is a list."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from simulator.console.style import Style
from simulator.results.columns import lay_out

__all__ = ["table_lines"]


def table_lines(
    header: Sequence[str],
    columns: Sequence[Sequence[str]],
    right: Sequence[bool],
    style: Style,
    spare: Sequence[int] = (),
    marks: Mapping[int, str] | None = None,
) -> list[str]:
    """Return a table; where it is too wide, without the columns *spare*, the first of them first, or as a list.

    *marks* are lines that stand before the row of that number.
    """
    shown = list(range(len(header)))
    left_out = iter(spare)
    while True:
        rows = [[header[i] for i in shown], *([row[i] for i in shown] for row in zip(*columns, strict=True))]
        lines = lay_out(rows, [right[i] for i in shown])
        if style.width is None or max(len(line) for line in lines) <= style.width:
            break
        if (spared := next(left_out, None)) is not None:
            shown.remove(spared)
            continue
        lines = [header[0]]
        for number, (name, *rest) in enumerate(rows[1:]):
            lines += style.wrap((marks or {}).get(number, ""), "dim") if number in (marks or {}) else []
            lines += textwrap.wrap(
                f"  {name}: {', '.join(t for t in rest if t)}", style.width, subsequent_indent="    "
            )
        marks = {}
        break
    lines[0] = style.mark(lines[0], "bold")
    for number, text in (marks or {}).items():
        lines.insert(1 + number, style.mark(text, "dim"))
    return lines
