"""One training step over 1, 2, ... n ranks with the same batch per rank: weak scaling.

``scaling.json`` in the measurements folder describes the step.  A single rank runs it without
DistributedDataParallel or FSDP.  Ranks are processes on this machine, or a launcher's on several machines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.built.description import names
from validate.machine.measure.case import SCALING, Case, Unavailable
from validate.machine.measure.cases.step_shapes import MeasuredStep, Policy
from validate.machine.measure.cases.steps import on_one_device, parallel_cases
from validate.machine.measure.launched import launch, nodes_of

_MOST_CPU_RANKS = 64


def write_scaling(
    folder: Path,
    model: str,
    batch: int,
    counts: list[int],
    precision: str,
    bucket_bytes: int,
    parallel: Sequence[str] = ("dp",),
) -> None:
    """Write the requested steps into *folder*; *bucket_bytes* 0 means DistributedDataParallel's default of 25 MiB.

    *parallel*: ``dp`` for replicas, ``fsdp`` for shards, or both in turn.  Raises ValueError for unknown names or
    invalid numbers, OSError where the file cannot be written.
    """
    if model not in names():
        raise ValueError(f"--workload: no network '{model[:60]}'; {', '.join(names())}")
    if precision not in get_args(Policy):
        raise ValueError(f"--precision: no policy '{precision[:60]}'; {', '.join(get_args(Policy))}")
    if not parallel or set(parallel) - {"dp", "fsdp"}:
        raise ValueError(f"--parallel {','.join(parallel)[:60]}: dp, fsdp or both with a comma between")
    if batch < 1 or not counts or min(counts) < 1:
        raise ValueError("--batch and --gpus are whole numbers from 1 on")
    steps = {"model": model, "batch": batch, "gpus": counts, "precision": precision}
    steps |= {"bucket_bytes": bucket_bytes, "parallel": list(parallel)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCALING).write_text(json.dumps({"schema_version": 1, **steps}) + "\n", encoding="utf-8")


def cases(bench: Bench) -> Iterator[Case]:
    """Yield the step over each number of ranks; raises Unavailable where there are fewer ranks, or no step is given."""
    try:
        asked = json.loads((bench.scratch / SCALING).read_text(encoding="utf-8"))
        counts = [int(count) for count in asked["gpus"]]
        shape = MeasuredStep(
            str(asked["model"]), int(asked["batch"]), asked["precision"], bucket=int(asked["bucket_bytes"])
        )
        ways = [str(way) for way in asked["parallel"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise Unavailable(f"{SCALING} is missing or says no step; --gpus writes it") from None
    here = launch()
    most = here.world if here is not None else torch.cuda.device_count() if bench.is_cuda else _MOST_CPU_RANKS
    if max(counts) > most:
        raise Unavailable(f"--gpus {max(counts)}: there are {most} ranks at most here")
    for count in sorted(set(counts)):
        if count == 1:
            yield from on_one_device([shape], bench)
        else:
            spread = [
                replace(shape, n_gpus=count, n_nodes=nodes_of(count), shards=count * (way == "fsdp")) for way in ways
            ]
            yield from parallel_cases(spread, bench)
