"""Whole training steps, on one device and on all, issued back to back, the host as far ahead as it gets."""

import gc
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.built.description import DescriptionFile, names
from validate.machine.measure.case import ASKED, SCALING, Case, TimedRun, TimedWork, Unavailable, failure_words
from validate.machine.measure.cases import step_shapes
from validate.machine.measure.cases.operators import call_limits, single_operators
from validate.machine.measure.cases.step_shapes import MeasuredStep, Policy
from validate.machine.measure.cases.stepping import across, gpu_memory, make_step, step_figures
from validate.machine.measure.ranks import KeptRanks, greatest, launch, nodes_of, rank_device
from validate.machine.measure.table import write_json
from validate.machine.measure.timing import FEWEST, Effort, Interval, median_interval

_WARMUP = 3  # fewest warm-up steps
_PAUSE_S = 1e-3
Patience = partial(Effort, longest_s=1.2, warmup_s=0.1, most_samples=150)  # how long to measure a step, by default


class Clock:
    """Marks moments in the work of a device: CUDA events in the current stream, or a CPU's monotonic clock.

    *look* reads sensors while a GPU works; ``transient`` is the number of steps until the host is ahead of it.
    """

    def __init__(self, *, cuda: bool, look: Callable[[], None] = lambda: None) -> None:
        self.transient = 2 if cuda else 0
        self._cuda, self._look = cuda, look

    def mark(self) -> Any:
        """Return a mark of this moment in the stream; of now, on a CPU."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_s(self, earlier: Any, later: Any) -> float:
        """Return the seconds between two marks."""
        return float(earlier.elapsed_time(later)) / 1000 if self._cuda else later - earlier

    def settle(self) -> None:
        """Wait for the device; a CPU's work is complete on return."""
        if self._cuda:
            torch.cuda.synchronize()

    def watch(self, until: Any) -> None:
        """Read sensors until a GPU has reached the mark."""
        self._look()
        while self._cuda and not until.query():
            time.sleep(_PAUSE_S)
            self._look()


def steady_interval(clock: Clock, step: TimedRun, patience: Effort) -> Interval:
    """Return the median time of one step on one device, in seconds, with its interval."""
    return median_interval(agreed_samples(clock, step, patience))


def agreed_samples(
    clock: Clock, step: TimedRun, patience: Effort, greatest: Callable[[float], float] | None = None
) -> list[float]:
    """Return the seconds of each timed step on this rank; all ranks of a group call this together.

    A burst of steps is issued without waiting.  Its first ``clock.transient`` steps do not count, as the device still
    waits for the host.  All decisions depend on *greatest*, the maximum over ranks, so that all run equally many steps;
    None for one device, whose sensors are read meanwhile.
    """
    agreed = greatest or (lambda seconds: seconds)

    def burst(count: int, *, watched: bool = False) -> tuple[list[float], float]:
        """Return the seconds of each step and of all; sensors are read once all are issued, not to delay the host."""
        began_s = time.perf_counter()
        clock.settle()
        starts, ends = [], [clock.mark()]
        for _ in range(count):
            if step.prepare is not None:
                step.prepare()
                starts.append(clock.mark())
            step.run()
            ends.append(clock.mark())
        if watched:
            clock.watch(ends[-1])
        clock.settle()
        pairs = zip(starts or ends[:-1], ends[1:], strict=True)
        return [clock.between_s(start, end) for start, end in pairs], agreed(time.perf_counter() - began_s)

    one_s, spent_s = math.inf, 0.0
    for count in range(1, 1000):  # warm-up: libraries choose kernels, memory is allocated, clocks rise
        _, took_s = burst(1)
        spent_s += took_s
        one_s = min(one_s, took_s)
        if (count >= _WARMUP and spent_s >= patience.warmup_s) or (count > 1 and one_s > patience.longest_s):
            break
    fewest = FEWEST if one_s * FEWEST <= 4 * patience.longest_s else 3  # for very long steps three must do
    n = max(fewest, min(40, math.ceil(patience.longest_s / 2 / max(one_s, 1e-6))))
    samples: list[float] = []
    spent_s = 0.0
    step.begin()
    while True:
        found, took_s = burst(n + clock.transient, watched=greatest is None)
        samples += found[clock.transient :]
        spent_s += took_s
        known = agreed(median_interval(samples).relative) <= patience.interval
        if known or len(samples) >= patience.most_samples or spent_s + n * one_s > 2 * patience.longest_s:
            break
    step.end()
    return samples


# Seconds that a step takes at least, from one H200: cuDNN tries its algorithms for some 15 s in the first step of
# ResNet-50, and in the first of U-Net.
_NEEDS_S, _TRIES_S = {"eager": 3.0, "graph": 4.0, "compile": 45.0}, 15.0
_FIRST = 10  # steps on one GPU before those on all GPUs
_LENGTH = 160
_ON_CPU = Patience(interval=0.02, longest_s=0.4, warmup_s=0.0)


def policies_of(bench: Bench) -> tuple[Policy, ...]:
    """Return the precision policies that *bench* has units for."""
    every: tuple[Policy, ...] = ("fp32", "fp16", "amp-fp16", "bf16", "amp-bf16", "tf32")
    precisions = call_limits(bench).precisions
    return tuple(policy for policy in every if policy.removeprefix("amp-") in precisions)


def cases(bench: Bench) -> Iterator[Case]:
    """Yield steps on *bench*, networks in turn and each time run in another way; steps on all GPUs come early."""
    policies = policies_of(bench)
    shapes = step_shapes.gpu_steps(policies) if bench.is_cuda else iter(step_shapes.CPU_STEPS)
    count = torch.cuda.device_count() if bench.is_cuda and not bench.alone else 1
    yield from on_one_device(islice(shapes, _FIRST), bench)
    if count > 1:
        yield from parallel_cases(tuple(step_shapes.parallel_steps(count, policies)), bench)
    yield from on_one_device(shapes, bench)


def judged_cases(bench: Bench) -> Iterator[Case]:
    """Yield the six steps that judge a calibration: eager, as one graph, compiled, each begun only with time for it."""
    for shape in step_shapes.judged_steps(policies_of(bench)) if bench.is_cuda else ():
        needs_s = _NEEDS_S[shape.issue] + (_TRIES_S if shape.channels_last and shape.issue == "eager" else 0.0)
        yield _case(shape, bench, partial(_build, shape))._replace(needs_s=needs_s)


def on_one_device(shapes: Iterable[MeasuredStep], bench: Bench) -> Iterator[Case]:
    """Yield *shapes*, each on one device."""
    for shape in shapes:
        yield _case(shape, bench, partial(_build, shape))


def parallel_cases(shapes: Sequence[MeasuredStep], bench: Bench) -> Iterator[Case]:
    """Yield *shapes*, all for the same number of ranks, which run until the last case is done."""
    with KeptRanks(cuda=bench.is_cuda) as ranks:
        for shape in shapes:
            yield _case(shape, bench, partial(_build_over_ranks, shape, ranks))


def _case(shape: MeasuredStep, bench: Bench, build: Callable[[Bench], TimedWork]) -> Case:
    threads = 0 if bench.is_cuda else torch.get_num_threads()
    return Case("training.csv", {"row_id": shape.row_id(bench.machine, threads), **shape.cells(threads)}, build)


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
    clock = Clock(cuda=bench.is_cuda, look=bench.sensors.look)
    own = partial(steady_interval, clock, step, Patience() if bench.is_cuda else _ON_CPU)
    return TimedWork(
        lambda _: step.run(), figures=lambda found: step_figures(shape, found, [gpu_memory(bench.device)]), own=own
    )


def _build_over_ranks(shape: MeasuredStep, ranks: KeptRanks, bench: Bench) -> TimedWork:
    held: list[Mapping[str, int]] = []

    def measure() -> Interval:
        found = ranks.run(shape.n_gpus, rank_step, shape, ranks.cuda, look=bench.sensors.look)
        held.extend(memory for _, memory in found)
        return of_all([samples for samples, _ in found])

    return TimedWork(lambda _: None, figures=lambda found: step_figures(shape, found, held), own=measure)


def of_all(samples: Sequence[Sequence[float]]) -> Interval:
    """Return the median step time, each step being averaged over the ranks.

    As all wait for each other, a step that one rank ends late is followed by one that it sees as short, and the maximum
    over ranks would count the delay alone.
    """
    return median_interval([fmean(step) for step in zip(*samples, strict=True)])


def rank_step(_: int, __: int, shape: MeasuredStep, cuda: bool) -> tuple[list[float], dict[str, int]]:
    """Return the step times on this rank, in seconds, and the memory of its GPU."""
    device = rank_device(cuda=cuda)

    def give_back() -> None:
        gc.collect()  # modules contain reference cycles
        if cuda:
            torch.cuda.empty_cache()

    give_back()
    step: TimedRun | None = None
    try:
        step = make_step(shape, device, partial(across, shape=shape, device=device))
        return agreed_samples(Clock(cuda=cuda), step, Patience(), partial(greatest, device=device)), gpu_memory(device)
    finally:
        step = None
        give_back()


_VERSION = 1
_SOURCE = re.compile(r"(torch:[\w.]+:[\w.]+(:[\w,]+)?( \w+=\d+)*)?", re.ASCII)
_NOT_ASKED = ("sizes", "n_nodes")  # sizes are the network's own; the launcher determines the nodes
_MAY_BE_ZERO = ("threads", "bucket", "shards")
_KINDS = {name: kind for name, kind in get_type_hints(MeasuredStep).items() if name not in _NOT_ASKED}


def asked_cases(bench: Bench) -> Iterator[Case]:
    """Yield the steps in the folder's ``asked.json``; raises Unavailable where it is missing or invalid."""
    try:
        shapes = read_asked(bench.scratch)
    except (OSError, ValueError) as error:
        raise Unavailable(f"{ASKED}: {error}") from None
    for shape in shapes:
        yield from single_operators(shape, bench) if shape.parts else ()
    yield from _by_count((shape for shape in shapes if not shape.parts), bench)


def _by_count(shapes: Iterable[MeasuredStep], bench: Bench) -> Iterator[Case]:
    found = sorted(shapes, key=lambda shape: shape.n_gpus)
    for count, of_count in groupby(found, key=lambda shape: shape.n_gpus):
        placed = [replace(shape, n_nodes=nodes_of(count)) for shape in of_count]
        yield from on_one_device(placed, bench) if count == 1 else parallel_cases(placed, bench)


def read_asked(folder: Path) -> list[MeasuredStep]:
    """Return the steps requested in *folder*; raises OSError or ValueError."""
    found = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    if not isinstance(found, dict) or found.get("schema_version") != _VERSION or type(found.get("steps")) is not list:
        raise ValueError("is not a list of steps")
    return [_shape(raw, str(folder)) for raw in found["steps"]]


def write_asked(folder: Path, shapes: Sequence[MeasuredStep]) -> None:
    """Add *shapes*, whose networks are described in *folder*, to the steps requested there; raises OSError."""
    path = folder / ASKED
    steps = []
    for shape in dict.fromkeys((*(read_asked(folder) if path.is_file() else []), *shapes)):
        assert shape.network is not None
        steps.append({name: value for name, value in asdict(shape).items() if name not in _NOT_ASKED})
        steps[-1]["network"] = shape.network.name
    write_json(path, {"schema_version": _VERSION, "steps": steps})


def _shape(raw: Any, folder: str) -> MeasuredStep:
    if not isinstance(raw, dict) or not isinstance(raw.get("network"), str) or not isinstance(raw.get("model"), str):
        raise ValueError("a step names its model and its network")
    name = PurePosixPath(raw["network"])
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"{name} is not in this folder")
    if unknown := set(raw) - set(_KINDS):
        raise ValueError(f"a step has no '{min(unknown)}'")
    if not _SOURCE.fullmatch(source := raw.get("source", "")):
        raise ValueError(f"source '{source}' is no factory")
    for key, value in raw.items():
        choices = get_args(_KINDS[key]) if get_origin(_KINDS[key]) is Literal else ()
        if choices and value not in choices:
            raise ValueError(f"{key} '{value}'; {', '.join(filter(None, choices))}")
        if _KINDS[key] is int and (type(value) is not int or value < (key not in _MAY_BE_ZERO)):
            raise ValueError(f"{key} must be a whole number")
        if _KINDS[key] is bool and type(value) is not bool:
            raise ValueError(f"{key} must be true or false")
    count, shards = raw.get("n_gpus", 1), raw.get("shards", 0)
    if shards and (shards > count or count % shards):
        raise ValueError(f"{shards} ranks with a whole of the parameters, among {count}")
    return MeasuredStep(**{**raw, "network": DescriptionFile(folder, str(name))})


_MOST_CPU_RANKS = 64


def write_scaling(
    folder: Path, model: str, batch: int, counts: list[int], precision: str, bucket_bytes: int, parallel: Sequence[str]
) -> None:
    """Write steps into *folder* (``dp`` or ``fsdp``; *bucket_bytes* 0: torch's own); raises ValueError, OSError."""
    if model not in names():
        raise ValueError(f"--workload: no network '{model[:60]}'; {', '.join(names())}")
    if precision not in get_args(Policy):
        raise ValueError(f"--precision: no policy '{precision[:60]}'; {', '.join(get_args(Policy))}")
    if not parallel or set(parallel) - {"dp", "fsdp"}:
        raise ValueError(f"--parallel {','.join(parallel)[:60]}: dp, fsdp or both with a comma between")
    if batch < 1 or not counts or min(counts) < 1:
        raise ValueError("--batch and --gpus are whole numbers from 1 on")
    steps = {"schema_version": 1, "model": model, "batch": batch, "gpus": counts, "precision": precision}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SCALING, {**steps, "bucket_bytes": bucket_bytes, "parallel": list(parallel)})


def scaling_cases(bench: Bench) -> Iterator[Case]:
    """Yield the step over each number of ranks; raises Unavailable where there are fewer ranks, or no step is given."""
    try:
        asked = json.loads((bench.scratch / SCALING).read_text(encoding="utf-8"))
        counts, ways = [int(count) for count in asked["gpus"]], [str(way) for way in asked["parallel"]]
        shape = MeasuredStep(str(asked["model"]), int(asked["batch"]), asked["precision"])
        shape = replace(shape, bucket=int(asked["bucket_bytes"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise Unavailable(f"{SCALING} is missing or says no step; --gpus writes it") from None
    here = launch()
    most = here.world if here is not None else torch.cuda.device_count() if bench.is_cuda else _MOST_CPU_RANKS
    if max(counts) > most:
        raise Unavailable(f"--gpus {max(counts)}: there are {most} ranks at most here")
    spread = [(n, n * (way == "fsdp")) for n in {*counts} - {1} for way in ways]
    spread += [(1, 0)] if 1 in counts else []
    yield from _by_count((replace(shape, n_gpus=count, shards=shards) for count, shards in spread), bench)
