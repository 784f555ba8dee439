"""Answers as plain data, and the outputs made of them: tables, JSON, traces (docs/decisions/results.md)."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from simulator.errors import escaped
from simulator.units import BANDWIDTHS, DURATIONS, SIZES


class Fact(NamedTuple):
    """What is ``said`` under a ``label``: a sentence, or a note beside a ``value`` with its unit.

    ``marks`` stress it (bold, green, ...); a ``detail`` is shown only where all is asked for.
    """

    label: str
    said: str
    value: str | None = None
    marks: tuple[str, ...] = ()
    detail: bool = False


WORDS: Mapping[str, Mapping[str, str]] = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
"""Words for readers in place of names used in code, by topic."""
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def html_text(text: str) -> str:
    r"""Return *text* for HTML or SVG; characters that would be obeyed or hidden are written as ``\x1b``."""
    return escaped(text).translate(_MARKUP)


def html_of(facts: Iterable[Fact]) -> str:
    """Return *facts* as an HTML table with escaped text, for notebooks; those that say nothing are left out."""
    said = ((fact.label, " ".join(filter(None, (fact.value, fact.said)))) for fact in facts)
    row = "<tr><th style='text-align:left'>{}</th><td>{}</td></tr>".format
    return f"<table>{''.join(row(html_text(label), html_text(text)) for label, text in said if text)}</table>"


SCHEMA_VERSION = 1


def to_json(data: Mapping[str, Any]) -> str:
    """Return *data* as JSON text with a final line break; equal data give equal text."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def rounded_integer(value: float) -> int | float:
    """Return *value* as an integer if it differs from one only by rounding."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= 1e-9 * max(1.0, abs(value)) else value


def plain(value: Any) -> Any:
    """Return *value* as JSON holds it: data classes as objects, tuples as lists, what is infinite as None."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def taken(of: object, words: str) -> dict[str, Any]:
    """Return what *words* name of *of* as plain data: attributes, or ``key=path`` (``bottleneck=bottleneck.name``)."""
    found = {}
    for word in words.split():
        key, _, path = word.partition("=")
        value: Any = of
        for name in (path or key).split("."):
            value = None if value is None else getattr(value, name)
        found[key] = plain(value)
    return found


# -- figures with units, alone and in columns -------------------------------------------


_Scale = tuple[float, str]
_LONG_RING = 24  # parts shown


class PlainTable(NamedTuple):
    """The headings and rows of a table of text.

    ``right``: which columns hold numbers; ``marks``: lines before rows, by their number; ``more``: a line below.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]
    marks: Mapping[int, str] = {}
    more: str = ""


class Heading(str):
    """A line above the lines and tables that it names."""

    __slots__ = ()
    is_heading = True


def rate_words(number: float) -> str:
    """Return *number* with four digits, without an exponent."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def three_digits(number: float) -> str:
    """Return *number* with three digits, without an exponent."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def percent(share: float) -> str:
    """Return the fraction *share* as a percentage."""
    return f"{share * 100:.1f} %"


def column_of(values: Sequence[float], scales: Sequence[_Scale], *, by_least: bool = False) -> list[str]:
    """Return *values* as text in one common unit of *scales*, with three or four digits."""
    some = [abs(v) for v in values if v]
    if not some:
        return [f"0 {scales[-1][1]}" for _ in values]
    least = min(some)
    if max(some) > 1e4 * least:  # the range is too wide for one unit
        return [column_of([v], scales)[0] for v in values]
    most = least if by_least else max(some)
    scale, unit = next(((s, u) for s, u in scales if most >= s * 0.99995 and least >= s / 100), scales[-1])
    digits = min(3 if least >= 0.1 * scale else 4, max(0, 3 - math.floor(math.log10(least / scale) + 1e-4)))
    if unit == "B" and all(v == int(v) for v in values):
        digits = 0
    return [f"{v / scale:.{digits}f} {unit}" for v in values]


duration_column = partial(column_of, scales=DURATIONS, by_least=True)
bandwidth_column = partial(column_of, scales=BANDWIDTHS)
size_column = partial(column_of, scales=SIZES)


def shortened_ring(ring: Sequence[int]) -> str:
    """Return the numbers of *ring*, runs of four or more as ``first..last``, the middle of a long ring left out."""
    parts: list[str] = []
    i = 0
    while i < len(ring):
        step = ring[i + 1] - ring[i] if i + 1 < len(ring) else 0
        end = i
        while step in (1, -1) and end + 1 < len(ring) and ring[end + 1] - ring[end] == step:
            end += 1
        run = end - i >= 3
        parts.append(f"{ring[i]}..{ring[end]}" if run else str(ring[i]))
        i = end + 1 if run else i + 1
    if len(parts) > _LONG_RING:
        parts[_LONG_RING - 5 : -4] = ["..."]
        parts.append(f"({len(ring)} GPUs)")
    return " ".join(parts)


def ranges(numbers: Iterable[int]) -> str:
    """Return *numbers* in ascending order, consecutive ones as a range: ``0-4,7``."""
    return ",".join(runs_of(sorted(numbers)))


def runs_of(numbers: Iterable[int]) -> Iterator[str]:
    """Yield ascending *numbers*, consecutive ones as a range: ``0-4``, ``7``."""
    for _, run in groupby(enumerate(numbers), lambda each: each[1] - each[0]):
        members = (number for _, number in run)
        first = next(members)
        last = max(members, default=first)
        yield str(first) if first == last else f"{first}-{last}"
