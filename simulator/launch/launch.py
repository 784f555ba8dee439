"""Turn a launch line, or the script that contains it, into options of ``simulate``: :func:`read_launch`."""

import os.path
import re

from simulator.errors import Fault, InputError, few, mention, nearest, one_line
from simulator.launch import ranks as starting
from simulator.launch.arguments import ARGUMENTS, Arguments, Files, is_off, refuse_arguments, unread
from simulator.launch.command import find_command, started_script
from simulator.launch.model import named_network, read_model
from simulator.launch.programs import TITAN_MARKS, is_nanogpt, read_llm_c, read_nanogpt, read_torchtitan
from simulator.launch.ranks import LaunchLine, LaunchRanks
from simulator.launch.settings import BUCKET, DeepSpeed, read_deepspeed, take_recipe, take_spellings
from simulator.launch.shell import commands_of, script_text
from simulator.launch.stages import megatron_stages
from simulator.launch.trainer import add_config, read_format, read_sharding, read_sizes, read_trainer, read_update
from simulator.launch.words import COMMANDS, NAMES
from simulator.questions.options import RECOMPUTED_PARTS
from simulator.records import replace
from simulator.workload.zoo.registry import entry_of

__all__ = ["LaunchLine", "read_launch"]
_LISTED = 12
_MOST_SCRIPTS = 4  # one runs another
_OTHER_MODELS = re.compile("bert|t5|mamba|vision|vlm|retro|ict|multimodal|biencoder")
_EXPERT_KERNELS = {"grouped_mm": "grouped", "eager": "loop", "scattermoe": "scatter"}  # of transformers, Axolotl
_EIGHT = ("fp8-format", "fp8-hybrid", "fp8-e4m3")
_NARROW = (*_EIGHT, "fp4-format")
_UNREAD = ", which chooses the attention of each GPU and ignores --use-flash-attn"


def read_launch(text: str, at_hand: int | None = None, own: int | None = None) -> LaunchLine:
    """Return the settings of the line *text*, or of ``@script.sh``, not run; raises InputError with placed faults."""
    file = text[1:] if text.startswith("@") else mention("launch")
    if text.startswith("@"):
        text = script_text(file)
    elif len(text.split()) == 1 and os.path.isfile(text):
        raise InputError(f"{mention('launch')}: {text} is a file; write @{text} to read the line in it")
    script = commands_of(text, file)
    for _ in range(_MOST_SCRIPTS):
        started = started_script(script)
        if started is not None:
            file = started[0]
            script = commands_of(script_text(file), *started)
    twice = [f"${name}" for name in script.twice]
    notes = [f"{file}: {name} is set more than once; the last value counts" for name in twice]
    if len(twice) > _LISTED:
        notes = [f"{file}: variables are set more than once, and the last value counts: {few(twice)}"]
    command = find_command(script, file)
    if command.program in NAMES["refused_programs"]:
        raise InputError(Fault(f"{command.program} {NAMES['refused_programs'][command.program]}", file))
    notes += filter(None, [command.note])
    files = Files(file, script.written)
    args = Arguments(command.arguments, file, files, notes)
    launcher = args
    if command.launcher is not command.arguments:
        launcher = Arguments(command.launcher, file, files, notes)
    if "num-layers" in args and _OTHER_MODELS.search(command.program):
        args.fault("num-layers", f"{command.program} trains no GPT; name the network by --workload without them")
    recipe = take_recipe(args, launcher)
    take_spellings(args)
    add_config(args, launcher, command.program)
    found = LaunchLine(notes=notes, variables={name: word.text for name, word in command.environment.items()})
    found.batch = args.written(*ARGUMENTS["batches"])
    starting.read_variables(found)
    ranks = starting.read_ranks(command, launcher, script.comments, own)
    if recipe is not None and ranks.whole not in (None, recipe[0]):
        told = f"is for {recipe[0]} ranks, and the launcher starts {ranks.whole}"
        args.faults.append(replace(recipe[1], message=told))
    args.faults += [] if launcher is args else launcher.faults
    is_launched = command.starter or any(word.name in COMMANDS["of_clusters"] for word in command.launcher)
    of_program = ranks if is_launched else ranks.first
    if command.program in COMMANDS["of_llm_c"]:
        read_llm_c(command, args, of_program, found)
    elif is_nanogpt(command, args):
        read_nanogpt(args, of_program, found)
    elif "torchtitan" in command.program or any(name.startswith(TITAN_MARKS) for name in args):
        read_torchtitan(args, of_program, found)
    else:
        ranks = starting.started_ranks(command, args, ranks)
        _General(args, launcher, ranks, found).read(at_hand)
        _refuse_methods(args, command.program)
        if command.program.startswith("tf_"):  # tf_cnn_benchmarks.py
            found.options["framework"] = "tensorflow"
        if "clip" in command.program and "workload" in found.options:  # two towers, of which the name says one
            found.unknown = f"--model {args.value('model')} of {command.program}"
            del found.options["workload"]
    refuse_arguments(args, launcher, command.starter)
    found.notes += unread(args, launcher, command.starter, found.files)
    return found


def _refuse_methods(args: Arguments, program: str) -> None:
    """Add a fault if a program, its command, or an argument names a method other than fine-tuning and pretraining."""
    said = (program.removesuffix(".py"), *args.others[:1], args.text("stage") or "", args.text("rl") or "")
    method = next((name for name in said if name.lower() in COMMANDS["of_methods"]), "")
    if method:
        told = "compares answers with a second network's, or generates them, which is not modelled; fine-tuning is"
        args.faults.append(Fault(f"{mention('launch')}: {one_line(method, 40)} {told}"))


class _General:
    """Reads arguments of Megatron-LM, DeepSpeed, and Hugging Face's Trainer into *found*."""

    def __init__(self, args: Arguments, launcher: Arguments, ranks: LaunchRanks, found: LaunchLine) -> None:
        self.args, self.launcher, self.ranks, self.found, self.options = args, launcher, ranks, found, found.options
        self.deepspeed = DeepSpeed()
        path = args.text("deepspeed-config") or args.value("deepspeed") or launcher.text("deepspeed-config-file")
        if path is not None:
            with args.recording():
                self.deepspeed = read_deepspeed(path, args.files)
        args.notes += self.deepspeed.notes
        self.trainer = read_trainer(args, launcher)
        is_said = "deepspeed" in args and not is_off(args.value("deepspeed") or "true")
        self.deepspeed.is_there |= self.trainer.of_deepspeed or is_said

    def read(self, at_hand: int | None) -> None:
        args, ranks, found, options, trainer = self.args, self.ranks, self.found, self.options, self.trainer
        self.precision = precision = self._format()
        layout = self.layout = starting.read_layout(args, ranks, self.deepspeed)
        if trainer.of_deepspeed or trainer.zero == 2:  # parameters in half precision, and an fp32 copy in shards
            precision = precision and precision.replace("amp-", "master-")
        plain, of_plain = read_sharding(args) if "num-layers" not in args else (None, "none")
        if plain is not None and not layout.zero:
            layout.zero = plain
        if trainer.zero is not None and self.deepspeed.zero is None:
            layout.zero, layout.shards = trainer.zero, trainer.shards
            if trainer.in_nodes:
                layout.shards = trainer.shards or ranks.each
                if ranks.each is None:
                    found.notes.append("hybrid_shard: simulated as full_shard; the GPUs of a node are not known")
        length, trains_gpt = self._network()
        if length is not None:
            options["seq_len"] = str(length)
        if precision is not None or trains_gpt:
            options["precision"] = precision or "fp32"
        found.place(ranks)
        held = next((each for each in (self.deepspeed.offload, trainer.offload, of_plain) if each != "none"), None)
        if held is not None:
            self.deepspeed.offload = held
            self._offload(of_strategy=of_plain != "none" and bool(args.value("strategy")))
        exchange = starting.read_overlap(args, layout, precision, self.deepspeed)
        if ranks.whole == 1 and held == "optimizer" and "overlap" in exchange:
            options["overlap"] = exchange["overlap"]
        if ranks.whole != 1:
            options |= {"parallel": layout.words, **exchange}
            size = args.number("ddp-bucket-cap-mb")  # of the Trainer's replicas
            if size is not None and layout.tp == layout.pp == layout.cp == 1 and not layout.zero:
                options["overlap"] = f"bucket:{size}MiB"
        self._batch(layout.dp or (at_hand or 0) // (layout.tp * layout.pp * layout.cp) or None)
        self._recompute()
        if trainer.lora:
            found.sizes |= {"lora": trainer.lora, **({"lora_layers": "all"} if trainer.adapts_all else {})}
        if trainer.liger:
            found.sizes |= {"cross_entropy": "fused-linear", "norms": "fused"}
            simulated = "the loss is simulated as Liger's, norms as one kernel, other layers as PyTorch's"
            found.notes.append(f"Liger's kernels: {simulated}")
        if trainer.nf4:
            found.sizes["lora_weights"] = trainer.nf4
        again = trainer.gathers_again and "parallel" in options
        said = {"recompute": trainer.recomputes, "compiled": trainer.compiles, "gather_again": again}
        said["flat_parameters"] = trainer.flat and "parallel" in options
        options |= {name: True for name, is_said in said.items() if is_said}

    def _network(self) -> tuple[int | None, bool]:
        args, found, options, deepspeed = self.args, self.found, self.options, self.deepspeed
        model = read_model(args, self.layout.tp, _attention(args))
        further = int(model.sizes.get("mtp_layers", 0))
        self.layout.more += megatron_stages(args, self.layout.pp, model.layers, further)
        if model.workload:
            options |= {"workload": model.workload, "framework": "megatron"}
            found.sizes = model.sizes
            args.choice(("adam", "sgd", "muon", "dist_muon"), "optimizer")
            options |= read_update(args, self.layout.tp) or {"optimizer": "adam"}
            options |= {"fused_optimizer": True} if options["optimizer"] != "muon" else {}
            way = args.choice(("native", "te", "linear"), "cross-entropy-fusion-impl")
            if args.flag("cross-entropy-loss-fusion") and way == "te":  # the native one takes the memory of none
                found.sizes["cross_entropy"] = "in-place"
            elif way == "linear":
                found.notes.append("--cross-entropy-fusion-impl linear: is not modelled; simulated as native")
            self._graphs()
            return model.length, True
        network, found.unknown = named_network(args)
        options |= read_sizes(args)
        options |= {"workload": network} if network else {}
        entry = entry_of(network) if network else None
        hidden = 0 if entry is None else int(entry.defaults.get("hidden", 0))
        kernels = _EXPERT_KERNELS.get(args.value("experts-implementation") or "")
        if kernels and entry is not None and "expert_kernels" in entry.defaults and args.has("experts-implementation"):
            found.sizes["expert_kernels"] = kernels
        deepspeed.bucket = deepspeed.bucket or hidden**2 or BUCKET
        if any(name in args for name in ARGUMENTS["of_megatron"]) and not deepspeed.is_there:
            options["framework"] = "megatron"
            told = "the line names no format: fp32, unless --precision says another, such as master-bf16"
            found.notes += [told] if self.precision is None else []
        options |= {"framework": "deepspeed-zero3"} if deepspeed.is_there and self.layout.zero == 3 else {}
        options |= deepspeed.options or read_update(args) or self.trainer.update
        return model.length, False

    def _offload(self, *, of_strategy: bool) -> None:
        """Read what the host holds, with the software that copies it; *of_strategy*: Lightning's."""
        args, options, deepspeed, zero = self.args, self.options, self.deepspeed, self.layout.zero
        if not zero:
            args.notes.append("offload: is for shards (stages 1 to 3), and without effect")
            deepspeed.offload = "none"
            return
        options["offload"] = deepspeed.offload
        args.has("cpu-optimizer", "cpu-torch-adam")
        if of_strategy and zero == 3:
            options["framework"] = "deepspeed-zero3"
        if deepspeed.torch_adam or args.has("cpu-torch-adam"):
            options["optimizer"] = "adam-loop"
            options.pop("fused_optimizer", None)
        if deepspeed.round_robin and zero < 3 and self.ranks.whole != 1:
            options["round_robin_gradients"] = True
        options |= {"bind_cores_to_rank": True} if self.launcher.flag("bind-cores-to-rank") else {}

    def _format(self) -> str | None:
        args, deepspeed, trainer = self.args, self.deepspeed, self.trainer
        if not trainer.is_there:
            of_megatron = _precision(args)
            plain = None if of_megatron or "num-layers" in args else read_format(args)
            return of_megatron or deepspeed.precision or plain or deepspeed.otherwise
        found = deepspeed.precision or trainer.precision
        of_program = "deepspeed" in args and args.value("deepspeed") is None and "deepspeed-config" not in args
        if found in ("fp32", "tf32") and of_program:
            told = "the program makes its configuration, whose format is not known; add --precision"
            args.notes.append(f"--deepspeed: {told}")
            return None
        return found

    def _graphs(self) -> None:
        args = self.args
        older = "transformer_engine" if args.flag("external-cuda-graph") else "none"
        older = "local" if args.flag("enable-cuda-graph") and older == "none" else older
        how = args.choice(("none", "local", "transformer_engine"), "cuda-graph-impl") or older
        scope = (args.text("cuda-graph-scope") or "full").split()
        if how == "local" and scope == ["full_iteration"]:
            self.options["cuda_graph"] = True
        elif how != "none":
            self.options["cuda_graph_blocks"] = True
            if scope != ["full"]:
                told = "is not modelled; graphs launch whole layers, except their experts"
                args.notes.append(f"--cuda-graph-scope: {told}")

    def _batch(self, dp: int | None) -> None:
        args, deepspeed, trainer = self.args, self.deepspeed, self.trainer
        micro = args.number("micro-batch-size", "batch-size", *ARGUMENTS["batches_of_a_process"])
        micro = micro or deepspeed.micro_batch or trainer.micro_batch
        whole = args.number("global-batch-size") or deepspeed.batch
        # As in PyTorch's imagenet/main.py, whose batch the processes of a node share.
        shared = args.number("b", "batch-size") if args.has("multiprocessing-distributed") else None
        if shared is not None and dp is not None:
            whole = shared * (args.number("world-size") or 1)
            micro = max(1, whole // dp)
        count = deepspeed.micro_batches or trainer.micro_batches
        for name, own, said in (
            ("micro-batch-size", micro, deepspeed.micro_batch),
            ("per-device-train-batch-size", trainer.micro_batch, deepspeed.micro_batch),
            ("gradient-accumulation-steps", trainer.micro_batches, deepspeed.micro_batches),
        ):
            if own is not None and said not in (None, own):
                args.fault(name, f"{own}, and DeepSpeed's configuration says {said}")
        if deepspeed.batch is not None and whole == deepspeed.batch and dp is not None:  # which DeepSpeed refuses too
            each = (micro or 1) * (count or 1) * dp
            known = micro is not None and count is not None
            if (whole != each) if known else whole % each:
                parts = [f"{micro} a GPU"] * (micro is not None) + [f"{count} accumulated"] * (count is not None)
                product = " x ".join([*parts, f"{dp} GPUs"])
                name = "deepspeed-config" if "deepspeed-config" in args else "deepspeed"
                no = "not" if known else "no multiple of"
                args.fault(name, f"train_batch_size {whole} is {no} {product}, which is {each}")
        if micro is None and whole is not None and dp is not None and count is not None:
            micro = max(1, whole // (dp * count))
        if micro is None:
            return
        if whole is None and dp is not None:
            whole = micro * dp * (count or 1)
        if whole is None:
            told = "is missing, and nothing says how many replicas there are (--nproc-per-node)"
            args.fault("global-batch-size", told)
            return
        self.options |= {"global_batch": str(whole), "micro_batch": str(micro)}

    def _recompute(self) -> None:
        args, options = self.args, self.options
        how = args.choice(("full", "selective"), "recompute-granularity", "activations-checkpoint-granularity")
        method = args.choice(("uniform", "block"), "recompute-method", "activations-checkpoint-method")
        counts = "recompute-num-layers", "activations-checkpoint-num-layers", "checkpoint-num-layers"
        count = args.number(*counts, least=0)
        if how is None and args.has("recompute-activations"):
            how = "selective"
        older = ("checkpoint-activations", "deepspeed-activation-checkpointing")
        if how is None and (args.has(*older) or method is not None):
            how = "full"
        modules = (args.text("recompute-modules") or "").replace(",", " ").split()
        if args.has("moe-layer-recompute") and how != "full":
            how, modules = "selective", [*modules, "moe"]
        if how == "full" and not (method == "block" and count == 0):
            options["recompute"] = True
            if method == "block" and count is not None:
                options["recompute_blocks"] = str(count)
            elif method != "block" and (count or 1) > 1:
                args.notes.append("--recompute-num-layers: is not modelled; the input of each layer is kept")
        elif how == "selective":
            known = [part for part in RECOMPUTED_PARTS if part in modules]
            unknown = next((part for part in modules if part not in known), None)
            if unknown is not None:
                told = f"{one_line(unknown, 40)}: no such part; {nearest(unknown, RECOMPUTED_PARTS)}"
                args.fault("recompute-modules", told)
            elif known in ([], ["core_attn"]):
                options["recompute_attention"] = True
            else:
                options["recompute_parts"] = ",".join(known)


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
    return "nvfp4" if four else "master-fp8" if eight else f"master-{half}" if half else None


def _attention(args: Arguments) -> str:
    """Return the attention of the line, or Megatron-LM's of that age, whose layers alone read --use-flash-attn."""
    backend = args.choice(("auto", "flash", "fused", "unfused", "local"), "attention-backend")
    implementation = args.choice(("local", "transformer_engine", "inference_optimized"), "transformer-impl")
    is_flash = args.has("use-flash-attn")
    if backend is not None:
        return {"auto": "fused-native", "fused": "fused-native", "flash": "fused"}.get(backend, "fused-softmax")
    if implementation == "local" and args.has(*_NARROW):
        args.fault("transformer-impl", "local has no fp8 and no nvfp4; transformer_engine has")
    of_core = args.has("use-mcore-models", "tp-comm-overlap", *_NARROW)  # Transformer Engine's, or they select it
    old = next((name for name in args if name in ARGUMENTS["old"]), None)
    own = "fused" if is_flash and not of_core else "fused-softmax"  # of Megatron-LM's own layers
    if implementation is not None:
        return own if implementation == "local" else "fused-native"
    if of_core:
        return "fused-native"
    if "num-layers" not in args or (old is not None and is_flash):
        return own
    if old is not None:
        args.notes.append(
            f"--transformer-impl: is not given; simulated as local, with Megatron-LM's own fused softmax, as in the "
            f"older checkouts that have --{old}"
        )
        return own
    args.notes.append(
        "--transformer-impl: is not given; simulated as transformer_engine, the default of current checkouts of "
        f"Megatron-LM{_UNREAD if is_flash else ''}; where yours is older (2023), add --transformer-impl local"
    )
    return "fused-native"
