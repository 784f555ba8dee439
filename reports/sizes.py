"""Figures over sizes: of a single operation (latencies, times of copies, ...), and of a log that is checked.

The latter has measured points, the expected curve of bus bandwidth with its band, and the explanation that fits best.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from reports.colours import INK
from reports.colours import MARKED_SERIES as SERIES
from reports.file import drawn, with_foot
from simulator.results.changed import changed_words
from simulator.results.single import SingleResult
from simulator.units import format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 80


@drawn
def draw_sizes(results: Sequence[SingleResult], title: str) -> Figure:
    """Return a figure of *results* over their sizes, with logarithmic axes."""
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
    axes.yaxis.set_major_formatter(lambda value, _: format_duration(value, digits=3))
    axes.yaxis.set_minor_formatter(NullFormatter())
    draw_over_sizes(axes)
    of = next((entry["of"] for entry in entries if "of" in entry), "")
    axes.set_ylabel(f"time of {of}" if of else "time")
    axes.legend()
    figure.text(0.02, 0.97, "\n".join(textwrap.wrap(title, _WIDTH)), fontsize=11.5, fontweight="bold", va="top")
    return with_foot(figure, changed_words(results[-1].changed, results[-1].name_among(results)))


def draw_over_sizes(axes: Axes, label: str = "size") -> None:
    """Draw the axis of sizes, in powers of 2, and a grid; the other axis comes before."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.xaxis.set_major_formatter(lambda value, _: _binary(value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)
    axes.grid()


def _binary(n_bytes: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.3g} {unit}"
    return format_size(n_bytes, digits=3)


_EXPECTED, _MEASURED, _OTHER = "#0072b2", "#d55e00", "#7a5195"  # from Okabe and Ito's colour-blind-safe palette
_TITLE_WIDTH = 72  # characters of the title in a line


@drawn
def draw_check(document: Mapping[str, Any], title: str) -> Figure:
    """Return a figure of *document*, the output of ``validate check --json``."""
    rows = document["sizes"]
    sizes = [row["size_bytes"] for row in rows]
    figure = Figure(figsize=(7.6, 4.8))
    lines = textwrap.wrap(title, _TITLE_WIDTH)
    axes = figure.add_axes((0.11, 0.12, 0.86, 0.82 - 0.04 * max(2, len(lines))))
    per_s = [row["measured_busbw_Bps"] * row["measured_s"] / 1e9 for row in rows]  # GB that cross the bus
    slow = [bus / row["healthy_to_s"] for bus, row in zip(per_s, rows, strict=True)]
    fast = [bus / row["healthy_from_s"] for bus, row in zip(per_s, rows, strict=True)]
    axes.fill_between(sizes, slow, fast, color=_EXPECTED, alpha=0.15, linewidth=0, label="healthy: the 80 % band")
    expected = [row["expected_busbw_Bps"] / 1e9 for row in rows]
    axes.plot(sizes, expected, "-", color=_EXPECTED, lw=1.6, label="expected")
    measured = [row["measured_busbw_Bps"] / 1e9 for row in rows]
    axes.plot(sizes, measured, "o", color=_MEASURED, ms=4.5, label="measured")
    bus_of = dict(zip(sizes, per_s, strict=True))
    for each in document["explanations"][:1]:
        times = [(entry["size_bytes"], bus_of[entry["size_bytes"]] / entry["time_s"]) for entry in each["times"]]
        label = textwrap.shorten(each["words"], 60, placeholder="...")
        axes.plot([t[0] for t in times], [t[1] for t in times], "--", color=_OTHER, lw=1.4, label=label)
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("bus bandwidth, GB/s")
    draw_over_sizes(axes, "size of the buffer")
    axes.legend(loc="upper left")
    figure.text(0.02, 0.97, "\n".join(lines), fontsize=11.5, fontweight="bold", va="top", color=INK)
    return figure
