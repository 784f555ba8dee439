"""Arguments of Hugging Face's Trainer and of ``accelerate launch``: :func:`read_trainer`.

Names and defaults are those of ``transformers.TrainingArguments`` and of Accelerate's command line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import InputError, one_line
from simulator.launch.arguments import Arguments
from simulator.launch.timeless import OFFLOADS, is_off
from simulator.topology.json_source import read_json

__all__ = ["Trainer", "read_trainer"]

_SHARDED = {"full_shard": 3, "hybrid_shard": 3, "shard_grad_op": 2, "hybrid_shard_zero2": 2, "no_shard": 0}
_NUMBERED = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard", "5": "hybrid_shard_zero2"}
_ADAPTS = ("use-peft", "use-lora")
_BATCH = "per-device-train-batch-size", "per-gpu-train-batch-size"
_OWN = (*_BATCH, "gradient-accumulation-steps", "gradient-checkpointing", "fsdp", "per-device-eval-batch-size")
_YES = ("", "true", "1", "yes", "y", "t")


@dataclass(slots=True)
class Trainer:
    """Settings of the Trainer; None if not given.  ``is_there``: whether the line is for the Trainer at all.

    ``lora`` is the rank of adapters.
    """

    is_there: bool = False
    micro_batch: int | None = None
    micro_batches: int | None = None
    precision: str | None = None
    zero: int | None = None
    in_nodes: bool = False  # each node holds a full set of shards
    recomputes: bool = False
    compiles: bool = False
    fuses_update: bool = False
    of_deepspeed: bool = False
    lora: int | None = None


def read_trainer(args: Arguments, launcher: Arguments, notes: list[str]) -> Trainer:
    """Return the settings in *args*, of the program, and *launcher*; the defaults if neither is the Trainer's."""
    found = Trainer()
    if "num-layers" in args or not (
        any(name in args for name in _OWN)
        or any(name in launcher for name in ("use-fsdp", "use-deepspeed", "mixed-precision", "config-file"))
    ):
        return found
    found.is_there = True
    found.micro_batch = args.number(*_BATCH)
    found.micro_batches = args.number("gradient-accumulation-steps")
    if found.micro_batches is None:
        found.micro_batches = launcher.number("gradient-accumulation-steps")
    mixed = launcher.choice(("no", "fp16", "bf16", "fp8"), "mixed-precision")
    half = next((name for name in ("bf16", "fp16") if _says(args, name)), None) or mixed
    if half == "fp8":
        launcher.fault("mixed-precision", "fp8 is not modelled here; bf16 and fp16 are")
    found.precision = {"bf16": "amp-bf16", "fp16": "amp-fp16"}.get(half or "", "fp32")
    found.recomputes = _says(args, "gradient-checkpointing") or _says(launcher, "fsdp-activation-checkpointing")
    found.compiles = _says(args, "torch-compile") or (launcher.text("dynamo-backend") or "no").lower() == "inductor"
    optimizer = args.text("optim") or ""
    found.fuses_update = "fused" in optimizer
    if optimizer and not re.fullmatch(r"adamw?(_torch|_hf|_apex)?(_fused)?|fused_adam", optimizer):
        notes.append(f"--optim {one_line(optimizer, 40)}: is not modelled; simulated as Adam with its state in fp32")
    how = (args.text("fsdp") or "").lower().split()
    known = [word for word in how if word in _SHARDED]
    if how and not known and how != ["false"]:  # FSDP2 has one strategy
        known = ["full_shard"]
    if _says(launcher, "use-fsdp") and not known:
        named = launcher.choice((*_SHARDED, *_NUMBERED), "fsdp-sharding-strategy") or "full_shard"
        known = [_NUMBERED.get(named, named)]
        said = (launcher.text("fsdp-reshard-after-forward") or "true").lower()  # of FSDP2, or a strategy
        known = [said] if said in _SHARDED else ["shard_grad_op"] if is_off(said) else known
    if known:
        found.zero = _SHARDED[known[0]]
        found.in_nodes = known[0].startswith("hybrid")
    if "offload" in how:
        args.fault("fsdp", f"offload {OFFLOADS}")
    found.of_deepspeed = args.value("deepspeed") is not None or "deepspeed-config" in args
    if _says(launcher, "use-deepspeed"):
        found.of_deepspeed = True
        found.zero = launcher.number("zero-stage", least=0) if "zero-stage" in launcher else 2  # Accelerate's default
    _read_fsdp_file(args, found)
    found.lora = args.number("lora-r", "lora-rank", "lora-dim", least=0)
    if not found.lora and (any(_says(args, name) for name in _ADAPTS) or args.value("finetuning-type") == "lora"):
        name = next(name for name in (*_ADAPTS, "finetuning-type") if name in args)
        args.fault(name, "the rank of its adapters is missing; add --lora-r, for example --lora-r 16")
    return found


def _read_fsdp_file(args: Arguments, found: Trainer) -> None:
    """Read the file of FSDP's settings, whose keys may begin with ``fsdp_``."""
    path = args.text("fsdp-config")
    if path is None:
        return
    if path.startswith("{"):
        args.fault("fsdp-config", "is read from a file; write these settings to one")
        return
    try:
        source = read_json(Path(path), "file of FSDP's settings")
    except InputError as error:
        args.faults += error.faults
        return
    for key, value in source.data.items():
        name, is_on = key.removeprefix("fsdp_"), str(value).lower() in _YES[1:]
        if is_on and name in ("offload_params", "cpu_offload", "offload"):
            args.faults.append(source.fault((key,), f"{key}: {OFFLOADS}"))
        if is_on and name == "activation_checkpointing":
            found.recomputes = True


def _says(args: Arguments, name: str) -> bool:
    """Return whether the flag *name* is given, without a value or with an affirmative one."""
    return args.has(name) and (args.value(name) or "").lower() in _YES
