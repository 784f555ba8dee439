"""The timeline of a pipeline's stages over a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.colours import ACTIVITIES
from simulator.results.training import TrainingResult
from simulator.training.exchange import STREAM, CollectiveLabel
from simulator.training.worker import ChunkRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 16
# Colours of a stage's activities; forward is a lighter tint of computing.
_COLOURS = {
    "forward": "#7fb8d8",
    "backward": ACTIVITIES["computing"],
    "update": ACTIVITIES["update"],
    "communication": ACTIVITIES["exchange"],
}


def draw_passes(axes: Axes, result: TrainingResult) -> int:
    """Draw the activities of each stage over time (of many stages, a selection); return the number of rows."""
    stages = result.question.layout.pp
    step = -(-stages // _MOST_ROWS)
    shown = list(range(0, stages, step))
    bars: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for task, span in result.timeline.ran():
        owner, _, stream = task.stream.rpartition("/")
        stage = int(owner.removeprefix("stage "))
        if stage not in shown or span.end_s <= span.start_s:
            continue
        if isinstance(task.about, ChunkRun):
            bars.setdefault((stage, task.about.part), []).append((span.start_s, span.length_s))
        elif stream == STREAM and isinstance(task.about, CollectiveLabel):
            bars.setdefault((stage, "communication"), []).append((span.start_s, span.length_s))
    edge = 0.4 if sum(map(len, bars.values())) < 600 else 0.0  # outlines only while passes can be told apart
    for (stage, what), found in bars.items():
        low, tall = (0.22, 0.16) if what == "communication" else (-0.34, 0.52)
        row = shown.index(stage) + low
        axes.broken_barh(found, (row, tall), facecolors=_COLOURS[what], edgecolors="white", linewidth=edge)
    for what, colour in _COLOURS.items():
        if any(name == what for _, name in bars):
            axes.barh([0], [0], color=colour, label=what)
    axes.set_yticks(range(len(shown)), [f"stage {stage}" for stage in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_title("what the stages of the pipeline do", fontsize=10, loc="left")
    axes.legend(fontsize=8, ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, handlelength=1.0)
    return len(shown)
