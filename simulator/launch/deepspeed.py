"""The settings of DeepSpeed's JSON configuration that affect a step: :func:`read_deepspeed`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, few, one_line
from simulator.launch.timeless import OFFLOADS
from simulator.topology.json_source import read_json
from simulator.topology.yaml_source import YamlSource

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


_FEWER_BITS = "the exchange of fewer bits is not modelled; the time would be far off"
_OTHER_TOKENS = "layers that leave out tokens or are left out are not modelled; the time would be far off"

# Settings without which a step is another one, and why there is no answer with them.
_REFUSED: dict[tuple[str, ...], str] = {
    ("zero_optimization", "offload_optimizer", "device"): OFFLOADS,
    ("zero_optimization", "offload_param", "device"): OFFLOADS,
    ("zero_optimization", "cpu_offload"): OFFLOADS,
    ("zero_optimization", "cpu_offload_params"): OFFLOADS,
    ("activation_checkpointing", "cpu_checkpointing"): OFFLOADS,
    ("zero_optimization", "zero_quantized_weights"): _FEWER_BITS,
    ("zero_optimization", "zero_quantized_gradients"): _FEWER_BITS,
    ("zero_optimization", "zero_hpz_partition_size"): "gathering within a node in the backward pass is not modelled",
    ("sparse_attention", "mode"): "attention to some of the tokens is not modelled; the time would be far off",
    ("progressive_layer_drop", "enabled"): _OTHER_TOKENS,
    ("data_efficiency", "data_routing", "random_ltd", "enabled"): _OTHER_TOKENS,
    ("hybrid_engine", "enabled"): "steps that also generate text are not modelled",
    ("tensor_parallel", "autotp_size"): "is not read; ranks that split a layer are --parallel tp=2",
    ("sequence_parallel_size",): "is not read; ranks that split a sequence are --parallel cp=2",
}
_COMPRESSING = frozenset(("onebitadam", "zerooneadam", "onebitlamb"))


@dataclass(slots=True)
class DeepSpeed:
    """Settings of a file; None if a setting is missing or ``auto``.  ``shards``: ranks that hold a full set (MiCS).

    ``otherwise`` is the precision unless arguments of the program name one.
    """

    zero: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    micro_batches: int | None = None
    precision: str | None = None
    otherwise: str | None = None
    shards: int | None = None
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

    found.zero = number(("zero_optimization", "stage"), 0, 3)
    found.batch = number(("train_batch_size",), 1)
    found.micro_batch = number(("train_micro_batch_size_per_gpu",), 1)
    found.micro_batches = number(("gradient_accumulation_steps",), 1)
    halves = [name for name in ("bf16", "fp16") if mapping(name).get("enabled") is True]
    if halves:
        found.precision = f"master-{halves[0]}"
    elif not any(mapping(name).get("enabled") == "auto" for name in ("bf16", "fp16")):
        found.otherwise = "fp32"
    if len(halves) > 1:
        faults.append(source.fault(("fp16",), "fp16: bf16 is enabled too; DeepSpeed takes one of the two", key=True))
    if _is_on(mapping("zero_optimization").get("mics_shard_size")):
        found.shards = number(("zero_optimization", "mics_shard_size"), 1)
    faults += _refused(source)
    known = {"zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "bf16", "fp16"}
    known |= {place[0] for place in _REFUSED}
    others = [key for key in data if key not in known | _TIMELESS | {"gradient_accumulation_steps"}]
    if others:
        found.notes.append(f"{path}: not known, and without effect: {few(others)}")
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    return found


def _refused(source: YamlSource) -> Iterator[Fault]:
    """Yield a fault for each setting of *source* that is on and has no answer."""

    def value(*place: str) -> Any:
        found: Any = source.data
        for key in place:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    for place, why in _REFUSED.items():
        if _is_on(value(*place)):
            yield source.fault(place, f"{'.'.join(place)}: {why}")
    for place in (("zero_optimization", "offload_optimizer"), ("zero_optimization", "offload_param")):
        said = value(*place)
        if not isinstance(said, dict | None):
            yield source.fault(place, f"{'.'.join(place)}: must be a mapping; got {one_line(said, 40)}")
    optimizer = value("optimizer", "type")
    if isinstance(optimizer, str) and optimizer.lower() in _COMPRESSING:
        yield source.fault(("optimizer", "type"), f"optimizer.type: {optimizer}: {_FEWER_BITS}")


def _is_on(value: object) -> bool:
    """Return whether *value* switches a setting on; a group of 1 rank divides nothing, and -1 stands for none."""
    said = value.lower() if isinstance(value, str) else value
    return value is True or said not in (None, False, 1, -1, "none", "auto", "false", "0", "")
