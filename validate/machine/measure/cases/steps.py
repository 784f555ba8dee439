"""Whole training steps (forward, loss, backward, update), on one device and data-parallel on all."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, TimedWork, Unavailable
from validate.machine.measure.cases.steady import Clock, CpuClock, CudaClock, Patience, TimedRun, steady_interval
from validate.machine.measure.cases.step_ranks import parallel_cases
from validate.machine.measure.cases.step_shapes import CPU_STEPS, MeasuredStep, Policy, gpu_steps, parallel_steps
from validate.machine.measure.cases.stepping import make_step, step_figures
from validate.machine.measure.faults import failure_words
from validate.machine.measure.statistics import Interval

_FIRST = 10  # steps on one GPU before those on all GPUs
_LENGTH = 160
_ON_CPU = Patience(interval=0.02, longest_s=0.4, warmup_s=0.0)


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
        columns = {"row_id": shape.row_id(machine, threads), **shape.cells(threads)}
        yield Case("asked" if shape.network else "steps", "training.csv", columns, partial(_build, shape))


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


def _time(bench: Bench, step: TimedRun) -> Interval:
    clock: Clock = CudaClock(bench.sensors.look) if bench.is_cuda else CpuClock()
    return steady_interval(clock, step, Patience() if bench.is_cuda else _ON_CPU)


def _figures(shape: MeasuredStep, bench: Bench, interval: Interval) -> Mapping[str, Any]:
    peak = torch.cuda.max_memory_allocated(bench.device) if bench.is_cuda else None
    return step_figures(shape, interval, peak)
