"""Pipeline stages: a network cut into consecutive parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from simulator.errors import InputError
from simulator.workload.network import Layer, Network, block_name, once

__all__ = ["Stage", "joined", "stages_of", "units_of"]


@dataclass(frozen=True, eq=False)
class Stage:
    """One part: its network, and the elements that it gets from the part before, and of parameters that others have.

    ``shared_elements`` are those of parameters that stand in another part too (a tied embedding).
    """

    network: Network
    received_elements: int
    shared_elements: int


@once
def stages_of(network: Network, count: int) -> tuple[Stage, ...]:
    """Return *network* in *count* consecutive parts.

    Repeated blocks are shared out evenly where their number allows (as Megatron-LM does it), what comes before them
    with the first and what comes after with the last; of two parts more than blocks these are parts of their own
    (``--account-for-embedding-in-pipeline-split``, ``--account-for-loss-in-pipeline-split``).  Otherwise blocks, or
    layers where nothing repeats, are shared out so that the part with most FLOPs has as few as can be.

    Raises InputError where there are fewer of them.
    """
    units = units_of(network)
    if len(units) < count == len(units) + 2:
        units = _with_ends(units)
    if count > len(units):
        kind = "blocks" if any(block_name(layer.name) for layer in network.layers) else "layers"
        raise InputError(f"--parallel: {network.name} has {len(units)} {kind}; pp x vp is at most that, not {count}")
    blocks = [number for number, unit in enumerate(units) if block_name(unit[0].name) or block_name(unit[-1].name)]
    if len(blocks) == len(units) and len(units) % count == 0 and _alike(units):
        each = len(units) // count
        cuts = [each * part for part in range(count + 1)]
    else:
        cuts = _balanced([sum(_weight(layer) for layer in unit) for unit in units], count)
    return _made(network, [[layer for unit in units[a:b] for layer in unit] for a, b in pairwise(cuts)])


def joined(parts: Sequence[Stage]) -> Network:
    """Return the parts of one stage as one network."""
    first = parts[0].network
    if len(parts) == 1:
        return first
    layers = tuple(layer for part in parts for layer in part.network.layers)
    return replace(first, layers=layers, trained_inputs=frozenset(t for p in parts for t in p.network.trained_inputs))


def units_of(network: Network) -> list[list[Layer]]:
    """Return what is not cut: each block with what follows it outside of any; each layer where there are no blocks."""
    names = [block_name(layer.name) for layer in network.layers]
    if not any(names):
        return [[layer] for layer in network.layers]
    units: list[list[Layer]] = [[]]
    current = ""
    for layer, name in zip(network.layers, names, strict=True):
        if name and name != current:
            if current:
                units.append([])
            current = name
        units[-1].append(layer)
    return units


def _with_ends(units: list[list[Layer]]) -> list[list[Layer]]:
    """Return *units*, and what comes before the first block and after the last as two more, where there is such."""
    first, last = units[0], units[-1]
    begins = next((n for n, layer in enumerate(first) if block_name(layer.name)), 0)
    ends = len(last) - next((n for n, layer in enumerate(reversed(last)) if block_name(layer.name)), 0)
    if len(units) < 2 or not begins or ends == len(last):
        return units
    return [first[:begins], first[begins:], *units[1:-1], last[:ends], last[ends:]]


def _alike(units: Sequence[Sequence[Layer]]) -> bool:
    """Return whether the blocks do the same, whatever comes before the first and after the last."""
    shapes = [[layer.operator for layer in unit if block_name(layer.name)] for unit in units]
    return all(shape == shapes[0] for shape in shapes)


def _weight(layer: Layer) -> float:
    """Return what a layer weighs: its FLOPs, and its result, which is written and read."""
    return layer.operator.flop + 10.0 * layer.operator.output_elements


def _balanced(weights: Sequence[float], count: int) -> list[int]:
    """Return the cuts with which the heaviest of *count* parts is lightest; by dynamic programming."""
    sums = [0.0]
    for weight in weights:
        sums.append(sums[-1] + weight)
    n = len(weights)
    best = [sums[end] for end in range(n + 1)]  # of so many units in as many parts as were added
    starts: list[list[int]] = []
    for part in range(1, count):
        longer, start = [float("inf")] * (n + 1), [0] * (n + 1)
        for end in range(part + 1, n + 1):
            for cut in range(end - 1, part - 1, -1):
                own = sums[end] - sums[cut]
                heaviest = max(best[cut], own)
                if heaviest < longer[end]:
                    longer[end], start[end] = heaviest, cut
                if own > longer[end]:
                    break
        best = longer
        starts.append(start)
    cuts = [n]
    for start in reversed(starts):
        cuts.append(start[cuts[-1]])
    return [0, *reversed(cuts)]


def _made(network: Network, parts: Sequence[Sequence[Layer]]) -> tuple[Stage, ...]:
    written: dict[int, int] = {}  # the part that writes a tensor
    read: dict[int, int] = {}  # the last part that reads it
    owners: dict[str, set[int]] = {}
    for number, layers in enumerate(parts):
        for layer in layers:
            for tensor in layer.inputs:
                read[tensor] = number
            written[layer.output] = number
            for parameter in layer.parameters:
                owners.setdefault(parameter.name, set()).add(number)
    stages = []
    for number, layers in enumerate(parts):
        crossing = [t for t, first in written.items() if first < number <= read.get(t, -1)]
        parameters = {p.name: p.elements for layer in layers for p in layer.parameters}
        shared = sum(n for name, n in parameters.items() if len(owners[name]) > 1)
        part = replace(network, layers=tuple(layers), trained_inputs=frozenset(crossing))
        stages.append(Stage(part, sum(network.elements[t] for t in crossing), shared))
    return tuple(stages)
