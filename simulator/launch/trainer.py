"""Arguments of Hugging Face's Trainer, and those that programs share (docs/decisions/launch-lines.md)."""

import re
from collections.abc import Mapping

from simulator.errors import Fault, InputError, one_line
from simulator.launch.arguments import ARGUMENTS, Arguments, divides, is_off, reasons
from simulator.launch.settings import offload_of
from simulator.launch.words import NAMES
from simulator.questions.options import Optimizer
from simulator.questions.step import Offload
from simulator.records import dataclass, field

_FSDP = NAMES["fsdp"]
_SHARDED: Mapping[str, int] = _FSDP["stages"]
_ADAPTS = ("use-peft", "use-lora")
_BATCH = "per-device-train-batch-size", "per-gpu-train-batch-size"
_RANK = "the rank of its adapters is missing; add --lora-r, for example --lora-r 16"
_BITS = ("quantization-bit", "bits")  # of LLaMA-Factory, and of QLoRA's own qlora.py
_IN_4_BITS = ("load-in-4bit", "use-qlora", *_BITS)
_NESTED = ("use-bnb-nested-quant", "bnb-4bit-use-double-quant", "double-quantization", "double-quant")
_WITHIN = "fsdp-activation-checkpointing"  # checkpoints inside FSDP's units
_REENTRANT = re.compile(r"use_reentrant\W+true", re.IGNORECASE)
_OWN = (*_BATCH, "gradient-accumulation-steps", "gradient-checkpointing", "fsdp", "per-device-eval-batch-size")
_ACCELERATE, _ADAPTED = NAMES["accelerate"], NAMES["adapted"]
_FORMATS, _UPDATES = reasons(NAMES["formats"]), reasons(NAMES["updates"])
_STRATEGY = re.compile(r"(?:ddp\w*|(?P<fsdp>fsdp\d?)|deepspeed(?:_stage_(?P<stage>[123]))?(?P<offload>_offload)?)")


@dataclass(slots=True)
class Trainer:
    """Settings of the Trainer, None if not given; ``nf4``: weights of 4 bits; ``update``: options of the optimiser."""

    is_there: bool = False
    micro_batch: int | None = None
    micro_batches: int | None = None
    precision: str | None = None
    zero: int | None = None
    in_nodes: bool = False  # each node holds a full set of shards
    shards: int | None = None  # ranks that hold one full set; None: all
    recomputes: bool = False
    flat: bool = False  # fsdp_version 1
    gathers_again: bool = False  # checkpoints are reentrant, around units of FSDP
    compiles: bool = False
    update: dict[str, str | bool] = field(default_factory=dict)
    of_deepspeed: bool = False
    offload: Offload = "none"
    lora: int | None = None
    adapts_all: bool = False  # feed-forward layers too
    nf4: str | None = None
    liger: bool = False


def read_trainer(args: Arguments, launcher: Arguments) -> Trainer:
    """Return the settings in *args*, of the program, and *launcher*; the defaults if neither is the Trainer's."""
    of_launcher = ("use-fsdp", "use-deepspeed", "mixed-precision", "config-file")
    is_own = any(name in args for name in _OWN) or any(name in launcher for name in of_launcher)
    if "num-layers" in args or not is_own:
        return Trainer()
    found = Trainer(is_there=True, micro_batch=args.number(*_BATCH))
    counts = (each.number("gradient-accumulation-steps") for each in (args, launcher))
    found.micro_batches = next((count for count in counts if count is not None), None)
    found.precision = _precision(args, launcher)
    _take_fsdp_file(args, launcher)
    # LLaMA-Factory recomputes unless it is told not to (llamafactory/model/model_utils/checkpointing.py).
    keeps = not (args.has("stage") and "finetuning-type" in args) or args.flag("disable-gradient-checkpointing")
    own, within = args.flag("gradient-checkpointing", "activation-checkpointing") or not keeps, launcher.flag(_WITHIN)
    found.recomputes = own or within
    reentrant = _REENTRANT.search(args.text("gradient-checkpointing-kwargs", "activation-checkpointing-kwargs") or "")
    of_factory = not keeps and (args.flag("use-reentrant-gc") or "use-reentrant-gc" not in args)  # its default
    compiler = args.text("torch-compile-backend") or launcher.text("dynamo-backend") or "no"
    found.compiles = args.flag("torch-compile") or compiler.lower() == "inductor"
    if compiler.lower() not in ("no", "inductor", "eager"):
        args.notes.append(f"--dynamo-backend {one_line(compiler, 40)}: is not modelled; inductor is")
    found.update = _update(args) or ({"optimizer": "adam"} if any(name in args for name in _BATCH) else {})
    _read_sharding(args, launcher, found)
    found.of_deepspeed = args.value("deepspeed") is not None or "deepspeed-config" in args
    if launcher.flag("use-deepspeed"):
        found.of_deepspeed = True
        found.zero = launcher.number("zero-stage", least=0) if "zero-stage" in launcher else 2  # Accelerate's default
        devices = {name: launcher.text(name) or "" for name in ("offload-optimizer-device", "offload-param-device")}
        found.offload = offload_of({name: said.lower() for name, said in devices.items() if said}, launcher.fault)
    again = own and not within and bool(reentrant or of_factory)
    by_fsdp = found.zero == 3 and not found.of_deepspeed
    found.gathers_again = again and by_fsdp
    found.flat = launcher.text("fsdp-version") == "1" and by_fsdp
    found.lora = args.number("lora-r", "lora-rank", "lora-dim", least=0)
    args.has(*_ADAPTS, "lora-alpha", "lora-dropout")
    found.adapts_all = bool(found.lora) and _adapts_all(args, "all" if "finetuning-type" in args else "")
    if not found.lora and (any(args.flag(name) for name in _ADAPTS) or args.value("finetuning-type") == "lora"):
        args.fault(next(name for name in (*_ADAPTS, "finetuning-type") if name in args), _RANK)
    if args.value("finetuning-type") in ("freeze", "oft"):
        args.fault(
            "finetuning-type", "trains some layers, or rotations of them, which is not modelled; full and lora are"
        )
    found.nf4 = _four_bits(args)
    found.liger = args.flag("use-liger-kernel", "use-liger", "enable-liger-kernel")
    if found.nf4 and not found.lora:
        args.fault(next(name for name in _IN_4_BITS if name in args), _RANK)
    return found


def _adapts_all(args: Arguments, default: str) -> bool:
    """Return whether feed-forward layers have adapters too, and note where only some of the products do."""
    name = args.given("lora-target", "lora-target-modules") or "lora-target-modules"
    words = set(re.findall(r"\w[\w-]*", args.text("lora-target", "lora-target-modules") or default))
    if args.flag("lora-target-linear") or words & set(_ADAPTED["all"].split()):
        return True
    further = words & set(_ADAPTED["feed-forward"].split())
    wanted = "attention feed-forward" if further else "attention"
    if not all(words & set(product.split()) for part in wanted.split() for product in _ADAPTED["products"][part]):
        said = f"{one_line(' '.join(sorted(words)), 60)}: is not modelled" if words else "is not given"
        which = "attention and feed-forward layers" if further else "attention (PEFT's own are queries and values)"
        args.notes.append(f"--{name} {said}; all products of {which} have adapters")
    return bool(further)


def _precision(args: Arguments, launcher: Arguments) -> str:
    mixed = launcher.choice(("no", "fp16", "bf16", "fp8"), "mixed-precision")
    halves = [name for name in ("bf16", "fp16") if args.flag(name)]
    if len(halves) > 1:
        args.fault("fp16", "--bf16 and --fp16 exclude each other; leave one of the two out")
    half = halves[0] if halves else mixed
    if half == "fp8":
        launcher.fault("mixed-precision", "fp8 is not modelled here; bf16 and fp16 are")
    plain = "tf32" if args.flag("tf32") else "fp32"
    pure = args.flag("pure-bf16")  # of LLaMA-Factory
    return "bf16" if pure else f"amp-{half}" if half in ("bf16", "fp16") else plain


def _four_bits(args: Arguments) -> str | None:
    """Return how frozen weights are kept in 4 bits (nf4, and fp4 alike), as ``lora_weights`` has it; None if not so."""
    bits = args.text(*_BITS)
    if bits not in (None, "4", "16"):
        args.fault(args.given(*_BITS), f"{one_line(bits or '', 40)} bits are not modelled; 4 are")
    asked = [args.flag("load-in-4bit"), args.flag("use-qlora"), bits == "4"]
    args.has("bnb-4bit-quant-type", "bnb-4bit-compute-dtype", "quantization-type", "quantization-method", "quant-type")
    if not any(asked):
        return None
    nested = args.flag(*_NESTED) if any(name in args for name in _NESTED) else bits == "4"  # the default of both
    return "nf4-nested" if nested else "nf4"


def _update(args: Arguments) -> dict[str, str | bool]:
    """Return the options for ``--optim`` (transformers' OptimizerNames), whose SGD has no momentum."""
    name = (args.text("optim") or "").lower()
    if args.flag("use-muon") or name == "muon":  # LLaMA-Factory, Axolotl
        return {"optimizer": "muon"}
    rule = "sgd" if name == "sgd" else of_bitsandbytes(name)
    if rule or not name:
        return {"optimizer": rule} if rule else {}
    if not re.fullmatch(r"adamw?(_torch|_hf|_apex|_torch_xla|_torch_npu)?(_fused)?|fused_adam", name):
        args.notes.append(f"--optim {one_line(name, 40)}: is not modelled; simulated as Adam with its state in fp32")
    return {"optimizer": "adam", **({"fused_optimizer": True} if "fused" in name else {})}


def _read_sharding(args: Arguments, launcher: Arguments, found: Trainer) -> None:
    how = (args.text("fsdp") or "").lower().split()
    known = next((word for word in how if word in _SHARDED), "")
    if how and not known and not is_off(how[0]):  # FSDP2 has one strategy
        known = "full_shard"
    if launcher.flag("use-fsdp") and not known:
        named = launcher.choice((*_SHARDED, *_FSDP["numbered"]), "fsdp-sharding-strategy") or "full_shard"
        known = _FSDP["numbered"].get(named, named)
    if known:
        said = (launcher.text("fsdp-reshard-after-forward") or "true").lower()  # of FSDP2, or a strategy
        known = said if said in _SHARDED else _FSDP["kept"].get(known, known) if is_off(said) else known
        found.zero = _SHARDED[known]
        found.in_nodes = known.startswith("hybrid")
        if launcher.flag("fsdp-offload-params") or "offload" in how:
            found.offload = "optimizer+parameters"
    sizes = {key: f"parallelism-config-{key}-size" for key in ("tp", "cp", "sp", "dp-shard", "dp-replicate")}
    given = {key: name for key, name in sizes.items() if divides(launcher.text(name) or "1")}
    for key, part in (("tp", "layer"), ("cp", "sequence"), ("sp", "sequence")):
        if key in given:
            degree = key.replace("sp", "cp")
            launcher.fault(given[key], f"is not read; ranks that split a {part} are --parallel {degree}=2")
    of_copies = "dp-shard", "dp-replicate"
    found.shards, copies = (launcher.number(given[key]) if key in given else None for key in of_copies)
    if copies is not None and found.shards is None and found.zero:
        why = f"goes with --{sizes['dp-shard']}, which says how many ranks share one copy"
        launcher.fault(sizes["dp-replicate"], why)


def _take_fsdp_file(args: Arguments, launcher: Arguments) -> None:
    """Take the settings of FSDP's file, whose keys may begin with ``fsdp_``, as Accelerate's arguments."""
    path = args.text("fsdp-config")
    if path is None:
        return
    if path.startswith("{"):
        args.fault("fsdp-config", "is read from a file; write these settings to one")
        return
    with args.recording():
        source = args.files.document(path, "file of FSDP's settings", json=True)
        for key, value in source.data.items():
            _take_key(launcher, f"fsdp_{key.removeprefix('fsdp_')}", value, source.fault((key,), ""))


def add_config(args: Arguments, launcher: Arguments, program: str) -> None:
    """Add the settings of the file that *launcher* names, behind its own arguments, and the file's faults.

    Those that *program* has where the Trainer has others are added to *args*.
    """
    for name, value in NAMES["defaults"].get(program, {}).items():
        if name not in args and not (name == "bf16" and "fp16" in args):
            args.take(name, value, Fault(""))
    path = launcher.text("config-file")
    if path is None:
        return
    with launcher.recording():
        source = launcher.files.document(path, "a configuration of Accelerate")
        if not isinstance(source.data, dict):
            raise InputError(source.fault((), "a configuration of Accelerate is a mapping: num_processes: 8"))
        flag = _ACCELERATE["types"].get(str(source.data.get("distributed_type")).upper(), "")
        if flag:
            launcher.take(flag, "true", source.fault(("distributed_type",), ""))
        is_alone = (
            flag == "" and str(source.data.get("distributed_type")).upper() == "NO" and "multi-gpu" not in launcher
        )
        for key, value in source.data.items():
            if is_alone and key == "num_processes":  # Accelerate starts one process then (commands/launch.py)
                launcher.take("num-processes", "1", source.fault((key,), ""))
            elif not isinstance(value, dict):
                _take_key(launcher, str(key), value, source.fault((key,), ""))
            elif _ACCELERATE["sections"].get(key, flag) == flag:
                for name, said in value.items():
                    _take_key(launcher, str(name), said, source.fault((key, name), ""))


def _take_key(launcher: Arguments, name: str, value: object, at: Fault) -> None:
    if value is not None and value != "auto":
        text = str(value).lower() if isinstance(value, bool) else one_line(value, 200)
        launcher.take(name.replace("_", "-"), text, at)


def read_format(args: Arguments) -> str | None:
    """Return the precision that *args* say, as ``--precision`` takes it; None if they say none."""
    if args.flag("amp"):
        return _FORMATS.get((args.text("amp-dtype") or "fp16").lower(), "amp-fp16")
    for name in ("precision", "mixed-precision", "dtype"):
        said = args.value(name)
        if said is not None:
            args.has(name)
            if said.lower() in _FORMATS:
                return _FORMATS[said.lower()]
            args.notes.append(f"--{name} {one_line(said, 40)}: is not known, and without effect; add --precision")
    return "bf16" if args.flag("pure-bf16") else None


def read_sharding(args: Arguments) -> tuple[int | None, Offload]:
    """Return the stage of ZeRO asked by ``--strategy`` or ``--enable_fsdp`` (None: none), and what the host holds."""
    if args.flag("enable-fsdp"):
        return 3, "optimizer+parameters" if args.flag("fsdp-cpu-offload") else "none"
    kind = _STRATEGY.fullmatch((args.value("strategy") or "").lower())
    if kind is None:
        return None, "none"
    args.has("strategy")
    stage = 3 if kind["fsdp"] else int(kind["stage"] or 0)
    return stage, "none" if not kind["offload"] else "optimizer+parameters" if stage == 3 else "optimizer"


def of_bitsandbytes(name: str) -> Optimizer | None:
    """Return the optimiser of bitsandbytes, or of torchao, that *name* spells (``adamw_bnb_8bit``); None if none."""
    kind = re.fullmatch(r"(paged_?)?adamw?_?(?:bnb_?|torch_?)?(8_?bit)?(?:32_?bit)?", name.lower())
    if kind is None or not any(kind.groups()):
        return None
    return "paged-adam" if kind[2] is None else "paged-adam-8bit" if kind[1] else "adam-8bit"


def read_update(args: Arguments, tp: int = 1) -> dict[str, str | bool]:
    """Return the options for the update that ``--optimizer`` or ``--opt`` name, of matrices that *tp* ranks share."""
    said = (args.text("optimizer", "opt") or "").lower()
    rule = of_bitsandbytes(said)
    if rule or not said:
        return {"optimizer": rule} if rule else {}
    kind = said.removeprefix("fused").removesuffix("_fused")
    if kind not in _UPDATES:
        args.notes.append(f"--optimizer {one_line(said, 40)}: is not known, and without effect; add --optimizer")
        return {}
    if _UPDATES[kind] == "muon":
        steps, mode = args.number("muon-num-ns-steps"), args.text("muon-tp-mode") or "blockwise"
        if tp > 1 and mode != "blockwise":
            args.fault("muon-tp-mode", f"{one_line(mode, 40)}: is not modelled; blockwise, Megatron-LM's default, is")
        return {"optimizer": "muon", **({"ns_steps": str(steps)} if steps else {})}
    fused = said.startswith("fused") or said.endswith("_fused")
    return {"optimizer": _UPDATES[kind], **({"fused_optimizer": True} if fused else {})}


def read_sizes(args: Arguments) -> dict[str, str | bool]:
    """Return the options for the length of sequences, the side of images, and their layout (``channels_last``)."""
    exact, longest = args.number("block-size"), args.number(*ARGUMENTS["lengths"])
    found: dict[str, str | bool] = {"seq_len": str(exact or longest)} if exact or longest else {}
    if longest and not exact:
        name = args.given(*ARGUMENTS["lengths"])
        args.notes.append(f"--{name} {longest}: all sequences are simulated with this length")
    for name in ARGUMENTS["images"]:
        said = re.fullmatch(r"(?:\d+ )*(\d{1,5})", args.value(name) or "")
        if said is not None and args.has(name):
            found["image"] = said[1]
            break
    last = (args.value("memory-format") or "").lower() in ("nhwc", "channels_last")
    last = args.has("memory-format") if last else args.flag("channels-last")
    return found | ({"channels_last": True} if last else {})
