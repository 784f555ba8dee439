"""A step's kernels under the roofline of its device: FLOP/s over arithmetic intensity (FLOP/B).

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", 2009.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.records import dataclass
from simulator.results.step import StepResult
from simulator.step.issue import Launch
from simulator.topology.parts import CpuPart, GpuPart
from simulator.training.worker import ChunkRun, LaunchLabel
from simulator.workload.kernels import without_library
from simulator.workload.network import in_any_block


@dataclass(frozen=True, slots=True)
class RooflinePoint:
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


@dataclass(frozen=True, slots=True)
class Roofs:
    """The data-sheet limits of a device: the peaks in FLOP/s of the step's formats, and the memory bandwidth in B/s."""

    peaks: dict[str, float]
    memory_Bps: float


def roofline_points(step: StepResult) -> list[RooflinePoint]:
    """Return the kernels of *step* that compute and access memory, by class and layers, the longest first.

    Each kernel counts once, with its time alone.
    """
    sums: dict[tuple[str, str, str], list[float]] = {}
    for issue in _issues(step):
        layers = in_any_block(issue.layer or issue.name)
        for kind, cost in zip(issue.work.kinds, issue.work.costs, strict=True):
            if cost.flop > 0 and cost.bytes > 0 and cost.time_s > 0:
                found = sums.setdefault((without_library(kind), layers, issue.part), [0.0, 0.0, 0.0])
                for place, value in enumerate((cost.flop, cost.bytes, cost.time_s)):
                    found[place] += value
    points = [RooflinePoint(*key, *values) for key, values in sums.items()]
    return sorted(points, key=lambda point: -round(point.time_s, 12))


def roofs_of(step: StepResult) -> Roofs | None:
    """Return the roofs of the device of *step*, or None if its part lacks figures."""
    node = step.timeline.machine.find(step.device)
    part = node.part if node is not None else None
    if isinstance(part, GpuPart) and part.memory_bandwidth:
        formats: set[str] = set(step.flop_by_format)
        peaks: dict[str, float] = {name: rate for name, rate in part.peak.items() if name in formats}
        peaks = peaks or {"": step.peak_flops_per_s}
        return Roofs(dict(sorted(peaks.items(), key=lambda item: -item[1])), part.memory_bandwidth)
    if isinstance(part, CpuPart) and part.memory_bandwidth and step.peak_flops_per_s:
        return Roofs({"": step.peak_flops_per_s}, part.memory_bandwidth)
    return None


def _issues(step: StepResult) -> Iterator[Launch]:
    """Yield the issues that the device of *step* runs for one micro-batch."""
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
