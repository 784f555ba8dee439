"""One figure for a step: where its time goes, what would be faster, and what its memory holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.file import figure_file
from reports.machine import BEST, INK
from simulator.results.step import StepResult
from simulator.results.words import BOUND_WORDS, KIND_WORDS, MODE_WORDS, change_words, precision_words
from simulator.units import format_duration, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_step"]

_WIDTH, _HEIGHT = 10.5, 6.2  # inches
# Okabe and Ito's colours, told apart by the colour-blind too, and grey for waiting.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7a5195")
_GREY = "#b4bcc4"


def draw_step(result: StepResult, kind: str) -> bytes:
    """Return a figure of *result* as a file of *kind*: svg, png or pdf."""
    return figure_file(lambda: _figure(result), kind)


def _figure(result: StepResult) -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT))
    options = result.options
    how = f"batch {result.samples}, {precision_words(result)}"
    head = (
        f"{MODE_WORDS[options.mode]} of {result.workload}, {how}, on {result.machine} {result.device} ({result.part})"
    )
    figure.text(0.02, 0.965, head[0].upper() + head[1:], fontsize=12, fontweight="bold", va="top")
    rate = f"{format_duration(result.step_time_s)}, {result.throughput:,.4g} {result.sample}/s"
    figure.text(0.02, 0.905, f"{rate}; bound by {BOUND_WORDS[result.bound]}", fontsize=10, va="top")
    _draw_parts(figure.add_axes((0.11, 0.52, 0.86, 0.28)), result)
    _draw_memory(figure.add_axes((0.11, 0.12, 0.38, 0.22)), result)
    _draw_alternatives(figure.add_axes((0.68, 0.12, 0.24, 0.22)), result)
    return figure


def _draw_parts(axes: Axes, result: StepResult) -> None:
    """Draw a bar for each part of the step, divided by classes of kernels."""
    parts = list(result.parts_s)
    for place, kind in enumerate(result.kinds):
        widths = [kind.parts_s.get(part, 0.0) for part in parts]
        lefts = [sum(other.parts_s.get(part, 0.0) for other in result.kinds[:place]) for part in parts]
        name = KIND_WORDS.get(kind.kind, kind.kind)
        axes.barh(parts, widths, left=lefts, color=_COLOURS[place % len(_COLOURS)], height=0.62, label=name)
    busy = [sum(kind.parts_s.get(part, 0.0) for kind in result.kinds) for part in parts]
    waits = [max(0.0, result.parts_s[part] - seconds) for part, seconds in zip(parts, busy, strict=True)]
    if sum(waits) > 0.005 * result.step_time_s:
        axes.barh(parts, waits, left=busy, color=_GREY, height=0.62, label="waiting for the host")
    longest = max(result.parts_s.values(), default=0.0)
    for row, part in enumerate(parts):
        seconds = result.parts_s[part]
        text = format_duration(seconds, 3)
        axes.annotate(text, (max(seconds, busy[row]), row), (6, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_xlim(0, longest * 1.12 or 1.0)
    axes.invert_yaxis()
    axes.set_title("where the time goes", fontsize=10, loc="left", pad=22)
    axes.legend(fontsize=8, ncols=5, loc="lower left", bbox_to_anchor=(-0.005, 0.98), frameon=False, handlelength=1.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(value, 3)))
    _plain(axes)


def _draw_memory(axes: Axes, result: StepResult) -> None:
    """Draw what memory holds as one bar, and what there is as a line."""
    need = result.memory
    held = {
        "parameters": need.parameters_bytes,
        "gradients": need.gradients_bytes,
        "optimiser": need.optimizer_bytes,
        "activations": need.activations_bytes,
        "working": need.working_bytes,
        "driver": need.context_bytes,
    }
    left = 0.0
    for place, (name, n_bytes) in enumerate(held.items()):
        if n_bytes:
            axes.barh([0], [n_bytes], left=left, height=0.5, color=_COLOURS[place], label=name)
            left += n_bytes
    axes.axvline(need.available_bytes, color=INK, linewidth=1.6)
    axes.annotate(
        f"{format_size(need.available_bytes, 3)} there", (need.available_bytes, 0.47), (-4, 0), ha="right",
        textcoords="offset points", va="top", fontsize=8,
    )  # fmt: skip
    axes.set_xlim(0, max(left, need.available_bytes) * 1.05)
    axes.set_ylim(-0.5, 0.5)
    axes.set_yticks([])
    verdict = "" if need.fits else f", {format_size(need.missing_bytes, 3)} too much"
    axes.set_title(f"memory: {format_size(need.total_bytes, 3)} needed{verdict}", fontsize=10, loc="left", pad=34)
    axes.legend(fontsize=8, ncols=3, loc="lower left", bbox_to_anchor=(-0.01, 0.97), frameon=False, handlelength=1.0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(value, 3)))
    _plain(axes)


def _draw_alternatives(axes: Axes, result: StepResult) -> None:
    """Draw the step's time beside that of the changes that make it faster."""
    rows = [("as it is", result.step_time_s, True)]
    rows += [(change_words(other, result), other.step_time_s, other.fits) for other in result.alternatives[:5]]
    colours = [INK, *(BEST if fits else _GREY for _, _, fits in rows[1:])]
    axes.barh([name for name, _, _ in rows], [time_s for _, time_s, _ in rows], color=colours, height=0.62)
    for row, (_, time_s, fits) in enumerate(rows):
        text = format_duration(time_s, 3) + ("" if fits else ", does not fit")
        axes.annotate(text, (time_s, row), (6, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(0, result.step_time_s * 1.35 or 1.0)
    axes.invert_yaxis()
    axes.set_title("what would be faster", fontsize=10, loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(value, 3)))
    _plain(axes)


def _plain(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8, length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="#e4e8ec", linewidth=0.8)
