"""Answers as plain data, and the outputs made of them: tables, JSON, traces (docs/decisions/results.md)."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from simulator.errors import escaped


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
