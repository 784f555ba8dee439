"""Words at the foot of a figure: what was changed of the machine."""

from __future__ import annotations

import textwrap

from matplotlib.figure import Figure

_LINE_IN, _MARGIN_IN = 0.16, 0.12
_LETTERS = 12.4  # letters of this size on an inch


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
