"""Arguments of training programs: of Hugging Face's Trainer, and those that programs share.

Names and defaults of :func:`read_trainer` are those of ``transformers.TrainingArguments`` and of Accelerate's command
line.  The keys of Accelerate's configuration file (``--config_file``) are the launcher's arguments
(:func:`add_config`).

Those without one library behind them (timm, torchvision, Lightning, run_clm.py) say how many devices one process starts
(``--devices 4``), the format (``--amp``, ``--precision bf16-mixed``), the length of sequences and the size of images.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from simulator.errors import InputError, one_line
from simulator.launch.arguments import Arguments, divides, is_off, spelt_flag
from simulator.launch.command import Command
from simulator.launch.deepspeed import offload_of_arguments
from simulator.launch.ranks import LaunchRanks
from simulator.launch.visible import VisibleGpus
from simulator.questions.options import Optimizer
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
    if args.flag("pure-bf16"):  # of LLaMA-Factory
        found.precision = "bf16"
    _take_fsdp_file(args, launcher)
    found.recomputes = _recomputes(args) or launcher.flag("fsdp-activation-checkpointing")
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


def _recomputes(args: Arguments) -> bool:
    """Return whether blocks are recomputed: as the Trainer is told, by LLaMA-Factory unless it is told not to.

    Its default is ``disable_gradient_checkpointing=False`` (llamafactory/model/model_utils/checkpointing.py).
    """
    of_factory = "stage" in args and "finetuning-type" in args
    keeps = args.flag("disable-gradient-checkpointing")
    return args.flag("gradient-checkpointing", "activation-checkpointing") or (of_factory and not keeps)


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
    """Add the settings of the file that *launcher* names, behind its own arguments, and the file's faults."""
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


# -- arguments that programs share -----------------------------------------------------


BATCHES = ("b", "batch-size-training", "train-batch-size")  # of one process
ALL_BATCHES = (
    *("global-batch-size", "micro-batch-size", "batch-size", *BATCHES, "per-device-train-batch-size"),
    *("training.global-batch-size", "training.local-batch-size", "training.batch-size"),
)
_DEVICES = ("devices", "num-gpus", "gpus", "n-gpus", "ngpus", "ngpu")
_FORMATS = {
    **dict.fromkeys(("amp", "16", "16-mixed", "fp16", "float16", "amp_fp16", "half"), "amp-fp16"),
    **dict.fromkeys(("bf16", "bf16-mixed", "bfloat16", "amp_bf16", "amp_bfloat16"), "amp-bf16"),
    **dict.fromkeys(("bf16-true", "pure_bf16"), "bf16"),
    **dict.fromkeys(("16-true", "pure_fp16"), "fp16"),
    **dict.fromkeys(("32", "32-true", "fp32", "float32", "no"), "fp32"),
}
_EXACT_LENGTHS = ("block-size",)
_LENGTHS = ("max-seq-length", "max-seq-len", "model-max-length", "cutoff-len", "max-length", "max-source-length")
_IMAGES = ("train-crop-size", "img-size", "image-size", "input-size")
_STRATEGY = re.compile(r"(?:ddp\w*|(?P<fsdp>fsdp\d?)|deepspeed(?:_stage_(?P<stage>[123]))?(?P<offload>_offload)?)")


def started_ranks(command: Command, args: Arguments, ranks: LaunchRanks, notes: list[str]) -> LaunchRanks:
    """Return *ranks*, or those that the program starts itself where no launcher does."""
    of_batch = ranks.nodes is not None or ranks.whole is not None
    only_shown = bool(ranks.visible.gpus) and ranks.nodes == 1
    if command.starter or (of_batch and not only_shown) or "num-layers" in args:
        return ranks
    for name in _DEVICES:
        said = args.value(name) or ""
        listed = re.fullmatch(r"\d+(,\d+)+", said)
        if listed is not None or re.fullmatch(r"[1-9]\d{0,5}", said):
            args.has(name, "num-nodes")
            each = len(said.split(",")) if listed is not None else int(said)
            nodes = args.number("num-nodes") or 1
            return LaunchRanks(
                nodes, each, nodes * each, _shown(args, name, ranks.visible, said, listed=listed is not None)
            )
    if args.has("multiprocessing-distributed"):
        return ranks
    if command.program.endswith(".py") and not command.launcher and not only_shown:
        notes.append("the line starts one process: simulated with one for each GPU; for one GPU, add --gpus 1")
    return ranks


def _shown(args: Arguments, name: str, visible: VisibleGpus, said: str, *, listed: bool) -> VisibleGpus:
    """Return the GPUs that *said* means, a list or a number of those that are *visible*."""
    if not listed and not visible.gpus:
        return visible
    chosen = tuple(map(int, said.split(","))) if listed else tuple(range(int(said)))
    if len(set(chosen)) < len(chosen):
        args.fault(name, f"{one_line(said, 40)}: a GPU is named twice")
        return visible
    try:
        return visible.among(chosen, f"{spelt_flag(name)} {one_line(said, 40)}")
    except InputError as error:
        args.fault(name, error.faults[0].message.partition(f"{spelt_flag(name)} ")[2])
        return visible


def is_channels_last(args: Arguments) -> bool:
    """Return whether images are laid out channels last: ``--channels-last``, ``--memory-format nhwc``."""
    layout = args.value("memory-format")
    if layout is not None and layout.lower() in ("nhwc", "channels_last"):
        return args.has("memory-format")
    return args.flag("channels-last")


def read_format(args: Arguments, notes: list[str]) -> str | None:
    """Return the precision that *args* say, as ``--precision`` takes it; None if they say none."""
    if args.flag("amp"):
        return _FORMATS.get((args.text("amp-dtype") or "fp16").lower(), "amp-fp16")
    for name in ("precision", "mixed-precision", "dtype"):
        said = args.value(name)
        if said is not None and said.lower() in _FORMATS:
            args.has(name)
            return _FORMATS[said.lower()]
        if said is not None:
            args.has(name)
            notes.append(f"--{name} {one_line(said, 40)}: is not known, and without effect; add --precision")
    return "bf16" if args.flag("pure-bf16") else None


def read_sharding(args: Arguments) -> tuple[int | None, Offload]:
    """Return the stage of ZeRO asked by ``--strategy`` or ``--enable_fsdp`` (None: none), and what the host holds."""
    if args.flag("enable-fsdp"):
        return 3, "optimizer+parameters" if args.flag("fsdp-cpu-offload") else "none"
    said = args.value("strategy")
    kind = _STRATEGY.fullmatch((said or "").lower())
    if kind is None:
        return None, "none"
    args.has("strategy")
    stage = 3 if kind["fsdp"] else int(kind["stage"]) if kind["stage"] else 0
    return stage, "none" if not kind["offload"] else "optimizer+parameters" if stage == 3 else "optimizer"


def of_bitsandbytes(name: str) -> Optimizer | None:
    """Return the optimiser of bitsandbytes that *name* is, as transformers and other trainers spell it; None if none.

    ``AdamW8bit`` and ``adamw_bnb_8bit`` are one; ``paged_adamw`` has its state in fp32 (transformers' OptimizerNames).
    """
    kind = re.fullmatch(r"(paged_?)?adamw?_?(?:bnb_?)?(8_?bit)?(?:32_?bit)?", name.lower())
    if kind is None or not any(kind.groups()):
        return None
    if kind[2] is None:
        return "paged-adam"
    return "paged-adam-8bit" if kind[1] else "adam-8bit"


def read_update(args: Arguments, notes: list[str]) -> dict[str, str | bool]:
    """Return the options for the update that ``--optimizer`` or ``--opt`` name."""
    said = (args.text("optimizer", "opt") or "").lower()
    if not said:
        return {}
    if rule := of_bitsandbytes(said):
        return {"optimizer": rule}
    fused = said.startswith("fused") or said.endswith("_fused")
    kind = said.removeprefix("fused").removesuffix("_fused")
    known = {**dict.fromkeys(("adam", "adamw"), "adam"), "lamb": "lamb"}
    known |= dict.fromkeys(("sgd", "momentum", "nesterov"), "momentum")
    if kind not in known:
        notes.append(f"--optimizer {one_line(said, 40)}: is not known, and without effect; add --optimizer")
        return {}
    update: dict[str, str | bool] = {"optimizer": known[kind]}
    return update | ({"fused_optimizer": True} if fused else {})


def read_sizes(args: Arguments, notes: list[str]) -> dict[str, str]:
    """Return the options for the length of sequences and the side of images."""
    found: dict[str, str] = {}
    exact = args.number(*_EXACT_LENGTHS)
    longest = args.number(*_LENGTHS)
    if exact or longest:
        found["seq_len"] = str(exact or longest)
    if longest and not exact:
        name = next(name for name in _LENGTHS if name in args)
        notes.append(f"--{name} {longest}: all sequences are simulated with this length")
    for name in _IMAGES:
        said = re.fullmatch(r"(?:\d+ )*(\d{1,5})", args.value(name) or "")
        if said is not None and args.has(name):
            found["image"] = said[1]
            break
    return found
