"""A figure as the bytes of a file: the same figure gives the same bytes."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable

import matplotlib
from matplotlib.figure import Figure

from reports.machine import INK

__all__ = ["figure_file"]

_DOTS_PER_INCH = 150
# No date and no version: the same results give the same file.
_METADATA = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def figure_file(make: Callable[[], Figure], kind: str) -> bytes:
    """Return what *make* draws as a file of *kind*: svg, png or pdf."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # standard error is the command line's
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"svg.hashsalt": "topocast", "svg.fonttype": "none", "text.color": INK})
        buffer = io.BytesIO()
        make().savefig(buffer, format=kind, dpi=_DOTS_PER_INCH, metadata=_METADATA[kind])
    return buffer.getvalue()
