"""The settings of DeepSpeed's JSON configuration that affect a step: :func:`read_deepspeed`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, one_line
from simulator.topology.json_source import read_json

__all__ = ["DeepSpeed", "read_deepspeed"]

_TIMELESS = frozenset(
    (
        *("steps_per_print", "wall_clock_breakdown", "gradient_clipping", "prescale_gradients", "scheduler"),
        *("tensorboard", "wandb", "csv_monitor", "flops_profiler", "comms_logger", "dump_state", "checkpoint"),
        *(
            "zero_allow_untested_optimizer",
            "zero_force_ds_cpu_optimizer",
            "optimizer",
            "data_types",
            "memory_breakdown",
        ),
        *(
            "gradient_predivide_factor",
            "data_efficiency",
            "elasticity",
            "aio",
            "autotuning",
            "activation_checkpointing",
        ),
    )
)


@dataclass(slots=True)
class DeepSpeed:
    """Settings of a file; None if a setting is missing or ``auto``."""

    zero: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    micro_batches: int | None = None
    precision: str | None = None
    notes: list[str] = field(default_factory=list)


def read_deepspeed(path: str) -> DeepSpeed:
    """Return the settings of the file at *path*; raises InputError if it cannot be read or a value is invalid."""
    source = read_json(Path(path), "DeepSpeed configuration")
    data: Mapping[str, Any] = source.data
    found = DeepSpeed()
    faults: list[Fault] = []

    def number(place: tuple[str, ...], least: int, most: int = 10**9) -> int | None:
        *within, key = place
        value = (mapping(within[0]) if within else data).get(key)
        if value is None or value == "auto":
            return None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        told = f"{key}: must be a whole number, {least} to {most}; got {one_line(value, 40)}"
        faults.append(source.fault(place, told))
        return None

    def mapping(key: str) -> Mapping[str, Any]:
        value = data.get(key, {})
        if not isinstance(value, dict):
            faults.append(source.fault((key,), f"{key}: must be a mapping; got {one_line(value, 40)}"))
            return {}
        return value

    zero = mapping("zero_optimization")
    found.zero = number(("zero_optimization", "stage"), 0, 3)
    found.batch = number(("train_batch_size",), 1)
    found.micro_batch = number(("train_micro_batch_size_per_gpu",), 1)
    found.micro_batches = number(("gradient_accumulation_steps",), 1)
    halves = [name for name in ("bf16", "fp16") if mapping(name).get("enabled") is True]
    if halves:
        found.precision = f"master-{halves[0]}"
    if len(halves) > 1:
        faults.append(source.fault(("fp16",), "fp16: bf16 is enabled too; DeepSpeed takes one of the two", key=True))
    for key in ("offload_optimizer", "offload_param"):
        device = zero.get(key)
        if isinstance(device, dict) and device.get("device", "none") != "none":
            found.notes.append(f"{path}: zero_optimization.{key} is not modelled; nothing is kept off the GPU")
    for key in ("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients", "mics_shard_size"):
        if zero.get(key) not in (None, False, 1, -1):
            found.notes.append(f"{path}: zero_optimization.{key} is not modelled")
    known = {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "bf16", "fp16"}
    others = [key for key in data if key not in known | _TIMELESS | {"gradient_accumulation_steps"}]
    if others:
        found.notes.append(f"{path}: not known, and without effect: {', '.join(one_line(key, 40) for key in others)}")
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    return found
