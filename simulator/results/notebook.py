"""Results in notebooks: ``html_table``."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from simulator.errors import escaped


def html_table(rows: Mapping[str, str]) -> str:
    """Return *rows*, a value by name, as an HTML table with escaped text."""
    lines = (
        f"<tr><th style='text-align:left'>{escape(escaped(name))}</th><td>{escape(escaped(text))}</td></tr>"
        for name, text in rows.items()
    )
    return f"<table>{''.join(lines)}</table>"
