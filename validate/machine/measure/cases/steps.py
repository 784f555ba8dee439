"""Whole training steps (forward, loss, backward, update), on one device and data-parallel on all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from statistics import fmean
from typing import Any

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, TimedWork, Unavailable, failure_words
from validate.machine.measure.cases import steady
from validate.machine.measure.cases.step_shapes import CPU_STEPS, MeasuredStep, Policy, gpu_steps, parallel_steps
from validate.machine.measure.cases.stepping import across, gpu_memory, make_step, most_memory, step_figures
from validate.machine.measure.launched import KeptRanks
from validate.machine.measure.timing import Interval, median_interval
from validate.machine.measure.together import greatest

_FIRST = 10  # steps on one GPU before those on all GPUs
_LENGTH = 160
_ON_CPU = steady.Patience(interval=0.02, longest_s=0.4, warmup_s=0.0)


def policies_of(bench: Bench) -> tuple[Policy, ...]:
    """Return the precision policies that *bench* has units for."""
    if not bench.is_cuda:
        return ("fp32",)
    ours = torch.version.hip is None
    since_ampere = torch.cuda.get_device_properties(bench.device).major >= 8
    found: list[Policy] = ["fp32", "fp16", "amp-fp16"]
    if not ours or since_ampere:
        found += ["bf16", "amp-bf16"]
    if ours and since_ampere:
        found.append("tf32")
    return tuple(found)


def cases(bench: Bench, machine: str) -> Iterator[Case]:
    """Yield steps on *bench*, networks in turn and each time run in another way; steps on all GPUs come early."""
    threads = 0 if bench.is_cuda else torch.get_num_threads()
    policies = policies_of(bench)
    shapes = gpu_steps(policies) if bench.is_cuda else iter(CPU_STEPS)
    count = torch.cuda.device_count() if bench.is_cuda and not bench.alone else 1
    yield from on_one_device(islice(shapes, _FIRST), machine, threads)
    if count > 1:
        yield from parallel_cases(tuple(parallel_steps(count, policies)), machine)
    yield from on_one_device(shapes, machine, threads)


def on_one_device(shapes: Iterable[MeasuredStep], machine: str, threads: int) -> Iterator[Case]:
    """Yield *shapes*, each on one device."""
    for shape in shapes:
        yield _case(shape, machine, threads, partial(_build, shape))


def parallel_cases(shapes: Sequence[MeasuredStep], machine: str, threads: int = 0) -> Iterator[Case]:
    """Yield *shapes*, all for the same number of ranks, which run until the last case is done."""
    with KeptRanks(cuda=not threads) as ranks:
        for shape in shapes:
            yield _case(shape, machine, threads, partial(_build_over_ranks, shape, ranks))


def _case(shape: MeasuredStep, machine: str, threads: int, build: Callable[[Bench], TimedWork]) -> Case:
    columns = {"row_id": shape.row_id(machine, threads), **shape.cells(threads)}
    return Case("asked" if shape.network else "steps", "training.csv", columns, build)


def _build(shape: MeasuredStep, bench: Bench) -> TimedWork:
    gc.collect()  # modules contain reference cycles; free what the last case held
    bench.release()
    try:
        step = make_step(shape, bench.device)
        if shape.issue != "eager":  # compilation fails at the first step
            step.run()
            bench.settle()
    except RuntimeError as error:
        if shape.issue == "eager" or isinstance(error, torch.OutOfMemoryError):
            raise
        if "captur" in str(error):  # a failed capture ends with a CUDA error, but the device survives
            raise Unavailable(f"graph: {' '.join(str(error).split())[:_LENGTH]}") from None
        raise Unavailable(f"{shape.issue}: {failure_words(error)}") from None  # raises Fatal where the device is lost
    return TimedWork(lambda _: step.run(), figures=partial(_figures, shape, bench), own=partial(_time, bench, step))


def _time(bench: Bench, step: steady.TimedRun) -> Interval:
    clock: steady.Clock = steady.CudaClock(bench.sensors.look) if bench.is_cuda else steady.CpuClock()
    return steady.steady_interval(clock, step, steady.Patience() if bench.is_cuda else _ON_CPU)


def _figures(shape: MeasuredStep, bench: Bench, interval: Interval) -> Mapping[str, Any]:
    return step_figures(shape, interval, gpu_memory(bench.device))


def _build_over_ranks(shape: MeasuredStep, ranks: KeptRanks, bench: Bench) -> TimedWork:
    held: list[Mapping[str, int]] = []

    def measure() -> Interval:
        found = ranks.run(shape.n_gpus, rank_step, shape, ranks.cuda, look=bench.sensors.look)
        held.extend(memory for _, memory in found)
        return of_all([samples for samples, _ in found])

    def figures(interval: Interval) -> Mapping[str, Any]:
        return step_figures(shape, interval, most_memory(held))

    return TimedWork(lambda _: None, figures=figures, own=measure)


def of_all(samples: Sequence[Sequence[float]]) -> Interval:
    """Return the median step time, each step being averaged over the ranks.

    All ranks wait for each other in every step, so a step that one rank ends late is followed by one that it sees as
    short.  The maximum over ranks would count every such delay and never what makes up for it.
    """
    return median_interval([fmean(step) for step in zip(*samples, strict=True)])


def rank_step(rank: int, count: int, shape: MeasuredStep, cuda: bool) -> tuple[list[float], dict[str, int]]:
    """Return the step times on this rank, in seconds, and the memory of its GPU."""
    del rank, count
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    _give_back(cuda)

    clock = steady.CudaClock(lambda: None) if cuda else steady.CpuClock()
    step: steady.TimedRun | None = None
    try:
        step = make_step(shape, device, partial(across, shape=shape, device=device))
        samples = steady.agreed_samples(clock, step, steady.Patience(), partial(greatest, device=device))
        return samples, gpu_memory(device)
    finally:
        step = None
        _give_back(cuda)


def _give_back(cuda: bool) -> None:
    """Free the memory of an unused network: modules contain reference cycles, which need the garbage collector."""
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
