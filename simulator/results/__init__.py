"""Answers as plain data, and the outputs made of them: tables, JSON, traces.

A view of an answer is its figures with their names (:class:`Fact`), from which text and HTML are written.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from simulator.errors import escaped


class Fact(NamedTuple):
    """What is ``said`` under a ``label``: a sentence, or a note beside a ``value`` with its unit.

    ``marks`` stress it (bold, green, ...).
    """

    label: str
    said: str
    value: str | None = None
    marks: tuple[str, ...] = ()


def html_of(facts: Iterable[Fact]) -> str:
    """Return *facts* as an HTML table with escaped text, for notebooks; those that say nothing are left out."""
    said = ((fact.label, " ".join(filter(None, (fact.value, fact.said)))) for fact in facts)
    lines = (
        f"<tr><th style='text-align:left'>{escape(escaped(label))}</th><td>{escape(escaped(text))}</td></tr>"
        for label, text in said
        if text
    )
    return f"<table>{''.join(lines)}</table>"
