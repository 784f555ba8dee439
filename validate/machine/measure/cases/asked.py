"""The user's own steps: with the options of ``simulate``, or one over 1, 2, ... n ranks (weak scaling).

``validate run --workload`` writes steps into the folder, so that measuring needs only torch: ``asked.json`` says how
each is run and names the file that describes its network.  ``scaling.json`` describes one step with the same batch per
rank; a single rank runs it without DistributedDataParallel or FSDP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.built.description import DescriptionFile, names
from validate.machine.measure.case import ASKED, SCALING, Case, Unavailable
from validate.machine.measure.cases.operators import single_operators
from validate.machine.measure.cases.step_shapes import MeasuredStep, Policy
from validate.machine.measure.cases.steps import on_one_device, parallel_cases
from validate.machine.measure.launched import launch, nodes_of
from validate.machine.measure.table import write_json

_VERSION = 1
_SOURCE = re.compile(r"(torch:[\w.]+:[\w.]+(:[\w,]+)?( \w+=\d+)*)?", re.ASCII)
_NOT_ASKED = ("sizes", "n_nodes")  # sizes are the network's own; the launcher determines the nodes
_MAY_BE_ZERO = ("threads", "bucket", "shards")
_KINDS = {name: kind for name, kind in get_type_hints(MeasuredStep).items() if name not in _NOT_ASKED}


def cases(bench: Bench) -> Iterator[Case]:
    """Yield the steps in the folder's ``asked.json``; raises Unavailable where it is missing or invalid."""
    try:
        shapes = read_asked(bench.scratch)
    except (OSError, ValueError) as error:
        raise Unavailable(f"{ASKED}: {error}") from None
    by_count: dict[int, list[MeasuredStep]] = {}
    for shape in shapes:
        if shape.parts:
            yield from single_operators(shape, bench)
        else:
            by_count.setdefault(shape.n_gpus, []).append(replace(shape, n_nodes=nodes_of(shape.n_gpus)))
    yield from on_one_device(by_count.pop(1, ()), bench)
    for _, of_count in sorted(by_count.items()):
        yield from parallel_cases(of_count, bench)


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
    for count in sorted(set(counts)):
        if count == 1:
            yield from on_one_device([shape], bench)
        else:
            spread = replace(shape, n_gpus=count, n_nodes=nodes_of(count))
            yield from parallel_cases([replace(spread, shards=count * (way == "fsdp")) for way in ways], bench)
