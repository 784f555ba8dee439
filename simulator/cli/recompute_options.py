"""The options of recomputation: ``--recompute`` and its like, read together."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from simulator.cli.options import parse_choice, parse_count, refuse
from simulator.cli.written import Written
from simulator.errors import InputError, refused
from simulator.questions.options import RECOMPUTED_PARTS, Recompute, RecomputedPart, StepOptions
from simulator.spelling import mention
from simulator.step.recompute import reruns_of
from simulator.workload.network import Network, block_name


def read_recompute(written: Written) -> tuple[Recompute, tuple[RecomputedPart, ...], int | None]:
    """Return how activations are recomputed, which parts of blocks, and in how many blocks; raises InputError."""
    ways: dict[str, tuple[bool, Recompute]] = {
        mention("recompute"): (written.recompute, "full"),
        mention("recompute_attention"): (written.recompute_attention, "selective"),
        mention("recompute_parts"): (written.recompute_parts is not None, "selective"),
        mention("recompute_operators"): (written.recompute_operators, "operators"),
    }
    given = [(option, how) for option, (is_given, how) in ways.items() if is_given]
    if len(given) > 1:
        raise InputError(f"{given[1][0]}: {given[0][0]} says already what is recomputed; give one of the two")
    how: Recompute = given[0][1] if given else "none"
    parts = StepOptions().recompute_parts if written.recompute_parts is None else _parts(written.recompute_parts)
    blocks = written.recompute_blocks
    return how, parts, None if blocks is None else parse_count("recompute_blocks", blocks)


def _parts(text: str) -> tuple[RecomputedPart, ...]:
    return tuple(dict.fromkeys(parse_choice("recompute_parts", name, RECOMPUTED_PARTS) for name in text.split(",")))


def check_recomputes(written: Written, options: StepOptions, network: Network, chunks: int) -> None:
    """Raise InputError if *options* recompute parts that *network* does not have.

    *chunks*: the fewest chunks into which one of the ways of running the step cuts the network.
    """
    workload = written.what
    none = f"and {workload} has none"
    blocks = "applies to repeated blocks, " + none
    there = len({block_name(layer.name) for layer in network.layers} - {""})
    most = ceil(there / chunks)
    if there and (options.recompute_blocks or 0) > most:
        where = f"{workload} has" if chunks == 1 else f"a stage's chunk of {workload} has at most"
        raise refused("recompute_blocks", f"{where} {most} blocks", options.recompute_blocks)
    if options.recompute == "full":
        refuse({mention("recompute"): not reruns_of(network, options)}, blocks)
    if options.recompute == "operators":
        refuse({mention("recompute_operators"): not reruns_of(network, options)}, blocks)
    if options.recompute != "selective":
        return
    for part in options.recompute_parts:
        some = options.recompute_blocks if chunks == 1 else None
        alone = StepOptions(recompute="selective", recompute_parts=(part,), recompute_blocks=some)
        if not reruns_of(network, alone):
            if written.recompute_attention and some is None:
                raise refused("recompute_attention", f"applies to attention, {none}")
            if some is not None and reruns_of(network, replace(alone, recompute_blocks=None)):
                raise refused("recompute_blocks", f"none of the first {some} blocks of {workload} has {part}", some)
            raise refused("recompute_parts", f"applies to blocks with such a part, {none}", part)
