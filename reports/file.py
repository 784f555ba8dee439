"""Figures as files, with words at their foot; the same figure gives the same bytes."""

import io
import logging
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import Text

from simulator.errors import escaped
from simulator.results import html_text

STYLE = Path(__file__).with_name("figures.mplstyle")
_DOTS_PER_INCH = 150
_LINE_IN, _MARGIN_IN = 0.16, 0.12  # of words at the foot
_LETTERS = 12.4  # letters of this size on an inch
# Without dates and versions, so that the same results give the same file.
_METADATA = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def drawn(make: Callable[..., Figure]) -> Callable[..., bytes]:
    """Return *make* as a function with one more argument, the kind of file that it returns: svg, png or pdf."""

    @wraps(make)
    def file(*asked: Any) -> bytes:
        return figure_file(partial(make, *asked[:-1]), asked[-1])

    return file


def figure_file(make: Callable[[], Figure], kind: str) -> bytes:
    """Return the figure that *make* draws as a file: svg, png or pdf (*kind*)."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # keep standard error for the command line
    with matplotlib.rc_context(fname=STYLE):
        buffer = io.BytesIO()
        with _plain_text():
            figure = make()
            figure.savefig(buffer, format=kind, dpi=_DOTS_PER_INCH, metadata=_METADATA[kind])
    return _told(buffer.getvalue(), figure) if kind == "svg" else buffer.getvalue()


@contextmanager
def _plain_text() -> Iterator[None]:
    """Escape control characters in all texts, which SVG cannot hold, and draw a box for a character of no font."""
    set_text = Text.set_text

    def escaping(self: Text, text: Any) -> None:
        set_text(self, None if text is None else escaped(str(text)))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        Text.set_text = escaping  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            Text.set_text = set_text  # type: ignore[method-assign]


def _told(svg: bytes, figure: Figure) -> bytes:
    """Return *svg* with a title and a description for screen readers, taken from the texts of *figure*."""
    texts = sorted(figure.texts, key=lambda text: -float(text.get_fontsize()))  # the title is the largest
    said = [" ".join(text.get_text().split()) for text in texts if text.get_text().strip()]
    said += [title for axes in figure.axes if (title := " ".join(axes.get_title(loc="left").split()))]
    if not said:
        return svg
    head, end, rest = svg.decode().partition("<svg ")
    opening, close, content = rest.partition(">")
    words = f"<title>{html_text(said[0])}</title>\n <desc>{html_text('. '.join(said[1:]) or said[0])}</desc>"
    return f'{head}{end}role="img" {opening}{close}\n {words}{content}'.encode()


def with_foot(figure: Figure, said: str) -> Figure:
    """Return *figure*, made higher for what is *said* below it, if anything is."""
    if not said:
        return figure
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(said, int(_LETTERS * width))
    taller = height + _LINE_IN * len(lines) + _MARGIN_IN
    figure.set_size_inches(width, taller)
    for axes in figure.axes:
        box = axes.get_position()
        axes.set_position((box.x0, 1 - (1 - box.y0) * height / taller, box.width, box.height * height / taller))
    for text in figure.texts:
        x, y = text.get_position()
        text.set_position((x, 1 - (1 - y) * height / taller))
    figure.text(0.02, _MARGIN_IN / taller, "\n".join(lines), fontsize=9, va="bottom")
    return figure
