"""Launch lines of llm.c (``mpirun -np 8 ./train_gpt2cu -b 64 -t 1024 -d 524288 -z 1 -e d12``): :func:`read_llm_c`.

Flags and their defaults are those of karpathy/llm.c, train_gpt2.cu.
"""

from __future__ import annotations

import re

from simulator.errors import nearest, one_line
from simulator.launch.arguments import Arguments
from simulator.launch.command import Command
from simulator.launch.ranks import LaunchRanks
from simulator.launch.result import LaunchLine

PROGRAMS = ("train_gpt2cu", "train_gpt2fp32cu", "profile_gpt2cu")
# Heads and hidden size by depth, and (depth, heads) by hidden size, of the models that its descriptors name.
_GPT2 = {6: (6, 384), 12: (12, 768), 24: (16, 1024), 36: (20, 1280), 48: (25, 1600), 60: (30, 1920), 72: (30, 2880)}
_GPT3 = {384: (6, 6), 768: (12, 12), 1024: (24, 16), 1536: (24, 16), 2048: (24, 16), 2560: (32, 32), 4096: (32, 32)}
_FILES = {"gpt2_124m": 12, "gpt2_355m": 24, "gpt2_medium": 24, "gpt2_774m": 36, "gpt2_large": 36, "gpt2_xl": 48}
_TIMELESS = "i j o n nk nm y x k l u q c sl sg v m s g h a f pr pi pm pf ps pp"


def read_llm_c(command: Command, args: Arguments, ranks: LaunchRanks, found: LaunchLine) -> None:
    """Add what *args* say to *found*; faults are added to *args*."""
    args.has(*_TIMELESS.split())
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
    depth = next((depth for begin, depth in _FILES.items() if name.startswith(begin)), None)
    if depth is None:
        known = [*(f"d{depth}" for depth in _GPT2), *(f"gpt3:c{hidden}" for hidden in _GPT3)]
        args.fault("e", f"{one_line(said, 40)}: sizes of a checkpoint are not read; {nearest(said, known)}")
    return depth or 12, *_GPT2[depth or 12], 1024
