"""Text of others in HTML and SVG: :func:`escape`."""

from __future__ import annotations

import html

from simulator.errors import escaped


def escape(text: str) -> str:
    r"""Return *text* for HTML or SVG; characters that would be obeyed or hidden are written as ``\x1b``."""
    return html.escape(escaped(text))
