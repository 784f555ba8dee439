"""The blocks of each part of a pipeline, as launch lines of Megatron-LM and torchtitan share them out."""

import ast
import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from simulator.errors import one_line
from simulator.launch.arguments import ARGUMENTS, Arguments

_LAYOUT = "pipeline-model-parallel-layout"
_OF_PART = "num-layers-per-virtual-pipeline-stage"
_TITAN_EACH = "parallelism.pipeline-parallel-layers-per-stage"
_TITAN_STARTS = "parallelism.pipeline-parallel-split-points"
_FIRST, _LAST = "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"
_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_REPEATS = re.compile(r"\(([^()]+)\)\*(\d{1,4})"), re.compile(r"(.)\*(\d{1,4})")
_WRITTEN = re.compile(r"E[t|]*[m|]*L")


def megatron_stages(args: Arguments, pp: int, layers: int, further: int) -> list[str]:
    """Return the items of ``--parallel`` for *layers* in *pp* stages; *further* ones predict tokens, in the last part.

    Sources: megatron/core/transformer (pipeline_parallel_layer_layout.py; ``get_num_layers_to_build`` of
    transformer_block.py) and megatron/training/arguments.py.
    """
    said, of_part = args.text(_LAYOUT), args.number(_OF_PART)
    parts = args.number("num-virtual-stages-per-pipeline-rank") or 1
    first, last = args.number(_FIRST), args.number(_LAST)
    apart = [args.flag(f"account-for-{end}-in-pipeline-split") for end in ("embedding", "loss")]
    counted = layers + sum(apart)
    if pp == 1 or not layers:
        return []
    if of_part is not None and said is not None:
        args.fault(_OF_PART, f"--{_LAYOUT} says the parts already; give one of the two")
    if of_part is not None and said is None:
        if counted % (pp * of_part):
            args.fault(_OF_PART, f"{of_part} x {pp} stages do not divide {counted} layers")
            return []
        parts = counted // (pp * of_part)
    blocks: list[int] = []
    if said is not None:
        blocks = _laid_out(args, said, pp, layers, further)
        parts = len(blocks) // pp or 1
    elif first or last:
        blocks = _with_ends(args, first, last, pp, parts, layers)
    elif counted % (pp * parts) == 0 and counted // (pp * parts) > max(apart):
        blocks = [counted // (pp * parts)] * (pp * parts)
        blocks[0], blocks[-1] = blocks[0] - apart[0], blocks[-1] - apart[1]
    elif not any(name in args for name in ARGUMENTS["uneven"]):  # others' pipelines may be uneven
        name = "account-for-loss-in-pipeline-split" if any(apart) else "num-layers"
        args.fault(name, f"{counted} layers do not fill {pp * parts} parts alike")
    if blocks and said is None:
        blocks[-1] += further
    uneven = len(set(blocks)) > 1
    return [f"vp={parts}"] * (parts > 1) + [f"blocks={'-'.join(map(str, blocks))}"] * uneven


def titan_blocks(layers: int, parts: int, first: int, last: int) -> list[int]:
    """Return the blocks of each of *parts*, where the ends count as *first* and *last* layers; or none.

    Source: torchtitan/distributed/pipeline_parallel.py (``generate_llm_fqn_per_model_part``).
    """
    each, more = divmod(layers + first + last, parts)
    blocks = [each + (part < more) for part in range(parts)]
    blocks[0], blocks[-1] = blocks[0] - first, blocks[-1] - last
    return blocks if min(blocks) >= 0 else []


def titan_stages(args: Arguments, pp: int, layers: int, parts: int, fixed: str) -> tuple[int, list[int]]:
    """Return the parts of each of *pp* stages, by default *parts*, and the blocks of each; none where all are alike.

    A schedule *fixed* to that number of parts takes no other.  Versions before options for the ends cut evenly.
    """
    ends = [args.number(f"parallelism.pipeline-parallel-{end}-stage-less-layers", least=0) for end in ("first", "last")]
    each, starts = args.number(_TITAN_EACH), re.findall(r"[\w.]+", args.text(_TITAN_STARTS) or "")
    usual = 1 if "module" in args else 0  # of the embedding and of the logits, in versions that name a module
    first, last = (usual if end is None else end for end in ends)
    if pp == 1 or not layers:
        return parts, []
    name, count = _TITAN_EACH, pp * parts
    if starts:
        name, count = _TITAN_STARTS, len(starts) + 1
    elif each is not None and parts > 1:
        count = -(-(layers + first + last) // each)
    if count % pp or (fixed and count != pp * parts):
        why = f"{fixed} has {pp * parts} stages" if fixed else f"{count} stages are no multiple of {pp}"
        args.fault(name, f"{one_line(args.value(name) or '', 40)}: {why}")
        return parts, []
    blocks = titan_blocks(layers, count, first, last) if usual or ends != [None, None] else []
    return count // pp, _started(args, starts, layers) if starts else blocks


def _started(args: Arguments, starts: Sequence[str], layers: int) -> list[int]:
    """Return the blocks of the parts that begin at modules *starts*: ``layers.8``, or ``norm``, after all layers."""
    found = [re.fullmatch(r"layers\.(\d{1,5})", start) for start in starts]
    first = [layers if match is None else int(match[1]) for match in found]
    if any(match is None and start != "norm" for match, start in zip(found, starts, strict=True)):
        args.fault(_TITAN_STARTS, f"'{one_line(' '.join(starts), 40)}': name layers, for example layers.8,layers.16")
        return []
    blocks = [b - a for a, b in pairwise([0, *first, layers])]
    if min(blocks) < 0:
        args.fault(_TITAN_STARTS, f"'{one_line(' '.join(starts), 40)}' do not ascend to the {layers} layers")
        return []
    return blocks


def titan_starts(blocks: Sequence[int]) -> str | None:
    """Return the modules at which parts of *blocks* begin, as torchtitan's line names them; None without any."""
    return ",".join(f"layers.{n}" if n < sum(blocks) else "norm" for n in accumulate(blocks[:-1])) or None


def layout_text(blocks: Sequence[int], further: int) -> str:
    """Return *blocks*, the last of them *further* ones, as ``--pipeline-model-parallel-layout`` has them."""
    letters = iter("t" * (sum(blocks) - further) + "m" * further)
    parts = ["".join(next(letters) for _ in range(count)) for count in blocks]
    short = [re.sub(r"(t|m)\1+", lambda each: f"{each[1]}*{len(each[0])}", part) for part in parts]
    return f"E{'|'.join(short)}L"


def _laid_out(args: Arguments, said: str, pp: int, layers: int, further: int) -> list[int]:
    text = re.sub(r"[,\s]", "", said)
    if said.startswith("["):
        try:
            rows = [[_LETTERS[name] for name in row] for row in ast.literal_eval(said)]
            text = "|".join(map("".join, rows))
        except (ValueError, SyntaxError, KeyError, TypeError):
            text = ""
    for pattern in _REPEATS:
        text = pattern.sub(lambda each: each[1] * int(each[2]), text)
    parts = text.split("|")
    counts = text.count("t"), text.count("m")
    if not _WRITTEN.fullmatch(text) or text.count("E") != 1:
        args.fault(_LAYOUT, f"'{one_line(said, 40)}' is no layout of parts; for example Et*3|(tt|)*29,m|L")
    elif len(parts) % pp:
        args.fault(_LAYOUT, f"{len(parts)} parts are no multiple of {pp} stages")
    elif counts[0] != layers:
        args.fault(_LAYOUT, f"{counts[0]} transformer layers (t), and the network has {layers}")
    elif "" in parts:
        args.fault(_LAYOUT, f"part {parts.index('') + 1} has no layers, which is not modelled here")
    else:
        return [part.count("t") + (part.count("m") if further else 0) for part in parts]
    return []


def _with_ends(args: Arguments, first: int | None, last: int | None, pp: int, parts: int, layers: int) -> list[int]:
    ends = [each for each in (first, last) if each is not None]
    rest, others = layers - sum(ends), pp - len(ends)
    if rest < 0 or others < 0 or (rest % others if others else rest) or any(each % parts for each in ends):
        name = _FIRST if first else _LAST
        args.fault(name, f"{others} other stages do not share {rest} of {layers} layers")
        return []
    each = rest // others if others else 0
    stages = [first or each, *[each] * (pp - 2), last or each]
    if each % parts:
        args.fault(_FIRST if first else _LAST, f"{each} layers of a stage do not divide into {parts} parts")
        return []
    return [stage // parts for _ in range(parts) for stage in stages]
