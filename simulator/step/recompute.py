"""Recomputation: activations that the backward pass computes again instead of loading them.

Either whole blocks, which save only their input (Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv
1604.06174), or only attention, from queries, keys and values: its scores are most of the memory of a block but little
of its arithmetic (Korthikanti et al., "Reducing Activation Recomputation", arXiv 2205.05198, section 4.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from simulator.questions.options import StepOptions
from simulator.step.fusion import Group
from simulator.workload.network import Layer, Network, block_name, once
from simulator.workload.operators import Attention, MatMul

__all__ = ["attention_tensors", "recomputed_groups"]


def recomputed_groups(groups: Sequence[Group], options: StepOptions) -> dict[int, range]:
    """Return the recomputed *groups*, as ranges of indices, by the group before whose backward pass they run."""
    if not options.recompute and not options.recompute_attention:
        return {}
    spans = _blocks(groups) if options.recompute else _attentions([group.layers for group in groups])
    return {span[-1]: span for span in spans}


def _blocks(groups: Sequence[Group]) -> list[range]:
    named = groupby(range(len(groups)), key=lambda place: block_name(groups[place].layers[0].name))
    runs = [(name, list(places)) for name, places in named]
    return [range(places[0], places[-1] + 1) for name, places in runs if name]


def _attentions(groups: Sequence[Iterable[Layer]]) -> list[range]:
    """Return for each block the range of indices from its first product of activations to its last."""
    found: dict[str, list[int]] = {}
    for place, layers in enumerate(groups):
        for layer in layers:
            if isinstance(layer.operator, Attention | MatMul):
                found.setdefault(block_name(layer.name), []).append(place)
    return [range(places[0], places[-1] + 1) for places in found.values()]


@once
def attention_tensors(network: Network) -> tuple[frozenset[int], frozenset[int]]:
    """Return the tensors and the layer indices that are not saved if only attention is recomputed."""
    tensors: set[int] = set()
    layers: set[int] = set()
    for span in _attentions([[layer] for layer in network.layers]):
        layers.update(span)
        tensors.update(network.layers[place].output for place in span[:-1])
    return frozenset(tensors), frozenset(layers)
