"""Figures as inline SVG: with the colours of the page, ids unique to the figure, and text of others escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from matplotlib.figure import Figure

from reports.file import figure_file
from simulator.errors import escaped

# Placeholders for the page's own colours, which differ between its light and dark themes.
PAGE_INK, MUTED, GRID = "#010203", "#010204", "#010205"
_OF_PAGE = {PAGE_INK: "currentColor", MUTED: "var(--muted)", GRID: "var(--grid)"}


def inline_svg(name: str, label: str, make: Callable[[], Figure]) -> str:
    """Return the figure that *make* draws as an ``svg`` element, labelled *label* for screen readers."""
    text = figure_file(make, "svg").decode()
    text = text[text.index("<svg") :]
    for colour, of_page in _OF_PAGE.items():
        text = text.replace(colour, of_page)
    text = re.sub(r"<(metadata|title|desc)>.*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    return (
        text.replace('role="img" ', "", 1)
        .replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)
        .rstrip()
    )


def escape(text: str) -> str:
    r"""Return *text* for HTML or SVG; characters that would be obeyed or hidden are written as ``\x1b``."""
    return html.escape(escaped(text))
