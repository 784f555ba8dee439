"""Arguments that training programs share without one library behind them: timm, torchvision, Lightning, run_clm.py.

They say how many devices one process starts (``--devices 4``), the format (``--amp``, ``--precision bf16-mixed``), the
length of sequences and the size of images.
"""

from __future__ import annotations

import re

from simulator.errors import InputError, one_line
from simulator.launch.arguments import Arguments, spelt_flag
from simulator.launch.command import Command
from simulator.launch.ranks import LaunchRanks
from simulator.launch.visible import VisibleGpus
from simulator.questions.options import Optimizer
from simulator.questions.step import Offload

BATCHES = ("b", "batch-size-training", "train-batch-size")  # of one process
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
    """Return the stage of ZeRO that ``--strategy`` of Lightning or ``--enable_fsdp`` ask for, and what the host holds.

    The stage is None if they do not.
    """
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
