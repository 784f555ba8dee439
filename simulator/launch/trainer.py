"""Arguments of Hugging Face's Trainer and of ``accelerate launch``: :func:`read_trainer`, :func:`add_config`.

Names and defaults are those of ``transformers.TrainingArguments`` and of Accelerate's command line.  The keys of
Accelerate's configuration file (``--config_file``) are the launcher's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from simulator.errors import InputError, one_line
from simulator.launch.arguments import Arguments, divides, is_off
from simulator.launch.deepspeed import offload_of_arguments
from simulator.launch.plain import of_bitsandbytes
from simulator.questions.step import Offload
from simulator.records import dataclass, field
from simulator.topology.yaml_source import YamlSource

_SHARDED = {"full_shard": 3, "hybrid_shard": 3, "shard_grad_op": 2, "hybrid_shard_zero2": 2, "no_shard": 0}
_NUMBERED = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard", "5": "hybrid_shard_zero2"}
_KEPT = {"full_shard": "shard_grad_op", "hybrid_shard": "hybrid_shard_zero2"}  # after the forward pass
_ADAPTS = ("use-peft", "use-lora")
_BATCH = "per-device-train-batch-size", "per-gpu-train-batch-size"
_RANK = "the rank of its adapters is missing; add --lora-r, for example --lora-r 16"
_BITS = ("quantization-bit", "bits")  # of LLaMA-Factory, and of QLoRA's own qlora.py
_IN_4_BITS = ("load-in-4bit", "use-qlora", *_BITS)
_NESTED = ("use-bnb-nested-quant", "bnb-4bit-use-double-quant", "double-quantization", "double-quant")
_OWN = (*_BATCH, "gradient-accumulation-steps", "gradient-checkpointing", "fsdp", "per-device-eval-batch-size")
_SPLITS = "is not read; ranks that split a {} are --parallel {}=2"


@dataclass(slots=True)
class Trainer:
    """Settings of the Trainer; None if not given.  ``is_there``: whether the line is for the Trainer at all.

    ``offload`` is on the host; ``lora`` is the rank of adapters; ``nf4`` how frozen weights are kept in 4 bits;
    ``update`` are the options for the optimiser; ``liger``: layers are Liger's kernels.
    """

    is_there: bool = False
    micro_batch: int | None = None
    micro_batches: int | None = None
    precision: str | None = None
    zero: int | None = None
    in_nodes: bool = False  # each node holds a full set of shards
    shards: int | None = None  # ranks that hold one full set; None: all
    recomputes: bool = False
    compiles: bool = False
    update: dict[str, str | bool] = field(default_factory=dict)
    of_deepspeed: bool = False
    offload: Offload = "none"
    lora: int | None = None
    nf4: str | None = None
    liger: bool = False


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
    halves = [name for name in ("bf16", "fp16") if args.flag(name)]
    if len(halves) > 1:
        args.fault("fp16", "--bf16 and --fp16 exclude each other; leave one of the two out")
    half = halves[0] if halves else mixed
    if half == "fp8":
        launcher.fault("mixed-precision", "fp8 is not modelled here; bf16 and fp16 are")
    plain = "tf32" if args.flag("tf32") else "fp32"
    found.precision = {"bf16": "amp-bf16", "fp16": "amp-fp16"}.get(half or "", plain)
    _take_fsdp_file(args, launcher)
    found.recomputes = args.flag("gradient-checkpointing") or launcher.flag("fsdp-activation-checkpointing")
    compiler = args.text("torch-compile-backend") or launcher.text("dynamo-backend") or "no"
    found.compiles = args.flag("torch-compile") or compiler.lower() == "inductor"
    if compiler.lower() not in ("no", "inductor", "eager"):
        notes.append(f"--dynamo-backend {one_line(compiler, 40)}: is not modelled; inductor is")
    found.update = _update(args, notes) or ({"optimizer": "adam"} if any(name in args for name in _BATCH) else {})
    _read_sharding(args, launcher, found)
    found.of_deepspeed = args.value("deepspeed") is not None or "deepspeed-config" in args
    if launcher.flag("use-deepspeed"):
        found.of_deepspeed = True
        found.zero = launcher.number("zero-stage", least=0) if "zero-stage" in launcher else 2  # Accelerate's default
        found.offload = offload_of_arguments(launcher)
    found.lora = args.number("lora-r", "lora-rank", "lora-dim", least=0)
    args.has(*_ADAPTS, "lora-alpha", "lora-dropout", "lora-target", "lora-target-modules")
    if not found.lora and (any(args.flag(name) for name in _ADAPTS) or args.value("finetuning-type") == "lora"):
        name = next(name for name in (*_ADAPTS, "finetuning-type") if name in args)
        args.fault(name, _RANK)
    found.nf4 = _four_bits(args)
    found.liger = args.flag("use-liger-kernel", "use-liger", "enable-liger-kernel")
    if found.nf4 and not found.lora:
        args.fault(next(name for name in _IN_4_BITS if name in args), _RANK)
    return found


def _four_bits(args: Arguments) -> str | None:
    """Return how frozen weights are kept in 4 bits (nf4, and fp4 alike), as ``lora_weights`` has it; None if not so."""
    bits = args.text(*_BITS)
    if bits not in (None, "4", "16"):
        name = next(name for name in _BITS if name in args)
        args.fault(name, f"{one_line(bits or '', 40)} bits are not modelled; 4 are")
    asked = [args.flag("load-in-4bit"), args.flag("use-qlora"), bits == "4"]
    args.has("bnb-4bit-quant-type", "bnb-4bit-compute-dtype", "quantization-type", "quantization-method", "quant-type")
    if not any(asked):
        return None
    nested = args.flag(*_NESTED) if any(name in args for name in _NESTED) else bits == "4"  # the default of both
    return "nf4-nested" if nested else "nf4"


def _update(args: Arguments, notes: list[str]) -> dict[str, str | bool]:
    """Return the options for ``--optim`` (transformers' OptimizerNames), whose SGD has no momentum."""
    name = (args.text("optim") or "").lower()
    if name == "sgd":
        return {"optimizer": "sgd"}
    if rule := of_bitsandbytes(name):
        return {"optimizer": rule}
    if name and not re.fullmatch(r"adamw?(_torch|_hf|_apex|_torch_xla|_torch_npu)?(_fused)?|fused_adam", name):
        notes.append(f"--optim {one_line(name, 40)}: is not modelled; simulated as Adam with its state in fp32")
    fused: dict[str, str | bool] = {"fused_optimizer": True} if "fused" in name else {}
    return {"optimizer": "adam", **fused} if name else {}


def _read_sharding(args: Arguments, launcher: Arguments, found: Trainer) -> None:
    """Read what FSDP shards, and among which ranks, into *found*."""
    how = (args.text("fsdp") or "").lower().split()
    known = [word for word in how if word in _SHARDED]
    is_on = launcher.flag("use-fsdp")
    if how and not known and not is_off(how[0]):  # FSDP2 has one strategy
        known = ["full_shard"]
    if is_on and not known:
        named = launcher.choice((*_SHARDED, *_NUMBERED), "fsdp-sharding-strategy") or "full_shard"
        known = [_NUMBERED.get(named, named)]
    if known:
        said = (launcher.text("fsdp-reshard-after-forward") or "true").lower()  # of FSDP2, or a strategy
        known = [said if said in _SHARDED else _KEPT.get(known[0], known[0]) if is_off(said) else known[0]]
        found.zero = _SHARDED[known[0]]
        found.in_nodes = known[0].startswith("hybrid")
        offloads = launcher.flag("fsdp-offload-params")
        if "offload" in how or offloads:
            found.offload = "optimizer+parameters"
            if found.zero != 3:
                of, name = (args, "fsdp") if "offload" in how else (launcher, "fsdp-offload-params")
                of.fault(name, f"{known[0]} with offload is not modelled; full_shard is")
    for name, part, degree in (("tp", "layer", "tp"), ("cp", "sequence", "cp"), ("sp", "sequence", "cp")):
        if divides(launcher.text(f"parallelism-config-{name}-size") or "1"):
            launcher.fault(f"parallelism-config-{name}-size", _SPLITS.format(part, degree))
    shards, whole = "parallelism-config-dp-shard-size", "parallelism-config-dp-replicate-size"
    found.shards = launcher.number(shards) if divides(launcher.text(shards) or "1") else None
    copies = launcher.number(whole) if divides(launcher.text(whole) or "1") else None
    if copies is not None and found.shards is None and found.zero:
        launcher.fault(whole, f"goes with --{shards}, which says how many ranks share one copy")


def _take_fsdp_file(args: Arguments, launcher: Arguments) -> None:
    """Take the settings of FSDP's file, whose keys may begin with ``fsdp_``, as Accelerate's arguments."""
    path = args.text("fsdp-config")
    if path is None:
        return
    if path.startswith("{"):
        args.fault("fsdp-config", "is read from a file; write these settings to one")
        return
    try:
        source = args.files.json(path, "file of FSDP's settings")
    except InputError as error:
        args.faults += error.faults
        return
    for key in source.data:
        take_key(launcher, source, (key,), f"fsdp_{key.removeprefix('fsdp_')}")


# -- Accelerate's file -----------------------------------------------------------------


_FLAGS = {"DEEPSPEED": "use-deepspeed", "FSDP": "use-fsdp", "MEGATRON_LM": "use-megatron-lm"}
# Sections of the file, and the flag without which Accelerate does not read them.
_SECTIONS = {"deepspeed_config": "use-deepspeed", "fsdp_config": "use-fsdp", "megatron_lm_config": "use-megatron-lm"}


def add_config(launcher: Arguments) -> None:
    """Add the settings of the file that *launcher* names to it; its own arguments come first.

    Faults of the file are added to those of *launcher*.
    """
    path = launcher.text("config-file")
    if path is None:
        return
    try:
        source = launcher.files.yaml(path, "a configuration of Accelerate")
        if not isinstance(source.data, dict):
            raise InputError(source.fault((), "a configuration of Accelerate is a mapping: num_processes: 8"))
    except InputError as error:
        launcher.faults += error.faults
        return
    flag = _FLAGS.get(str(source.data.get("distributed_type")).upper(), "")
    if flag:
        launcher.take(flag, "true", source.fault(("distributed_type",), ""))
    for place in _places(source, flag):
        take_key(launcher, source, place, str(place[-1]))


def take_key(launcher: Arguments, source: YamlSource, place: tuple[str, ...], name: str) -> None:
    """Take the value at *place* of *source* as the argument *name*, unless nothing is set there."""
    value = source.data
    for key in place:
        value = value[key]
    if value is not None and value != "auto":
        text = str(value).lower() if isinstance(value, bool) else one_line(value, 200)
        launcher.take(name.replace("_", "-"), text, source.fault(place, ""))


def _places(source: YamlSource, flag: str) -> Iterator[tuple[str, ...]]:
    """Yield the place of each setting that Accelerate reads with *flag*."""
    for key, value in source.data.items():
        if not isinstance(value, dict):
            yield (key,)
        elif _SECTIONS.get(key, flag) == flag:
            yield from ((key, name) for name in value)
