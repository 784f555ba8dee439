"""Results in notebooks: ``html_table``."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

__all__ = ["html_table"]


def html_table(rows: Mapping[str, str]) -> str:
    """Return *rows*, a name and a value each, as an HTML table; text is escaped."""
    lines = (
        f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(text)}</td></tr>"
        for name, text in rows.items()
    )
    return f"<table>{''.join(lines)}</table>"
