"""Launch lines of torchtitan: ``torchrun -m torchtitan.train --model.name llama3 --model.flavor 8B ...``.

Names are those of its job_config.py until 2025, and of config/configs.py since, whose lines name a model as ``--module
llama3 --config llama3_8b``.  Data-parallel ranks shard parameters (FSDP2) unless their degree says otherwise.
Parameters are stored in fp32 and multiplied in bf16.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.launch.arguments import KNOWN, Arguments, Names
from simulator.launch.command import Command
from simulator.launch.ranks import LaunchRanks
from simulator.launch.result import LaunchLine
from simulator.launch.words import NAMES
from simulator.workload.zoo.registry import find_entry

NETWORKS: Mapping[tuple[str, str], str] = {
    (model, flavor): name for model, flavors in NAMES["torchtitan"].items() for flavor, name in flavors.items()
}
"""Networks of the zoo by torchtitan's model and flavor."""
_MOST_BYTES = 1_000_000
_TIMELESS = Names(KNOWN["torchtitan"])
_MARKS = ("training.", "parallelism.", "model.name", "job.")


def is_torchtitan(command: Command, args: Arguments) -> bool:
    """Return whether *command* runs torchtitan's train.py."""
    return "torchtitan" in command.program or any(name.startswith(_MARKS) for name in args)


def read_torchtitan(args: Arguments, ranks: LaunchRanks, found: LaunchLine) -> None:
    """Add what *args*, and the file that they name, say to *found*; faults are added to *args*."""
    options = found.options
    _take_file(args, found)
    args.has(*(name for name in args if name in _TIMELESS))
    layers = _network(args, found)
    said = args.text("training.dtype")
    wide = args.text("training.mixed-precision-param") == "float32"
    options["precision"] = "bf16" if said == "bfloat16" else "fp32" if wide else "amp-bf16"
    options["seq_len"] = str(args.number("training.seq-len") or 2048)
    args.text("optimizer.name")
    how = args.choice(("for-loop", "foreach", "fused"), "optimizer.implementation") or "fused"
    options["optimizer"] = "adam-loop" if how == "for-loop" else "adam"
    options |= {"fused_optimizer": True} if how == "fused" else {}
    _layout(args, ranks, layers, found)
    if args.flag("compile.enable", "training.compile"):
        options["compiled"] = True
    _recomputation(args, layers, found)
    if args.flag("training.enable-cpu-offload"):
        options["offload"] = "optimizer+parameters"
    if args.text("model.converters"):
        found.notes.append("--model.converters: is not modelled; layers multiply in the format of their parameters")
    found.place(ranks)


def _take_file(args: Arguments, found: LaunchLine) -> None:
    """Take the settings of the file of ``--job.config_file``, behind those of the line; note one not here."""
    path = args.text("job.config-file")
    if path is None or not args.files.has(path):
        found.files += [] if path is None else [path]
        return
    with args.recording():
        raw = args.files.read(path, _MOST_BYTES, needed="torchtitan's file", usual="a configuration is a few kB")
        try:
            data = tomllib.loads(raw.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(Fault(f"is not TOML: {one_line(error, 80)}", path, 1, 1)) from None
        settings = {key: value for key, value in data.items() if isinstance(value, dict)}
        for section, key, value in ((name, key, each[key]) for name, each in settings.items() for key in each):
            said = str(value).lower() if isinstance(value, bool) else one_line(value, 80)
            if value not in ([], ""):
                args.take(f"{section}.{key}".replace("_", "-"), said, Fault("", path, 1, 1))


def _network(args: Arguments, found: LaunchLine) -> int:
    """Add the network; return its number of layers, 0 if it is not known."""
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


def _layout(args: Arguments, ranks: LaunchRanks, layers: int, found: LaunchLine) -> None:
    tp, pp, cp, ep = (
        args.number(f"parallelism.{axis}-parallel-degree") or 1 for axis in ("tensor", "pipeline", "context", "expert")
    )
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
    dp = None if shards is None else copies * shards
    words = [f"{name}={degree}" for name, degree in (("tp", tp), ("pp", pp), ("cp", cp)) if degree > 1]
    words += [] if dp is None else [f"dp={dp}"]
    words += [f"ep={ep}"] if ep > 1 else []
    args.has("parallelism.enable-sequence-parallel")
    overlaps = args.flag("parallelism.enable-async-tensor-parallel", "compile.enable-async-tensor-parallel")
    if tp > 1 and not args.has("parallelism.no-enable-sequence-parallel"):
        words += ["sp", "tp_overlap"] if overlaps else ["sp"]
    words += _schedule(args, pp, layers, found)
    words += _shards(args, pp, None if shards is None else shards * cp, copies)
    if whole != 1:
        found.options["parallel"] = ",".join(words) or "dp"
    local = args.number("training.local-batch-size", "training.batch-size") or 8
    part = args.number("parallelism.pipeline-parallel-microbatch-size") or 1
    args.has("training.global-batch-size")
    batch = None if dp is None else local * dp
    if args.value("training.global-batch-size") not in (None, "-1"):
        batch = args.number("training.global-batch-size") or batch
    if batch is not None:
        found.options |= {"global_batch": str(batch), "micro_batch": str(part if pp > 1 else local)}


def _shards(args: Arguments, pp: int, each: int | None, copies: int) -> list[str]:
    """Return the words for sharded parameters: *each* ranks hold a full set.

    With pipelines parameters stay gathered, and gradients are scattered once a step, as with ``zero=1``.
    """
    policy = args.choice(("default", "always", "never"), "parallelism.fsdp-reshard-after-forward") or "default"
    if each == 1:
        return []
    over = "" if copies == 1 or each is None else str(each)
    if policy == "always" or (policy == "default" and pp == 1):
        return [f"fsdp={over}" if over else "fsdp"]
    return [f"zero={1 if pp > 1 else 2}", *([f"shards={over}"] if over else [])]


def _schedule(args: Arguments, pp: int, layers: int, found: LaunchLine) -> list[str]:
    said = args.text("parallelism.pipeline-parallel-schedule") or "1F1B"
    of_stage = "parallelism.pipeline-parallel-layers-per-stage"
    each = args.number(of_stage)
    ends = [args.number(f"parallelism.pipeline-parallel-{end}-stage-less-layers", least=0) for end in ("first", "last")]
    if pp == 1:
        return []
    if said.lower() not in ("1f1b", "gpipe", "interleaved1f1b"):
        told = f"{one_line(said, 40)}: is not modelled; simulated as 1F1B"
        found.notes.append(f"--parallelism.pipeline_parallel_schedule {told}")
    if not said.lower().startswith("interleaved"):
        return ["schedule=gpipe"] if said.lower() == "gpipe" else []
    parts = 2
    if each is not None:
        usual = 1 if "module" in args else 0  # of the embedding and of the logits, in versions that name a module
        stages = -(-(layers + sum(usual if end is None else end for end in ends)) // each)
        parts = stages // pp
        if stages % pp:
            args.fault(of_stage, f"{each}: {stages} stages are no multiple of {pp}")
    return [f"vp={parts}"] if parts > 1 else []


def _recomputation(args: Arguments, layers: int, found: LaunchLine) -> None:
    mode = args.choice(("selective", "full", "none"), "activation-checkpoint.mode") or "selective"
    how = (args.text("activation-checkpoint.selective-ac-option") or "2").lower()
    if mode == "full":
        found.options["recompute"] = True
    elif mode == "selective" and (how == "op" or "module" in args):
        found.options["recompute_operators"] = True
    elif mode == "selective" and re.fullmatch(r"[1-9]\d{0,3}", how):
        found.options["recompute"] = True
        if int(how) > 1 and layers:
            blocks = max(1, layers // int(how))
            found.options["recompute_blocks"] = str(blocks)
            found.notes.append(f"every {how} layers are recomputed: simulated as the first {blocks} of {layers}")
