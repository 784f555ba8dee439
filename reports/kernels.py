"""A step's kernels under its device's roofline (Williams et al., 2009), memory over time, and stages' works."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from reports.colours import HELD, INK, PASSES, kernel_colour
from simulator.results.held import HeldAt
from simulator.results.step import StepResult
from simulator.results.training import TrainingResult
from simulator.step.launch import Launch
from simulator.step.memory import MemoryNeed
from simulator.topology.parts import CpuPart, GpuPart
from simulator.training.worker import STREAM, ChunkRun, CollectiveLabel, LaunchLabel
from simulator.units import format_duration, format_size
from simulator.workload.kernels import without_library
from simulator.workload.network import in_any_block

_MOST_POINTS = 200
_LARGEST = 130.0  # area, in square points, of a marker whose kernels take all of the time
_MOST_ROWS = 16


class RooflinePoint(NamedTuple):
    """Kernels of one class in one part of the step, of layers that differ only in the number of their block."""

    kind: str
    layers: str
    part: str
    flop: float
    bytes: float
    time_s: float

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOPs per byte of device memory."""
        return self.flop / self.bytes

    @property
    def rate(self) -> float:
        """FLOP/s achieved."""
        return self.flop / self.time_s


Roofs = tuple[dict[str, float], float]
"""The data-sheet limits of a device: the peaks in FLOP/s of the step's formats, and the memory bandwidth in B/s."""


def roofline_points(step: StepResult) -> list[RooflinePoint]:
    """Return the kernels of *step* that compute and access memory, each once, by class and layers, longest first."""
    sums: dict[tuple[str, str, str], list[float]] = {}
    for issue in _issues(step):
        layers = in_any_block(issue.layer or issue.name)
        for kind, cost in zip(issue.work.kinds, issue.work.costs, strict=True):
            own = cost.flop, cost.bytes, cost.time_s
            if min(own) > 0:
                key = without_library(kind), layers, issue.part
                sums[key] = [a + b for a, b in zip(sums.get(key, (0.0, 0.0, 0.0)), own, strict=True)]
    points = [RooflinePoint(*key, *values) for key, values in sums.items()]
    return sorted(points, key=lambda point: -round(point.time_s, 12))


def roofs_of(step: StepResult) -> Roofs | None:
    """Return the roofs of the device of *step*, or None if its part lacks figures."""
    node = step.timeline.machine.find(step.device)
    part = node.part if node is not None else None
    if not isinstance(part, GpuPart | CpuPart) or not part.memory_bandwidth:
        return None
    peaks = {"": step.peak_flops_per_s}
    if isinstance(part, GpuPart):
        peaks = {name: rate for name, rate in part.peak.items() if name in step.flop_by_format} or peaks
    elif not step.peak_flops_per_s:
        return None
    return dict(sorted(peaks.items(), key=lambda item: -item[1])), part.memory_bandwidth


def _issues(step: StepResult) -> Iterator[Launch]:
    seen: set[int] = set()
    first: int | None = None
    for task in step.timeline.plan.tasks:
        if not task.stream.startswith(step.prefix):
            continue
        about = task.about
        if isinstance(about, LaunchLabel) and (not about.on_host or step.on_host):
            first = about.micro_batch if first is None else first
            if about.micro_batch == first or not about.issue.layer:
                yield about.issue
        elif isinstance(about, ChunkRun) and id(about.issues) not in seen:
            seen.add(id(about.issues))
            yield from about.issues


def draw_roofline(axes: Axes, points: Sequence[RooflinePoint], roofs: Roofs) -> None:
    """Draw *points* under *roofs*, with areas in proportion to their time and the colours of their classes."""
    shown, (peaks, memory_Bps) = points[:_MOST_POINTS], roofs
    whole_s, peak = sum(point.time_s for point in shown), max(peaks.values())
    low = min(0.5, *(point.intensity for point in shown)) / 1.5
    high = max(4 * peak / memory_Bps, *(2 * point.intensity for point in shown))
    for name, rate in peaks.items():
        ridge = rate / memory_Bps
        axes.plot([low, ridge, high], [low * memory_Bps, rate, rate], color=INK, linewidth=0.9, zorder=2)
        if rate == peak or len(peaks) < 3:
            text = f"{name} {_rate(rate)}".strip()
            # No point is above the sloping roof, so the space left of the ridge is free.
            axes.annotate(text, (ridge, rate), (-3, 3), textcoords="offset points", ha="right", fontsize=8)
    at = [point.intensity for point in shown], [point.rate for point in shown]
    areas = [6.0 + _LARGEST * point.time_s / whole_s for point in shown]
    axes.scatter(*at, s=areas, c=[kernel_colour(point.kind) for point in shown], linewidths=0, alpha=0.85, zorder=3)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(min(at[1]) / 3, 3 * peak))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set(major_locator=LogLocator(numticks=6), minor_locator=NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: _rate(value))
    axes.set_xlabel("FLOP for each byte of memory", fontsize=8)
    axes.set_title("kernels under the data sheet's roofs; larger: more time")
    axes.grid()


def draw_held(axes: Axes, held: Sequence[HeldAt], need: MemoryNeed) -> None:
    """Draw the memory in use over the step and the memory available, in the colours of the bar of *need*."""
    times, available_bytes = [each.at_s for each in held], need.available_bytes
    lasting = {
        "optimiser": need.optimizer_bytes,
        "fragmentation": need.cached_bytes,
        "communication": need.communication_bytes,
        "driver": need.context_bytes,
    }
    rest = held[0].lasting_bytes - sum(lasting.values())
    parameters = min(need.parameters_bytes, rest)  # without copies that come and go, which are working memory
    layers = {
        "parameters": [parameters] * len(held),
        **{name: [n_bytes] * len(held) for name, n_bytes in lasting.items() if n_bytes},
        "activations": [each.activations_bytes for each in held],
        "gradients": [each.gradients_bytes for each in held],
        "working": [each.working_bytes + rest - parameters for each in held],  # with buckets and workspaces
    }
    axes.stackplot(times, list(layers.values()), colors=[HELD[name] for name in layers], linewidth=0)
    most = max(held, key=lambda each: each.total_bytes)
    top = most.total_bytes
    if isfinite(available_bytes) and available_bytes < 3 * top:
        axes.axhline(available_bytes, color=INK, linewidth=1.2)
        top = max(top, available_bytes)
    text = f"most: {format_size(most.total_bytes, 3)} at {format_duration(most.at_s, 3)}"
    axes.set(ylim=(0, 1.1 * top), xlim=(0, times[-1]), title=f"memory over the step; {text}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda value, _: format_duration(value, 3))
    axes.yaxis.set_major_formatter(lambda value, _: format_size(value, 3))
    axes.grid()


def _rate(flop_per_s: float) -> str:
    scales = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
    scale, prefix = next(((s, p) for s, p in scales if flop_per_s >= s * 0.9995), (1.0, ""))
    return f"{flop_per_s / scale:.3g} {prefix}FLOP/s"


def draw_passes(axes: Axes, result: TrainingResult) -> int:
    """Draw the activities of each stage over time (of many stages, a selection); return the number of rows."""
    stages = result.question.layout.pp
    shown = list(range(0, stages, -(-stages // _MOST_ROWS)))
    bars: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for task, span in result.timeline.ran(ChunkRun, CollectiveLabel):
        owner, _, stream = task.stream.rpartition("/")
        stage = int(owner.removeprefix("stage "))
        exchange = "communication" if stream == STREAM else ""
        what: str = task.about.part if isinstance(task.about, ChunkRun) else exchange
        if what and stage in shown and span.end_s > span.start_s:
            bars.setdefault((stage, what), []).append((span.start_s, span.length_s))
    edge = 0.4 if sum(map(len, bars.values())) < 600 else 0.0  # outlines only while passes can be told apart
    for (stage, what), found in bars.items():
        low, tall = (0.22, 0.16) if what == "communication" else (-0.34, 0.52)
        row = shown.index(stage) + low
        axes.broken_barh(found, (row, tall), facecolors=PASSES[what], edgecolors="white", linewidth=edge)
    for what, colour in PASSES.items():
        if any(name == what for _, name in bars):
            axes.barh([0], [0], color=colour, label=what)
    axes.set_yticks(range(len(shown)), [f"stage {stage}" for stage in shown])
    axes.set(ylim=(len(shown) - 0.4, -0.6), title="what the stages of the pipeline do")
    axes.legend(ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0), handlelength=1.0)
    return len(shown)
