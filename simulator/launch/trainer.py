"""Arguments of Hugging Face's Trainer and of ``accelerate launch``: :func:`read_trainer`.

Names and defaults are those of ``transformers.TrainingArguments`` and of Accelerate's command line.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.launch.arguments import Arguments

__all__ = ["Trainer", "read_trainer"]

_SHARDED = {"full_shard": 3, "hybrid_shard": 3, "shard_grad_op": 2, "hybrid_shard_zero2": 2, "no_shard": 0}
_BATCH = "per-device-train-batch-size", "per-gpu-train-batch-size"
_OWN = (*_BATCH, "gradient-accumulation-steps", "gradient-checkpointing", "fsdp", "per-device-eval-batch-size")
_YES = ("", "true", "1", "yes", "y", "t")


@dataclass(slots=True)
class Trainer:
    """Settings of the Trainer; None if not given.  ``is_there``: whether the line is for the Trainer at all."""

    is_there: bool = False
    micro_batch: int | None = None
    micro_batches: int | None = None
    precision: str | None = None
    zero: int | None = None
    in_nodes: bool = False  # each node holds a full set of shards
    recomputes: bool = False
    compiles: bool = False
    fuses_update: bool = False


def read_trainer(args: Arguments, launcher: Arguments, notes: list[str]) -> Trainer:
    """Return the settings in *args*, of the program, and *launcher*; the defaults if neither is the Trainer's."""
    found = Trainer()
    if "num-layers" in args or not (
        any(name in args for name in _OWN) or any(name in launcher for name in ("use-fsdp", "mixed-precision"))
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
    found.recomputes = _says(args, "gradient-checkpointing")
    found.compiles = _says(args, "torch-compile")
    found.fuses_update = "fused" in (args.text("optim") or "")
    how = (args.text("fsdp") or "").lower().split()
    known = [word for word in how if word in _SHARDED]
    if _says(launcher, "use-fsdp") and not known:
        known = [(launcher.text("fsdp-sharding-strategy") or "full_shard").lower()]
    if known and known[0] in _SHARDED:
        found.zero = _SHARDED[known[0]]
        found.in_nodes = known[0].startswith("hybrid")
    if "offload" in how:
        notes.append("--fsdp offload: is not modelled; nothing is kept in the host's memory")
    return found


def _says(args: Arguments, name: str) -> bool:
    """Return whether the flag *name* is given, without a value or with an affirmative one."""
    return args.has(name) and (args.value(name) or "").lower() in _YES
