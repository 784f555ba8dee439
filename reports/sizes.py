"""The figure of a single operation over sizes: the staircase of latencies, or times of copies, blocks or messages."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from reports.colours import MARKED_SERIES as SERIES
from reports.file import figure_file, with_foot
from simulator.results.changed import changed_words
from simulator.results.single import SingleResult
from simulator.units import format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 80


def draw_sizes(results: Sequence[SingleResult], title: str, kind: str) -> bytes:
    """Return a figure of *results* over their sizes, with logarithmic axes; *kind*: svg, png or pdf."""
    said = changed_words(results[-1].changed, results[-1].name_among(results))
    return figure_file(lambda: with_foot(_figure(results, title), said), kind)


def _figure(results: Sequence[SingleResult], title: str) -> Figure:
    entries = [result.to_dict() for result in results]
    figure = Figure(figsize=(7.2, 4.4))
    axes = figure.add_axes((0.12, 0.13, 0.84, 0.74))
    names = list(dict.fromkeys(entry["topology"] for entry in entries))
    for i, name in enumerate(names):
        colour, mark = SERIES[i % len(SERIES)]
        mine = [entry for entry in entries if entry["topology"] == name]
        sizes = [entry["size_bytes"] for entry in mine]
        axes.plot(sizes, [entry["time_s"] for entry in mine], mark + "-", color=colour, ms=4, lw=1.4, label=name)
        banded = [entry for entry in mine if entry["band"] is not None]
        low, high = ([entry["band"][end] for entry in banded] for end in ("low_s", "high_s"))
        axes.fill_between([entry["size_bytes"] for entry in banded], low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=14))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(value, digits=3)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    draw_over_sizes(axes)
    of = next((entry["of"] for entry in entries if "of" in entry), "")
    axes.set_ylabel(f"time of {of}" if of else "time")
    axes.legend(frameon=False, fontsize=9)
    figure.text(0.02, 0.97, "\n".join(textwrap.wrap(title, _WIDTH)), fontsize=11.5, fontweight="bold", va="top")
    return figure


def draw_over_sizes(axes: Axes, label: str = "size") -> None:
    """Draw the axis of sizes, in powers of 2, and a grid; the other axis comes before."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _binary(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)
    axes.grid(visible=True, which="major", color="#d3d7db", linewidth=0.6)
    axes.tick_params(labelsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)


def _binary(n_bytes: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.3g} {unit}"
    return format_size(n_bytes, digits=3)
