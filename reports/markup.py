"""Text in HTML and SVG: :func:`html_text`."""

from __future__ import annotations

from html import escape

from simulator.errors import escaped


def html_text(text: str) -> str:
    r"""Return *text* for HTML or SVG; characters that would be obeyed or hidden are written as ``\x1b``."""
    return escape(escaped(text))
