"""Turn a launch line, or the script that contains it, into options of ``simulate``: :func:`read_launch`."""

from __future__ import annotations

import os.path
import re

from simulator.errors import Fault, InputError, few, nearest, one_line
from simulator.launch.arguments import Arguments, Files, is_off
from simulator.launch.command import find_command
from simulator.launch.deepspeed import DeepSpeed, read_deepspeed
from simulator.launch.gpt2 import PROGRAMS, is_nanogpt, read_llm_c, read_nanogpt
from simulator.launch.model import named_network, read_model
from simulator.launch.ranks import LaunchDegrees, LaunchRanks, read_layout, read_overlap, read_ranks
from simulator.launch.result import LaunchLine, read_variables
from simulator.launch.shell import Script, commands_of
from simulator.launch.torchtitan import is_torchtitan, read_torchtitan
from simulator.launch.trainer import (
    ALL_BATCHES,
    BATCHES,
    Trainer,
    add_config,
    is_channels_last,
    read_format,
    read_sharding,
    read_sizes,
    read_trainer,
    read_update,
    started_ranks,
)
from simulator.launch.unread import refuse_arguments, unread
from simulator.questions.options import RECOMPUTED_PARTS
from simulator.questions.step import Offload
from simulator.spelling import mention
from simulator.user_files import read_user_file

__all__ = ["LaunchLine", "read_launch"]

_MOST_BYTES = 1_000_000
_NOTHING: Offload = "none"
_LISTED = 12
_OTHER_MODELS = re.compile("bert|t5|mamba|vision|vlm|retro|ict|multimodal|biencoder")
_EIGHT = ("fp8-format", "fp8-hybrid", "fp8-e4m3")
_NARROW = (*_EIGHT, "fp4-format")
_UNREAD = ", which chooses the attention of each GPU and ignores --use-flash-attn"
# Arguments of old checkouts and of DeepSpeed's fork, whose default layers are Megatron-LM's own.
_OLD = frozenset(
    (
        *("model-parallel-size", "batch-size", "checkpoint-activations", "checkpoint-num-layers"),
        *("activations-checkpoint-granularity", "activations-checkpoint-method", "activations-checkpoint-num-layers"),
        *("use-legacy-models", "zero-stage", "deepspeed", "deepspeed-config"),
    )
)


def read_launch(text: str, at_hand: int | None = None, own: int | None = None) -> LaunchLine:
    """Return the settings of the launch line *text*, or of the script in ``@script.sh``.  Nothing is executed.

    *at_hand*: the number of GPUs that take part where the line does not say it.  *own*: that of one machine.

    Raises InputError with every fault; those in a script have their positions.
    """
    file = text[1:] if text.startswith("@") else mention("launch")
    if len(text.split()) == 1 and not text.startswith("@") and os.path.isfile(text):
        raise InputError(f"{mention('launch')}: {text} is a file; write @{text} to read the line in it")
    script = commands_of(_content(file) if file != mention("launch") else text, file)
    command = find_command(script, file)
    files = Files(file, script.written)
    args = Arguments(command.arguments, file, files)
    launcher = Arguments(command.launcher, file, files) if command.launcher is not command.arguments else args
    if "num-layers" in args and _OTHER_MODELS.search(command.program):
        args.fault("num-layers", f"{command.program} trains no GPT; name the network by --workload without them")
    add_config(launcher)
    found = LaunchLine(notes=[*_twice(script, file), *filter(None, [command.note])])
    found.variables = {name: word.text for name, word in command.environment.items()}
    found.batch = args.written(*ALL_BATCHES)
    read_variables(found)
    ranks = read_ranks(command, launcher, script.comments, own, file, found.notes)
    args.faults += [] if launcher is args else launcher.faults
    if command.program in PROGRAMS:
        read_llm_c(command, args, ranks if command.is_launched else ranks.first, found)
    elif is_nanogpt(command, args):
        read_nanogpt(args, ranks if command.is_launched else ranks.first, found)
    elif is_torchtitan(command, args):
        read_torchtitan(args, ranks if command.is_launched else ranks.first, found)
    else:
        ranks = started_ranks(command, args, ranks, found.notes)
        _read_general(args, launcher, ranks, at_hand, found)
        if command.program.startswith("tf_"):  # tf_cnn_benchmarks.py
            found.options["framework"] = "tensorflow"
        if "clip" in command.program and "workload" in found.options:  # two towers, of which the name says one
            found.unknown = f"--model {args.value('model')} of {command.program}"
            del found.options["workload"]
    refuse_arguments(args, launcher, command.starter)
    found.notes += unread(args, launcher, command.starter, found.files)
    return found


def _read_general(
    args: Arguments, launcher: Arguments, ranks: LaunchRanks, at_hand: int | None, found: LaunchLine
) -> None:
    """Read arguments of Megatron-LM, DeepSpeed, and Hugging Face's Trainer into *found*."""
    deepspeed = DeepSpeed()
    path = args.text("deepspeed-config") or args.value("deepspeed") or launcher.text("deepspeed-config-file")
    if path is not None:
        try:
            deepspeed = read_deepspeed(path, args.files)
        except InputError as error:
            args.faults += error.faults
    found.notes += deepspeed.notes
    trainer = read_trainer(args, launcher, found.notes)
    deepspeed.is_there |= trainer.of_deepspeed or (
        "deepspeed" in args and not is_off(args.value("deepspeed") or "true")
    )
    _read(args, ranks, deepspeed, trainer, at_hand, found)


def _content(file: str) -> str:
    """Return the text of a script; bytes that are not UTF-8, as in names of files, stand for themselves."""
    raw = read_user_file(file, _MOST_BYTES, needed="a shell script", usual="a script is a few kB")
    if b"\0" in raw:
        raise InputError(
            Fault("is not text; a shell script is needed", file, raw.count(b"\n", 0, raw.index(b"\0")) + 1, 1)
        )
    return raw.decode("utf-8", "surrogateescape")


def _twice(script: Script, file: str) -> list[str]:
    """Return notes on the variables that were set more than once."""
    if len(script.twice) <= _LISTED:
        return [f"{file}: ${name} is set more than once; the last value counts" for name in script.twice]
    names = few([f"${name}" for name in script.twice])
    return [f"{file}: variables are set more than once, and the last value counts: {names}"]


def _read(
    args: Arguments, ranks: LaunchRanks, deepspeed: DeepSpeed, trainer: Trainer, at_hand: int | None, found: LaunchLine
) -> None:
    options = found.options
    precision = _format(args, deepspeed, trainer, found.notes)
    layout = read_layout(args, ranks, deepspeed)
    if trainer.of_deepspeed or trainer.zero == 2:  # parameters in half precision, and an fp32 copy in shards
        precision = precision and precision.replace("amp-", "master-")
    plain, of_plain = read_sharding(args) if "num-layers" not in args else (None, _NOTHING)
    if plain is not None and not layout.zero:
        layout.zero = plain
    if trainer.zero is not None and deepspeed.zero is None:
        layout.zero, layout.shards = trainer.zero, trainer.shards
        if trainer.in_nodes:
            layout.shards = trainer.shards or ranks.each
            if ranks.each is None:
                found.notes.append("hybrid_shard: simulated as full_shard; the GPUs of a node are not known")
    model = read_model(args, layout.tp, _attention(args, found.notes))
    found.notes += model.notes
    layout.with_stages(args, model.layers)
    if model.workload:
        options["workload"] = model.workload
        options["framework"] = "megatron"
        found.sizes = model.sizes
        options["optimizer"] = "momentum" if args.choice(("adam", "sgd"), "optimizer") == "sgd" else "adam"
        options["fused_optimizer"] = True
        _read_loss(args, found)
        _read_graphs(args, found)
    else:
        network, found.unknown = named_network(args)
        options |= read_sizes(args, found.notes)
        options |= {"workload": network} if network else {}
        options |= {"framework": "deepspeed-zero3"} if deepspeed.is_there and layout.zero == 3 else {}
        options |= deepspeed.options or read_update(args, found.notes) or trainer.update
        options |= {"channels_last": True} if is_channels_last(args) else {}
    if model.length is not None:
        options["seq_len"] = str(model.length)
    if precision is not None or model.workload:
        options["precision"] = precision or "fp32"
    found.place(ranks)
    held = next((each for each in (deepspeed.offload, trainer.offload, of_plain) if each != "none"), _NOTHING)
    if held != "none":
        deepspeed.offload = held
        _offload(args, layout, deepspeed, of_plain, ranks, found)
    exchange = read_overlap(args, layout, precision, deepspeed, found.notes)
    if ranks.whole == 1 and held == "optimizer" and "overlap" in exchange:
        options["overlap"] = exchange["overlap"]
    if ranks.whole != 1:
        options |= {"parallel": layout.words, **exchange}
        options |= _bucket_of_ddp(args, layout)
    model_ranks = layout.tp * layout.pp * layout.cp
    _batch(args, layout.dp or (at_hand or 0) // model_ranks or None, deepspeed, trainer, options)
    _recompute(args, options, found.notes)
    if trainer.lora:
        found.sizes["lora"] = trainer.lora
    if trainer.liger:
        found.sizes |= {"cross_entropy": "fused-linear", "norms": "fused"}
        found.notes.append(
            "Liger's kernels: the loss is simulated as Liger's, norms as one kernel, other layers as PyTorch's"
        )
    if trainer.nf4:
        found.sizes["lora_weights"] = trainer.nf4
    said = {"recompute": trainer.recomputes, "compiled": trainer.compiles}
    options |= {name: True for name, is_said in said.items() if is_said}


def _bucket_of_ddp(args: Arguments, layout: LaunchDegrees) -> dict[str, str | bool]:
    """Return the option for the Trainer's ``--ddp_bucket_cap_mb``, which is for replicas."""
    size = args.number("ddp-bucket-cap-mb")
    replicas = layout.tp == layout.pp == layout.cp == 1 and not layout.zero
    return {"overlap": f"bucket:{size}MiB"} if size is not None and replicas else {}


def _offload(
    args: Arguments,
    layout: LaunchDegrees,
    deepspeed: DeepSpeed,
    of_plain: Offload,
    ranks: LaunchRanks,
    found: LaunchLine,
) -> None:
    """Read what the host holds into *found*, with the software that copies it."""
    options = found.options
    if not layout.zero:
        found.notes.append("offload: is for shards (stages 1 to 3), and without effect")
        deepspeed.offload = "none"
        return
    options["offload"] = deepspeed.offload
    args.has("cpu-optimizer", "cpu-torch-adam")
    if of_plain != "none" and layout.zero == 3 and args.value("strategy"):
        options["framework"] = "deepspeed-zero3"
    if deepspeed.torch_adam or args.has("cpu-torch-adam"):
        options["optimizer"] = "adam-loop"
        options.pop("fused_optimizer", None)
    if deepspeed.round_robin and layout.zero < 3 and ranks.whole != 1:
        options["round_robin_gradients"] = True


def _format(args: Arguments, deepspeed: DeepSpeed, trainer: Trainer, notes: list[str]) -> str | None:
    """Return the precision of the step, as ``--precision`` takes it; None if nothing says it."""
    if not trainer.is_there:
        of_megatron = _precision(args)
        plain = None if of_megatron or "num-layers" in args else read_format(args, notes)
        return of_megatron or deepspeed.precision or plain or deepspeed.otherwise
    found = deepspeed.precision or trainer.precision
    if (
        found in ("fp32", "tf32")
        and "deepspeed" in args
        and args.value("deepspeed") is None
        and "deepspeed-config" not in args
    ):
        notes.append("--deepspeed: the program makes its configuration, whose format is not known; add --precision")
        return None
    return found


def _precision(args: Arguments) -> str | None:
    eight = args.has(*_EIGHT)
    four = args.choice(("e2m1",), "fp4-format") is not None
    halves = [name for name in ("bf16", "fp16") if args.has(name) and not is_off(args.value(name) or "true")]
    half = halves[0] if halves else None
    if len(halves) > 1:
        args.fault("fp16", "--bf16 and --fp16 exclude each other; leave one of the two out")
    if eight and half is None:
        args.fault("fp8-format", "goes with --bf16 or --fp16")
    if four and (eight or half != "bf16"):
        args.fault("fp4-format", "goes with --bf16, and without fp8")
    if four:
        return "nvfp4"
    return "master-fp8" if eight else f"master-{half}" if half else None


def _attention(args: Arguments, notes: list[str]) -> str:
    """Return the kind of attention: that of the line, or the default of Megatron-LM of that age.

    ``--use-flash-attn`` selects FlashAttention in the layers of older checkouts alone; those of Megatron-Core never
    read it, and Transformer Engine chooses by itself (NVIDIA/Megatron-LM issues 778 and 1259).
    """
    backend = args.choice(("auto", "flash", "fused", "unfused", "local"), "attention-backend")
    implementation = args.choice(("local", "transformer_engine", "inference_optimized"), "transformer-impl")
    is_flash = args.has("use-flash-attn")
    if backend is not None:
        return {"auto": "fused-native", "fused": "fused-native", "flash": "fused"}.get(backend, "fused-softmax")
    if implementation == "local" and args.has(*_NARROW):
        args.fault("transformer-impl", "local has no fp8 and no nvfp4; transformer_engine has")
    of_core = args.has("use-mcore-models", "tp-comm-overlap", *_NARROW)  # Transformer Engine's, or they select it
    old = next((name for name in args.names if name in _OLD), None)
    own = "fused" if is_flash and not of_core else "fused-softmax"  # of Megatron-LM's own layers
    if implementation is not None:
        return own if implementation == "local" else "fused-native"
    if of_core:
        return "fused-native"
    if "num-layers" not in args or (old is not None and is_flash):
        return own
    if old is not None:
        notes.append(
            f"--transformer-impl: is not given; simulated as local, with Megatron-LM's own fused softmax, as in the "
            f"older checkouts that have --{old}"
        )
        return own
    notes.append(
        "--transformer-impl: is not given; simulated as transformer_engine, the default of current checkouts of "
        f"Megatron-LM{_UNREAD if is_flash else ''}; where yours is older (2023), add --transformer-impl local"
    )
    return "fused-native"


def _read_graphs(args: Arguments, found: LaunchLine) -> None:
    """Read which kernels a CUDA graph launches: those of the step, or those of a layer at a time."""
    older = "transformer_engine" if args.flag("external-cuda-graph") else "none"
    older = "local" if args.flag("enable-cuda-graph") and older == "none" else older
    how = args.choice(("none", "local", "transformer_engine"), "cuda-graph-impl") or older
    scope = (args.text("cuda-graph-scope") or "full").split()
    if how == "local" and scope == ["full_iteration"]:
        found.options["cuda_graph"] = True
    elif how != "none":
        found.options["cuda_graph_blocks"] = True
        if scope != ["full"]:
            found.notes.append("--cuda-graph-scope: is not modelled; graphs launch whole layers, except their experts")


def _read_loss(args: Arguments, found: LaunchLine) -> None:
    """Read which kernels compute the loss; Megatron-LM's own fused ones take the memory of those that are not fused."""
    way = args.choice(("native", "te", "linear"), "cross-entropy-fusion-impl")
    if args.flag("cross-entropy-loss-fusion") and way == "te":
        found.sizes["cross_entropy"] = "in-place"
    elif way == "linear":
        found.notes.append("--cross-entropy-fusion-impl linear: is not modelled; simulated as native")


def _batch(
    args: Arguments, dp: int | None, deepspeed: DeepSpeed, trainer: Trainer, options: dict[str, str | bool]
) -> None:
    micro = args.number("micro-batch-size", "batch-size", *BATCHES) or deepspeed.micro_batch or trainer.micro_batch
    whole = args.number("global-batch-size") or deepspeed.batch
    # As in PyTorch's imagenet/main.py, whose batch the processes of a node share.
    shared = args.number("b", "batch-size") if args.has("multiprocessing-distributed") else None
    if shared is not None and dp is not None:
        whole = shared * (args.number("world-size") or 1)
        micro = max(1, whole // dp)
    if micro is not None and deepspeed.micro_batch not in (None, micro):
        args.fault("micro-batch-size", f"{micro}, and DeepSpeed's configuration says {deepspeed.micro_batch}")
    for name, own, said in (
        ("per-device-train-batch-size", trainer.micro_batch, deepspeed.micro_batch),
        ("gradient-accumulation-steps", trainer.micro_batches, deepspeed.micro_batches),
    ):
        if own is not None and said not in (None, own):
            args.fault(name, f"{own}, and DeepSpeed's configuration says {said}")
    count = deepspeed.micro_batches or trainer.micro_batches
    if deepspeed.batch is not None and whole == deepspeed.batch and dp is not None:
        _check_deepspeed(args, deepspeed.batch, micro, count, dp)
    if micro is None and whole is not None and dp is not None and count is not None:
        micro = max(1, whole // (dp * count))
    if micro is None:
        return
    if whole is None and dp is not None:
        whole = micro * dp * (count or 1)
    if whole is None:
        args.fault("global-batch-size", "is missing, and nothing says how many replicas there are (--nproc-per-node)")
        return
    options["global_batch"], options["micro_batch"] = str(whole), str(micro)


def _check_deepspeed(args: Arguments, batch: int, micro: int | None, count: int | None, dp: int) -> None:
    """Record a fault if train_batch_size does not match the other batch sizes, which DeepSpeed refuses too."""
    name = "deepspeed-config" if "deepspeed-config" in args else "deepspeed"
    each = (micro or 1) * (count or 1) * dp
    whole = micro is not None and count is not None
    if (batch != each) if whole else batch % each:
        parts = [f"{micro} a GPU"] * (micro is not None) + [f"{count} accumulated"] * (count is not None)
        product = " x ".join([*parts, f"{dp} GPUs"])
        args.fault(
            name, f"train_batch_size {batch} is {'not' if whole else 'no multiple of'} {product}, which is {each}"
        )


def _recompute(args: Arguments, options: dict[str, str | bool], notes: list[str]) -> None:
    how = args.choice(("full", "selective"), "recompute-granularity", "activations-checkpoint-granularity")
    method = args.choice(("uniform", "block"), "recompute-method", "activations-checkpoint-method")
    count = args.number("recompute-num-layers", "activations-checkpoint-num-layers", "checkpoint-num-layers")
    if how is None and args.has("recompute-activations"):
        how = "selective"
    if how is None and (args.has("checkpoint-activations", "deepspeed-activation-checkpointing") or method is not None):
        how = "full"
    modules = (args.text("recompute-modules") or "").replace(",", " ").split()
    if args.has("moe-layer-recompute") and how != "full":
        how, modules = "selective", [*modules, "moe"]
    if how == "full":
        options["recompute"] = True
        if method == "block" and count is not None:
            options["recompute_blocks"] = str(count)
        elif method != "block" and (count or 1) > 1:
            notes.append("--recompute-num-layers: is not modelled; the input of each layer is kept")
    elif how == "selective":
        known = [part for part in RECOMPUTED_PARTS if part in modules]
        if len(known) < len(set(modules)):
            unknown = next(part for part in modules if part not in known)
            args.fault(
                "recompute-modules", f"{one_line(unknown, 40)}: no such part; {nearest(unknown, RECOMPUTED_PARTS)}"
            )
        elif known in ([], ["core_attn"]):
            options["recompute_attention"] = True
        else:
            options["recompute_parts"] = ",".join(known)
