"""DeepSpeed's JSON, as far as it says what a step does: :func:`read_deepspeed`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, one_line

__all__ = ["DeepSpeed", "read_deepspeed"]

_MOST_BYTES = 4_000_000
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
    """What a file says; None where it says nothing, or ``auto``."""

    zero: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    micro_batches: int | None = None
    precision: str | None = None
    notes: list[str] = field(default_factory=list)


def read_deepspeed(path: str) -> DeepSpeed:
    """Return what the file at *path* says; raises InputError where it cannot be read or a value is none."""
    try:
        with Path(path).open("rb") as stream:
            data = json.loads(stream.read(_MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise InputError(Fault(f"cannot be read: {error.strerror or error}", path)) from None
    except json.JSONDecodeError as error:
        raise InputError(Fault(f"is not valid JSON: {one_line(error.msg)}", path, error.lineno, error.colno)) from None
    except (UnicodeDecodeError, RecursionError):
        raise InputError(Fault("is not valid JSON", path, 1, 1)) from None
    if not isinstance(data, dict):
        raise InputError(Fault("DeepSpeed's configuration is a mapping: {...}", path, 1, 1))
    found = DeepSpeed()
    faults: list[Fault] = []

    def number(of: Mapping[str, Any], key: str, least: int, most: int = 10**9) -> int | None:
        value = of.get(key)
        if value is None or value == "auto":
            return None
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        faults.append(Fault(f"{key}: must be a whole number, {least} to {most}; got {one_line(value, 40)}", path))
        return None

    def mapping(key: str) -> Mapping[str, Any]:
        value = data.get(key, {})
        if not isinstance(value, dict):
            faults.append(Fault(f"{key}: must be a mapping; got {one_line(value, 40)}", path))
            return {}
        return value

    zero = mapping("zero_optimization")
    found.zero = number(zero, "stage", 0, 3)
    found.batch = number(data, "train_batch_size", 1)
    found.micro_batch = number(data, "train_micro_batch_size_per_gpu", 1)
    found.micro_batches = number(data, "gradient_accumulation_steps", 1)
    for name in ("bf16", "fp16"):
        if mapping(name).get("enabled") is True:
            found.precision = f"master-{name}"
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
        raise InputError(faults)
    return found
