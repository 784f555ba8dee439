"""The figure of a program: the activity of each stream over time, and the memory that queued work holds."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from reports.colours import ACTIVITIES, HELD
from reports.file import drawn, with_foot
from simulator.programs.costs import ProgramLabel, SkippedRepetitions
from simulator.results.changed import said
from simulator.results.program import ProgramResult
from simulator.units import format_duration, format_size

_COLOURS = {
    "issue": ACTIVITIES["host"],
    "python": ACTIVITIES["python"],
    "wait": ACTIVITIES["waiting"],
    "kernel": ACTIVITIES["computing"],
    "copy": ACTIVITIES["copies"],
}
_WORDS = {"issue": "issuing", "python": "Python", "wait": "waiting", "kernel": "operators", "copy": "copies"}
_MOST = 1000  # bars drawn at most; the figure says so where it shows only the first ones


@drawn
def draw_program(result: ProgramResult) -> Figure:
    """Return a figure of *result*."""
    height = 1.9 + 0.34 * len(result.streams) + (1.6 if result.held else 0.0)
    figure = Figure(figsize=(10.5, height))
    figure.text(0.02, 1 - 0.2 / height, f"{result.name} on {result.machine}", fontsize=12, fontweight="bold", va="top")
    told = f"host returns after {format_duration(result.issued_s)}, all done after {format_duration(result.done_s)}"
    scales = ((1.0, "s"), (1e3, "ms"), (1e6, "us"))
    scale, unit = next(((s, unit) for s, unit in scales if result.done_s * s >= 1), (1e9, "ns"))
    streams_height = 0.34 * len(result.streams) + 0.1
    streams = figure.add_axes((0.16, 1 - (0.95 + streams_height) / height, 0.8, streams_height / height))
    used, until = _draw_streams(streams, result, scale)
    streams.set_xlim(0, until or 1)
    if until < result.done_s * scale:
        told += f", of which the first {format_duration(until / scale, 3)} are drawn"
    figure.text(0.02, 1 - 0.52 / height, told, fontsize=10, va="top")
    if result.held:
        held = figure.add_axes((0.16, 0.75 / height, 0.8, 1.3 / height), sharex=streams)
        held.fill_between(
            [at * scale for at, _ in result.held], [size for _, size in result.held], color=HELD["working"], lw=0
        )
        held.set_ylim(0, 1.15 * result.held_bytes)
        held.set_yticks([0, result.held_bytes], labels=["0", format_size(result.held_bytes, 3)], fontsize=8)
        held.set_ylabel("queued\nholds", fontsize=8, rotation=0, ha="right", va="center")
        streams.tick_params(labelbottom=False)
        held.set_xlabel(unit)
    else:
        streams.set_xlabel(unit)
    patches = [Patch(color=_COLOURS[use], label=_WORDS[use]) for use in _COLOURS if use in used]
    figure.legend(handles=patches, loc="lower right", ncols=len(patches) or 1)
    return with_foot(figure, said(result.changed, begin=""))


def _draw_streams(axes: Axes, result: ProgramResult, scale: float) -> tuple[set[str], float]:
    """Draw bars, skipped repetitions as one a use; return the uses drawn, and the end in scaled time."""
    names = list(result.streams)
    used: set[str] = set()
    bars: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for task, span in result.timeline.ran():
        if task.stream not in result.streams or span.end_s <= span.start_s:
            continue
        row = names.index(task.stream)
        if isinstance(task.about, SkippedRepetitions):
            at_s = span.start_s
            for use, _, seconds in task.about.busy_s:
                bars.setdefault((row, use), []).append((at_s * scale, seconds * scale))
                at_s += seconds
        elif isinstance(task.about, ProgramLabel) and task.about.use in _COLOURS:
            bars.setdefault((row, task.about.use), []).append((span.start_s * scale, span.length_s * scale))
    starts = sorted(at for pieces in bars.values() for at, _ in pieces)
    until = starts[_MOST] if len(starts) > _MOST else result.done_s * scale
    for (row, what), pieces in bars.items():
        used.add(what)
        drawn = [(at, length) for at, length in pieces if at < until]
        axes.broken_barh(drawn, (row - 0.38, 0.76), color=_COLOURS[what], lw=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), labels=names)
    return used, until
