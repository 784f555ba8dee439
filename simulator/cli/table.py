"""A table for any width of the screen, and what stands below its title (docs/decisions/console.md)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from simulator.console import Style, fold, longest_word
from simulator.errors import spelt
from simulator.records import dataclass
from simulator.results import Fact, Heading, PlainTable
from simulator.results.changed import ChangeEffect
from simulator.results.confidence import Confidence
from simulator.units import format_duration

_LEAST_TEXT = 20  # characters to which a text column may be narrowed
_GAP = 2
_MATTERS = 0.05  # of a loss
_Lines = Mapping[int, Sequence[str]]  # by row number


@dataclass(frozen=True, slots=True)
class Column:
    """A column: numbers are ``right`` aligned, text is not, and may be wrapped.

    ``spare``: 0 for a key column, which every screen shows; of the others, the greatest leaves first.
    """

    head: str
    cells: Sequence[str]
    right: bool = True
    spare: int = 0

    def lines_of(self, text: str, width: int) -> list[str]:
        """Return *text* as lines of exactly *width*."""
        pieces = [text] if len(text) <= width else fold(text, width)
        return [piece.rjust(width) if self.right else piece.ljust(width) for piece in pieces]


class KeptTable(str):
    """The line that stands for a ``table`` of a page."""

    table: PlainTable


class Collected(Style):
    """A style for pages, whose lines have any length: it keeps tables as they are, and marks headings."""

    __slots__ = ()

    def mark(self, text: str, *marks: str) -> str:
        """Return *text*, as a heading if it is only bold."""
        return Heading(text) if marks == ("bold",) else text

    def at_most(self, width: int) -> Style:
        """Return this style."""
        del width
        return self

    def keep(self, table: PlainTable) -> list[str]:
        """Return the line that stands for *table*."""
        line = KeptTable("table")
        line.table = table
        return [line]


def page_blocks(lines: Iterable[str]) -> list[str | PlainTable]:
    """Return *lines*, those that stand for tables as these."""
    return [line.table if isinstance(line, KeptTable) else line for line in lines]


def row_lines(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Return *rows*, which have no heading, as lines of any width."""
    columns = zip(zip(*rows, strict=True), right, strict=True)
    return table_lines([Column("", cells, to_right) for cells, to_right in columns], Style())


def table_of(
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    style: Style,
    spare: Sequence[int] = (),
    marks: Mapping[int, str] | None = None,
    more: str = "",
) -> list[str]:
    """Return the lines of a table; the first of *rows* holds the headings.

    *spare* holds the numbers of the columns that leave, the first one first; *marks* are bold lines before rows, *more*
    is a line below them.
    """
    leaves = {number: len(spare) - place for place, number in enumerate(spare)}
    of_columns = zip(*rows, strict=True)
    columns = [Column(head, cells, right[i], leaves.get(i, 0)) for i, (head, *cells) in enumerate(of_columns)]
    return table_lines(columns, style, marks, more=more, marked="bold")


def fact_lines(facts: Iterable[Fact], style: Style) -> list[str]:
    """Return *facts*, those with a value as aligned columns."""
    every = list(facts)
    if isinstance(style, Collected):
        told = [(fact.label, fact.value or "", fact.said) for fact in every]
        return style.keep(PlainTable(("", "", ""), told, (False, True, False)))
    width = max(len(fact.label) for fact in every)
    rows = [(fact.label.ljust(width), fact.value, fact.said) for fact in every if fact.value is not None]
    shown = iter(row_lines(rows, [False, True, False]) if rows else ())
    hang = width + 4 + max((len(row[1]) for row in rows), default=0)
    lines: list[str] = []
    for fact in every:
        if fact.value is not None:
            lines += style.wrap(next(shown), *fact.marks, hang=hang)
        else:
            lines += style.wrap(f"{fact.label.ljust(width)}  {fact.said}", *fact.marks, hang=width + 2)
    return lines


def table_lines(
    columns: Sequence[Column | None],
    style: Style,
    marks: Mapping[int, str] | None = None,
    first: Sequence[str] = (),
    more: str = "",
    marked: str = "dim",
) -> list[str]:
    """Return the lines of a table with a marked heading, without the columns that are None.

    *marks* are lines to put before rows, by row number, *marked* dim or bold; *first* marks the first row (bold,
    green); *more* is a line below the rows.
    """
    every = [column for column in columns if column is not None]
    if isinstance(style, Collected):
        rows = list(zip(*(column.cells for column in every), strict=True))
        heads, right = [column.head for column in every], [column.right for column in every]
        return style.keep(PlainTable(heads, rows, right, marks or {}, more))
    before = {number: style.wrap(text, marked) for number, text in (marks or {}).items()}
    leaving = sorted((i for i, column in enumerate(every) if column.spare), key=lambda i: (-every[i].spare, -i))
    below = style.wrap(more) if more else []
    for count in range(len(leaving) + 1):
        gone = set(leaving[:count])
        shown = [column for i, column in enumerate(every) if i not in gone]
        widths = widths_of(shown, style.width)
        if widths is None:
            continue
        if gone:
            names = ", ".join(column.head for i, column in enumerate(every) if i in gone)
            below += style.wrap(f"not shown at {style.width} columns: {names}", "dim", hang=2)
        return _table(shown, widths, style, before, first) + below
    return _records(every, style, before, first) + below


def widths_of(columns: Sequence[Column], room: int | None) -> list[int] | None:
    """Return widths of *columns* within *room*, or None: headings of numbers wrap first, then text narrows."""
    least, widths = [], []
    for column in columns:
        cells, head = max(map(len, column.cells), default=0), column.head
        narrow = cells if column.right else max([min(cells, _LEAST_TEXT), *map(longest_word, column.cells)])
        least.append(max(narrow, longest_word(head)))
        widths.append(max(cells, len(head)))
    excess = 0 if room is None else sum(widths) + _GAP * (len(widths) - 1) - room
    for _ in range(max(0, excess)):
        wraps = [i for i in range(len(widths)) if widths[i] > least[i]]
        if not wraps:
            return None
        widths[max(wraps, key=lambda i: (columns[i].right, widths[i], i))] -= 1
    return widths


def _table(
    columns: Sequence[Column], widths: Sequence[int], style: Style, before: _Lines, first: Sequence[str]
) -> list[str]:
    heads = [column.lines_of(column.head, width)[::-1] for column, width in zip(columns, widths, strict=True)]
    lines = [style.mark(line, "bold") for line in _row(heads, widths)[::-1] if line]
    for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        lines += before.get(number, ())
        wrapped = [column.lines_of(cell, width) for column, cell, width in zip(columns, cells, widths, strict=True)]
        lines += [style.mark(line, *first) if number == 0 else line for line in _row(wrapped, widths)]
    return lines


def _row(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    lines = zip_longest(*cells, fillvalue="")
    return [
        (" " * _GAP).join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _records(columns: Sequence[Column], style: Style, before: _Lines, first: Sequence[str]) -> list[str]:
    names, *others = columns
    lines = style.wrap(names.head, "bold") if names.head else []
    for number, name in enumerate(names.cells):
        lines += before.get(number, ())
        values = [(column.head, column.cells[number]) for column in others]
        if not name and not any(value for _, value in values):
            lines.append("")
            continue
        lines += style.wrap(f"  {name}", *(first if number == 0 else ()), hang=4)
        facts = ", ".join(f"{head} {value}".strip() for head, value in values if value not in ("", "-"))
        lines += style.wrap(f"    {facts}", hang=4) if facts else []
    return lines


def head_lines(
    title: str,
    style: Style,
    found: Sequence[Confidence] = (),
    changed: ChangeEffect | None = None,
    of: str = "",
    outside: Iterable[str] = (),
    names: Sequence[str] = (),
) -> list[str]:
    """Return *title*; what was *changed*, and the time without; and each aspect outside all measured rows, once.

    The time with the changes and that without err as those of two ways on one machine.  *of* names what takes that
    time where several answers stand below.  Aspects are those of *found*, called *names*, and *outside*.
    """
    error = next((each.estimate.ways * 2**0.5 for each in found if each.estimate is not None), None)
    lines = [*style.wrap(title, "bold"), *(style.wrap(changed.said(of, error), hang=2) if changed is not None else [])]
    texts = dict.fromkeys([*(text for confidence in found for text in confidence.outside), *outside])
    for text in texts:
        whose = [name for name, each in zip(names, found, strict=False) if text in each.outside]
        which = f" ({', '.join(whose)})" if 0 < len(whose) < len(names) else ""
        lines += style.wrap(f"not validated{which}: {text}", "red", hang=2)
    return lines


def trust_lines(confidence: Confidence, style: Style, of: str = "time", *, full: bool = False) -> list[str]:
    """Return how sure an answer is *of* what, where that is known; *full*, or on a page: how to tighten its band."""
    said = confidence.why if full or isinstance(style, Collected) else confidence.brief
    said = f"{of}{said.removeprefix('band')}" if said else ""
    return style.wrap(f"trust: {said}", "dim", hang=2) if said else []


def next_lines(text: str, style: Style, command: str = "") -> list[str]:
    """Return what to do next: *text*, and the shell *command* below it; a page needs none."""
    if not text or isinstance(style, Collected):
        return []
    words = spelt(f"next: {text}", "command")
    return [*style.wrap(f"{words}:" if command else words, hang=2), *(style.wrap_command(command) if command else [])]


def blocks_apart(*blocks: Sequence[str]) -> list[str]:
    """Return the lines of *blocks*, an empty line between those that have any."""
    return [line for block in blocks if block for line in ["", *block]][1:]


def loss_lines(changed: ChangeEffect | None, style: Style, *, full: bool = True) -> list[str]:
    """Return a table of the time and its parts as described and changed; not *full*: parts of 5 % of the loss."""
    if changed is None or changed.without_s is None or not (changed.losses_s() or changed.others):
        return []
    times = changed.losses_s(0.0 if full else _MATTERS)
    before_s, after_s = changed.without_s, changed.time_s
    if times and not full:
        rest = before_s - sum(part[1] for part in times), after_s - sum(part[2] for part in times)
        times.append(("other parts", *rest))
    times.append(("all", before_s, after_s))
    rows = [(name, *map(format_duration, (before_s, after_s, after_s - before_s))) for name, before_s, after_s in times]
    rows += [(*other, "") for other in changed.others]
    return ["", *table_of([("lost to", "baseline", "changed", "lost"), *rows], (False, True, True, True), style)]
