"""Launch lines of nanoGPT, llm.c and torchtitan, with arguments of their own (docs/decisions/launch-lines.md)."""

import ast
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.launch.arguments import ARGUMENTS, KNOWN, Arguments, Names, leaves, whole_sum
from simulator.launch.command import Command
from simulator.launch.ranks import LaunchDegrees, LaunchLine, LaunchRanks
from simulator.launch.stages import titan_stages
from simulator.launch.words import NAMES
from simulator.questions.layout import parse_layout
from simulator.training.schedules import part_count
from simulator.workload.zoo.registry import find_entry

_MOST_OF_PYTHON, _MOST_OF_TOML, _USUAL = 100_000, 1_000_000, "a configuration is a few kB"
_MOST = 10**9
_KNOWN = KNOWN["nanogpt"]
_DEFAULTS, _OWN = _KNOWN["defaults"], _KNOWN["own"]
_SIZES, _FORMATS, _CHARACTERS = (NAMES["nanogpt"][name] for name in ("sizes", "formats", "characters"))
_MARKS = ("n-embd", "n-layer", "n-head")
_LLM_C = NAMES["llm_c"]
_GPT2, _GPT3 = _LLM_C["gpt2"], _LLM_C["gpt3"]
NETWORKS: Mapping[tuple[str, str], str] = {
    (model, flavor): name for model, flavors in NAMES["torchtitan"].items() for flavor, name in flavors.items()
}
"""Networks of the zoo by torchtitan's model and flavor."""
_TIMELESS = Names(KNOWN["torchtitan"])
TITAN_MARKS = ("training.", "parallelism.", "model.name", "job.")
"""What arguments of torchtitan begin with."""


def is_nanogpt(command: Command, args: Arguments) -> bool:
    """Return whether *command* runs a train.py with variables of nanoGPT, or with a file of its folder config/."""
    if not command.program.endswith(".py") or "num-layers" in args:
        return False
    files = (word for word in args.others if word.endswith(".py"))
    own = any("config" in Path(word).parts or Path(word).name in _OWN for word in files)
    own |= "block-size" in args and not any(name in args for name in ARGUMENTS["networks"])
    return any(name in args for name in _MARKS) or (own and command.program == "train.py")


def read_nanogpt(args: Arguments, ranks: LaunchRanks, found: LaunchLine) -> None:
    """Add what *args* and the files that they name say to *found*; faults are added to *args*."""
    said = dict(_DEFAULTS)
    for word in args.others:
        if word.endswith(".py"):
            said |= _file(word, args, found)
    args.others = [word for word in args.others if not word.endswith(".py")]
    for name in args:
        key = name.replace("-", "_")
        if key in said:
            said[key] = args.text(name) or "True"
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                said[key] = ast.literal_eval(said[key])
        elif name in _KNOWN["timeless"].split():
            args.has(name)
    world = ranks.whole or 1
    options, number = found.options, partial(_number, args, said)
    layers, heads, hidden = number("n_layer"), number("n_head"), number("n_embd")
    if said["init_from"] in _SIZES:
        layers, heads, hidden = _SIZES[said["init_from"]]
    elif said["init_from"] != "scratch":
        args.fault("init-from", f"{one_line(said['init_from'], 40)}: sizes of a checkpoint are not read; give them")
    batch, length, count = number("batch_size"), number("block_size"), number("gradient_accumulation_steps")
    if count % world:
        args.fault("gradient-accumulation-steps", f"{count} is no multiple of {world} processes, which share it")
    if said["eval_only"] is True:
        args.fault("eval-only", "trains nothing; leave it out")
    dtype = str(said["dtype"])
    if dtype not in _FORMATS:
        args.fault("dtype", f"{one_line(dtype, 40)} is not known; allowed: {', '.join(_FORMATS)}")
    words = _CHARACTERS.get(str(said["dataset"]), 50257 if said["init_from"] in _SIZES else 50304)
    if said["bias"] is not True and said["init_from"] == "scratch":
        found.notes.append("--bias=False: is not modelled; simulated with biases")
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "vocabulary": words, "positions": max(length, 1)}
    sizes["dropout"] = int(bool(said["dropout"]))
    step = batch * max(1, count // world) * world, batch
    found.take_gpt2(sizes, length, step, _FORMATS.get(dtype, "fp32"))
    options |= {"compiled": True} if said["compile"] is True else {}
    found.place(ranks if ranks.whole else ranks.first)
    options |= {"parallel": f"dp={world}"} if world > 1 else {}


def _file(path: str, args: Arguments, found: LaunchLine) -> dict[str, Any]:
    """Return the settings of the Python file *path*: of a file of the project that is not at hand, the known ones."""
    name = Path(path).name
    if not args.files.has(path) and name in _OWN:
        own: dict[str, Any] = _OWN[name]
        what = ", ".join(f"{key}={value}" for key, value in own.items()) or "the defaults of train.py"
        found.notes.append(f"{path}: is not here; simulated as in nanoGPT: {what}")
        return own
    known: dict[str, Any] = {}
    with args.recording():
        raw = args.files.read(path, _MOST_OF_PYTHON, needed="a Python file", usual=_USUAL)
        try:
            tree = ast.parse(raw.decode())
        except (SyntaxError, ValueError, RecursionError) as error:
            line, told = getattr(error, "lineno", None) or 1, "is not Python; a configuration assigns values to names"
            raise InputError(Fault(told, path, line, 1)) from None
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                key = node.targets[0].id
                value = _assigned(node.value, {**_DEFAULTS, **known})
                if value is not None:
                    known[key] = value
                elif key in _DEFAULTS:
                    what = one_line(ast.unparse(node.value), 40)
                    told = f"{key}: {what} is known only as the file runs; write its value"
                    args.faults.append(Fault(told, path, node.lineno, node.col_offset + 1))
    return {key: value for key, value in known.items() if key in _DEFAULTS}


def _assigned(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return the value of an expression: a constant, a known name, or a sum of whole numbers; None if anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    words = ast.unparse(node)
    for name, value in known.items():
        if type(value) is int:
            words = words.replace(name, str(value))
    return whole_sum(words)


def _number(args: Arguments, said: Mapping[str, Any], name: str) -> int:
    value = said[name]
    if type(value) is int and 1 <= value <= _MOST:
        return value
    args.fault(name.replace("_", "-"), f"{one_line(value, 40)} is not a whole number, 1 to {_MOST}")
    return 1


def read_llm_c(command: Command, args: Arguments, ranks: LaunchRanks, found: LaunchLine) -> None:
    """Add what *args* say to *found*; faults are added to *args*."""
    args.has(*_LLM_C["without_effect"].split())
    whole = args.number("pn") if "pn" in args else ranks.whole
    each = args.number("pg") or 8
    if "pn" in args and whole is not None and ranks.nodes in (None, 1) and whole > each:
        ranks = LaunchRanks(whole // each, each, whole)
    world = whole or 1
    micro, length = args.number("b") or 4, args.number("t") or 1024
    tokens = args.number("d") if args.value("d") not in (None, "-1") else micro * length * world
    if tokens is not None and tokens % (micro * length * world):
        args.fault("d", f"{tokens} tokens is no multiple of {micro} x {length} x {world} processes")
    layers, heads, hidden, positions = _model(args)
    if length > positions:
        args.fault("t", f"{length} is longer than the {positions} positions of the network")
    stage = args.number("z", least=0) or 0
    if stage > 1:
        found.notes.append(f"-z {stage}: llm.c has stages 0 and 1, and runs others as 0")
    wide = command.program == "train_gpt2fp32cu"
    master = args.text("w") != "0" if "w" in args else True
    for name, told in (("ge", "GELU is a kernel of its own"), ("r", "what it recomputes is kept")):
        if args.number(name, least=0) if name in args else name == "r":
            found.notes.append(f"-{name} {args.value(name) or 1}: is not modelled; {told}")
    found.notes.append(
        "llm.c: simulated with cuDNN's attention (make USE_CUDNN=1), launches as cheap as a CUDA graph's, and without "
        "the loss, which is one kernel there (about 2 % of a step)"
    )
    found.place(ranks.first if world == 1 else ranks)
    options = found.options
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "vocabulary": 50304, "positions": positions}
    step = (tokens or micro * length * world) // length, micro
    precision = "tf32" if wide else "master-bf16" if master else "bf16"
    found.take_gpt2({**sizes, "dropout": 0, "loss": 0}, length, step, precision)
    options["cuda_graph"] = True
    if world > 1:
        # The gradients of a block go together as its backward pass ends.
        options["parallel"] = f"dp={world}" + (",zero=1" if stage == 1 else "")
        options["overlap"] = f"bucket:{12 * hidden * hidden * (4 if wide else 2)}B"
        options |= {"prefetch": False} if stage == 1 else {}


def _model(args: Arguments) -> tuple[int, int, int, int]:
    """Return layers, heads, hidden size and positions of ``-e d12``, ``gpt3:c768`` or a file of GPT-2's weights."""
    said = args.text("e") or "gpt2_124M_bf16.bin"
    shape = re.fullmatch(r"(?:gpt2:)?d(\d{1,4})", said)
    if shape is not None and int(shape[1]) in _GPT2:
        return int(shape[1]), *_GPT2[int(shape[1])], 1024
    shape = re.fullmatch(r"gpt3:c(\d{1,6})", said)
    if shape is not None and int(shape[1]) in _GPT3:
        layers, heads = _GPT3[int(shape[1])]
        return layers, heads, int(shape[1]), 2048
    name = said.rpartition("/")[2].lower()
    depth = next((depth for begin, depth in _LLM_C["files"].items() if name.startswith(begin)), None)
    if depth is None:
        known = [*(f"d{depth}" for depth in _GPT2), *(f"gpt3:c{hidden}" for hidden in _GPT3)]
        args.fault("e", f"{one_line(said, 40)}: sizes of a checkpoint are not read; {nearest(said, known)}")
    return depth or 12, *_GPT2[depth or 12], 1024


def read_torchtitan(args: Arguments, ranks: LaunchRanks, found: LaunchLine) -> None:
    """Add what *args*, and the file that they name, say to *found*; faults are added to *args*."""
    options = found.options
    _take_file(args, found)
    args.has(*(name for name in args if name in _TIMELESS))
    layers = _titan_network(args, found)
    said = args.text("training.dtype")
    wide = args.text("training.mixed-precision-param") == "float32"
    options["precision"] = "bf16" if said == "bfloat16" else "fp32" if wide else "amp-bf16"
    options["seq_len"] = str(args.number("training.seq-len") or 2048)
    args.text("optimizer.name")
    how = args.choice(("for-loop", "foreach", "fused"), "optimizer.implementation") or "fused"
    options["optimizer"] = "adam-loop" if how == "for-loop" else "adam"
    options |= {"fused_optimizer": True} if how == "fused" else {}
    _titan_layout(args, ranks, layers, found)
    parts = args.text("compile.components") or "model"
    if args.flag("compile.enable", "training.compile"):
        options |= {"compiled": True} if "model" in parts else {}
        whole = "is not modelled; nothing is compiled"
        found.notes += [] if "model" in parts else [f"--compile.components {one_line(parts, 40)}: {whole}"]
    _titan_recomputation(args, layers, found)
    if args.flag("training.enable-cpu-offload"):
        options["offload"] = "optimizer+parameters"
    _titan_formats(args, found)
    found.place(ranks)


def _titan_formats(args: Arguments, found: LaunchLine) -> None:
    """Take ``--model.converters``, of which those to 8 bits are known; without one, settings of formats do nothing."""
    said = args.text("model.converters")
    if said is None or not any(word in said for word in ("float8", "mx")):
        args.has(*(name for name in args if name.startswith(("float8.", "mx.", "quantize."))))
        own = "is not modelled; layers multiply in the format of their parameters"
        found.notes += [f"--model.converters: {own}"] if said else []
        return
    other = found.options["precision"] != "amp-bf16" or said.replace("quantize.linear.", "") != "float8"
    found.options["precision"] = "master-fp8"
    if "fsdp" in str(found.options.get("parallel")):
        found.options["reduce_fp32"] = True
    if other:
        simulated = "linear layers of blocks, and experts, multiply in fp8 and are gathered in 16 bits"
        found.notes.append(f"--model.converters {one_line(said, 60)}: is simulated as fp8; {simulated}")


def _take_file(args: Arguments, found: LaunchLine) -> None:
    """Take the settings of the file of ``--job.config_file``, behind those of the line; note one not here."""
    path = args.text("job.config-file")
    if path is None or not args.files.has(path):
        found.files += [] if path is None else [path]
        return
    with args.recording():
        try:
            raw = args.files.read(path, _MOST_OF_TOML, needed="torchtitan's file", usual=_USUAL)
            data = tomllib.loads(raw.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(Fault(f"is not TOML: {one_line(error, 80)}", path, 1, 1)) from None
        for name, value in leaves({key: each for key, each in data.items() if isinstance(each, dict)}):
            listed = ",".join(map(str, value)) if isinstance(value, list) else value
            said = str(value).lower() if isinstance(value, bool) else one_line(listed, 80)
            if value not in ([], ""):
                args.take(name.replace("_", "-"), said, Fault("", path, 1, 1))


def _titan_network(args: Arguments, found: LaunchLine) -> int:
    flavor = args.text("model.flavor", "config") or ""
    model = (args.text("model.name", "module") or "").lower().replace("-", "_")
    flavor = flavor.lower().removeprefix(f"{model}_").replace("_", "-")
    name = NETWORKS.get((model, flavor))
    if name is not None:
        found.options["workload"] = name
        return int(find_entry(name).defaults["layers"])
    if model or flavor:
        known = [f"{each[0]} {each[1]}" for each in NETWORKS]
        said = one_line(f"{model} {flavor}".strip(), 40)
        args.fault("model.flavor" if "model.flavor" in args else "model.name", f"{said}; {nearest(said, known)}")
    return 0


def _titan_layout(args: Arguments, ranks: LaunchRanks, layers: int, found: LaunchLine) -> None:
    axes = "tensor", "pipeline", "context", "expert"
    tp, pp, cp, ep = (args.number(f"parallelism.{axis}-parallel-degree") or 1 for axis in axes)
    copies = args.number("parallelism.data-parallel-replicate-degree") or 1
    of_shards = "parallelism.data-parallel-shard-degree"
    whole, degrees = ranks.whole, tp * pp * cp * copies
    args.has(of_shards)
    if args.value(of_shards) in (None, "-1"):
        shards = whole // degrees if whole is not None and whole % degrees == 0 else None
        if whole is not None and shards is None:
            args.fault(of_shards, f"{degrees} ranks of the other degrees do not divide {whole}")
    else:
        shards = args.number(of_shards)
        if whole is not None and shards is not None and degrees * shards != whole:
            product = f"{shards} x {degrees} ranks of the other degrees is {shards * degrees}"
            args.fault(of_shards, f"{product}, and {whole} take part")
    dp, whole_set = (None, None) if shards is None else (copies * shards, shards * cp)
    words = [f"ep={ep}"] if ep > 1 else []
    each = args.number("parallelism.expert-tensor-parallel-degree")
    words += [f"etp={each}"] if ep > 1 and each not in (None, tp) else []
    backend = args.choice(("standard", "deepep"), "parallelism.expert-parallel-comm-backend")
    words += ["flex"] if ep > 1 and backend == "deepep" else []
    args.has("parallelism.enable-sequence-parallel")
    overlaps = args.flag("parallelism.enable-async-tensor-parallel", "compile.enable-async-tensor-parallel")
    if tp > 1 and not args.has("parallelism.no-enable-sequence-parallel"):
        words += ["sp", "tp_overlap"] if overlaps else ["sp"]
    words += _titan_schedule(args, pp, layers, found)
    # With pipelines parameters stay gathered, and gradients are scattered once a step, as with zero=1.
    policy = args.choice(("default", "always", "never"), "parallelism.fsdp-reshard-after-forward") or "default"
    zero = 3 if policy == "always" or (policy == "default" and pp == 1) else 1 if pp > 1 else 2
    if whole != 1:
        zero = 0 if whole_set == 1 else zero
        found.options["parallel"] = LaunchDegrees(tp, pp, cp, dp, words, zero, whole_set).words
    local = args.number("training.local-batch-size", "training.batch-size") or 8
    part = args.number("parallelism.pipeline-parallel-microbatch-size") or 1
    args.has("training.global-batch-size")
    batch = None if dp is None else local * dp
    if args.value("training.global-batch-size") not in (None, "-1"):
        batch = args.number("training.global-batch-size") or batch
    if batch is not None:
        found.options |= {"global_batch": str(batch), "micro_batch": str(part if pp > 1 else local)}


def _titan_schedule(args: Arguments, pp: int, layers: int, found: LaunchLine) -> list[str]:
    said = args.text("parallelism.pipeline-parallel-schedule") or "1F1B"
    ours = {theirs.lower(): name for name, theirs in NAMES["torchtitan_schedules"].items()}.get(said.lower())
    of_two = ours not in (None, "1f1b", "gpipe") or said.lower() == "interleaved1f1b"
    usual = 2 if of_two else 1  # parts of a stage
    parts, blocks = titan_stages(args, pp, layers, usual, "" if ours is None or usual == 1 else said)
    if pp == 1:
        return []
    if ours is None and said.lower() != "interleaved1f1b":
        told = f"{one_line(said, 40)}: is not modelled; simulated as 1F1B"
        found.notes.append(f"--parallelism.pipeline_parallel_schedule {told}")
    items = [f"vp={parts}"] if parts > 1 and ours is None else []
    items += [f"blocks={'-'.join(map(str, blocks))}"] if len(set(blocks)) > 1 else []
    return items if ours in (None, "1f1b") else [*items, f"schedule={ours}"]


def _titan_recomputation(args: Arguments, layers: int, found: LaunchLine) -> None:
    mode = args.choice(("selective", "full", "memory_budget", "none"), "activation-checkpoint.mode") or "selective"
    if mode == "memory_budget":
        found.notes.append("--activation_checkpoint.mode memory_budget: is not modelled; simulated as selective, op")
    how = (args.text("activation-checkpoint.selective-ac-option") or "2").lower()
    if mode == "full":
        found.options["recompute"] = True
    elif mode == "memory_budget" or (mode == "selective" and (how == "op" or "module" in args)):
        found.options["recompute_operators"] = True
    elif mode == "selective" and re.fullmatch(r"[1-9]\d{0,3}", how):
        found.options["recompute"] = True
        if int(how) > 1 and layers:
            layout = parse_layout(str(found.options.get("parallel", "dp")))
            each = -(-layers // part_count(layout))
            blocks, of_part = max(1, each // int(how)), " in each part of a pipeline" if layout.pp > 1 else ""
            found.options["recompute_blocks"] = str(blocks)
            told = f"every {how} layers are recomputed: simulated as the first {blocks} of {each}{of_part}"
            found.notes.append(told)
