"""A table for narrow screens: it drops columns in a given order, then wraps its last column, then becomes a list."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from simulator.console.style import Style, fold
from simulator.results.columns import lay_out

__all__ = ["table_lines"]

_LEAST_WRAPPED = 20  # least characters of a wrapped last column
_GAP = 2


def table_lines(
    header: Sequence[str],
    columns: Sequence[Sequence[str]],
    right: Sequence[bool],
    style: Style,
    spare: Sequence[int] = (),
    marks: Mapping[int, str] | None = None,
) -> list[str]:
    """Return the lines of a table with a marked heading.

    If it is too wide, columns are dropped in the order of *spare*; then the last column is wrapped; as a last resort
    the table becomes a list.  *marks* are lines to put before rows, by row number.
    """
    marks = marks or {}
    shown = list(range(len(header)))
    left_out = iter(spare)
    while True:
        rows = [[header[i] for i in shown], *([row[i] for i in shown] for row in zip(*columns, strict=True))]
        lines = [[line] for line in lay_out(rows, [right[i] for i in shown])]
        width = max(len(line) for (line,) in lines)
        if style.width is None or width <= style.width:
            break
        if (spared := next(left_out, None)) is not None:
            shown.remove(spared)
            continue
        last = max(len(row[-1]) for row in rows)
        left = style.width - (width - last)
        if right[shown[-1]] or left < _LEAST_WRAPPED or len(shown) < 2:
            return _listed(rows, style, marks)
        begin = width - last
        wrapped = [fold(row[-1], left) or [""] for row in rows]
        heads = lay_out([row[:-1] for row in rows], [right[i] for i in shown[:-1]])
        lines = [
            [f"{head.ljust(begin - _GAP)}{' ' * _GAP}{words[0]}".rstrip(), *(" " * begin + more for more in words[1:])]
            for head, words in zip(heads, wrapped, strict=True)
        ]
        break
    found = [style.mark(line, "bold") for line in lines[0]]
    for number, row in enumerate(lines[1:]):
        found += style.wrap(marks[number], "dim") if number in marks else []
        found += row
    return found


def _listed(rows: Sequence[Sequence[str]], style: Style, marks: Mapping[int, str]) -> list[str]:
    first, *others = rows[0]
    head = f"{first}: {', '.join(t for t in others if t)}" if any(others) else first
    lines = style.wrap(head, "bold", hang=4)
    for number, (name, *rest) in enumerate(rows[1:]):
        lines += style.wrap(marks[number], "dim") if number in marks else []
        text = f"  {name}: {', '.join(t for t in rest if t)}"
        lines += textwrap.wrap(text, style.width or len(text), subsequent_indent="    ")
    return lines
