"""Figures as files; the same figure gives the same bytes."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from html import escape

import matplotlib
from matplotlib.figure import Figure

from reports.colours import INK

__all__ = ["figure_file"]

_DOTS_PER_INCH = 150
# Without dates and versions, so that the same results give the same file.
_METADATA = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def figure_file(make: Callable[[], Figure], kind: str) -> bytes:
    """Return the figure that *make* draws as a file: svg, png or pdf (*kind*)."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # keep standard error for the command line
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"svg.hashsalt": "topocast", "svg.fonttype": "none", "text.color": INK})
        buffer = io.BytesIO()
        figure = make()
        figure.savefig(buffer, format=kind, dpi=_DOTS_PER_INCH, metadata=_METADATA[kind])
    return _told(buffer.getvalue(), figure) if kind == "svg" else buffer.getvalue()


def _told(svg: bytes, figure: Figure) -> bytes:
    """Return *svg* with a title and a description for screen readers, taken from the texts of *figure*."""
    texts = sorted(figure.texts, key=lambda text: -float(text.get_fontsize()))  # the title is the largest
    said = [" ".join(text.get_text().split()) for text in texts if text.get_text().strip()]
    said += [title for axes in figure.axes if (title := " ".join(axes.get_title(loc="left").split()))]
    if not said:
        return svg
    head, end, rest = svg.decode().partition("<svg ")
    opening, close, content = rest.partition(">")
    words = f"<title>{escape(said[0])}</title>\n <desc>{escape('. '.join(said[1:]) or said[0])}</desc>"
    return f'{head}{end}role="img" {opening}{close}\n {words}{content}'.encode()
