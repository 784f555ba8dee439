"""Data-parallel steps: the same step on every rank, with replicas or shards."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, TimedWork
from validate.machine.measure.cases.across import across
from validate.machine.measure.cases.steady import CpuClock, CudaClock, Patience, TimedRun, agreed_samples
from validate.machine.measure.cases.step_shapes import MeasuredStep
from validate.machine.measure.cases.stepping import make_step, step_figures
from validate.machine.measure.launched import LaunchedRanks, ranks_of
from validate.machine.measure.ranks import RankProcesses
from validate.machine.measure.statistics import Interval, median_interval

_LONGEST_S = 120.0  # timeout for building the network on each rank and running its steps


class LazyRanks:
    """Ranks that are started at the first task, and again after a fault."""

    def __init__(self, count: int, *, cuda: bool) -> None:
        self.count, self.cuda = count, cuda
        self._ranks: RankProcesses | LaunchedRanks | None = None

    def run(self, function: Callable[..., Any], *arguments: Any, look: Callable[[], None] | None = None) -> list[Any]:
        """Return the results of *function* on all ranks; raises RanksFailed."""
        if self._ranks is None or not self._ranks.alive:
            self._ranks = ranks_of(self.count, cuda=self.cuda)
        return self._ranks.run(function, *arguments, timeout_s=_LONGEST_S, look=look)

    def close(self) -> None:
        """End the ranks."""
        if self._ranks is not None:
            self._ranks.close()


def parallel_cases(shapes: Sequence[MeasuredStep], machine: str, threads: int = 0) -> Iterator[Case]:
    """Yield *shapes*, all for the same number of ranks, which run until the last case is done."""
    ranks = LazyRanks(shapes[0].n_gpus, cuda=not threads)
    try:
        for shape in shapes:
            columns = {"row_id": shape.row_id(machine, threads), **shape.cells(threads)}
            yield Case("asked" if shape.network else "steps", "training.csv", columns, partial(_build, shape, ranks))
    finally:
        ranks.close()


def _build(shape: MeasuredStep, ranks: LazyRanks, bench: Bench) -> TimedWork:
    peaks: list[int | None] = []

    def measure() -> Interval:
        found = ranks.run(rank_step, shape, ranks.cuda, look=bench.sensors.look)
        peaks.extend(peak for _, peak in found)
        return of_all([samples for samples, _ in found])

    def figures(interval: Interval) -> Mapping[str, Any]:
        return step_figures(shape, interval, max((peak for peak in peaks if peak is not None), default=None))

    return TimedWork(lambda _: None, figures=figures, own=measure)


def of_all(samples: Sequence[Sequence[float]]) -> Interval:
    """Return the median step time, each step being averaged over the ranks.

    All ranks wait for each other in every step, so a step that one rank ends late is followed by one that it sees as
    short.  The maximum over ranks would count every such delay and never what makes up for it.
    """
    return median_interval([fmean(step) for step in zip(*samples, strict=True)])


def rank_step(rank: int, count: int, shape: MeasuredStep, cuda: bool) -> tuple[list[float], int | None]:
    """Return the step times on this rank, in seconds, and its peak of allocated memory in bytes (None on CPUs)."""
    del rank, count
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    _give_back(cuda)

    def greatest(seconds: float) -> float:
        value = torch.tensor([seconds], dtype=torch.float64, device=device)
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return float(value.item())

    clock = CudaClock(lambda: None) if cuda else CpuClock()
    step: TimedRun | None = None
    try:
        step = make_step(shape, device, partial(across, shape=shape, device=device))
        samples = agreed_samples(clock, step, Patience(), greatest)
        return samples, torch.cuda.max_memory_allocated(device) if cuda else None
    finally:
        step = None
        _give_back(cuda)


def _give_back(cuda: bool) -> None:
    """Free the memory of an unused network: modules contain reference cycles, which need the garbage collector."""
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
