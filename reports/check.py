"""Bus bandwidth over size: measured points, the expected curve with its band, and the explanation that fits best."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from reports.colours import INK
from reports.file import figure_file
from reports.sizes import draw_over_sizes

_EXPECTED, _MEASURED, _OTHER = "#0072b2", "#d55e00", "#7a5195"  # from Okabe and Ito's colour-blind-safe palette
_WIDTH = 72  # characters of the title in a line


def draw_check(document: Mapping[str, Any], title: str, kind: str) -> bytes:
    """Return a figure of *document*, the output of ``validate check --json``, as a file: svg, png or pdf (*kind*)."""
    return figure_file(lambda: _figure(document, title), kind)


def _figure(document: Mapping[str, Any], title: str) -> Figure:
    rows = document["sizes"]
    sizes = [row["size_bytes"] for row in rows]
    figure = Figure(figsize=(7.6, 4.8))
    lines = textwrap.wrap(title, _WIDTH)
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
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    figure.text(0.02, 0.97, "\n".join(lines), fontsize=11.5, fontweight="bold", va="top", color=INK)
    return figure
