"""Expert parallelism: the experts of a layer divided among ranks that have different tokens.

Tokens go to the ranks that have their experts by an all-to-all, and their results come back by another (Lepikhin et
al., "GShard", arXiv 2006.16668).  Routing is balanced: a rank computes as many rows as it sends away.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from simulator.errors import InputError
from simulator.workload.network import Layer, Network, Parameter, once
from simulator.workload.operators import Exchange, Linear

__all__ = ["expert_parameters", "expert_split", "whole_experts_note"]


@once
def expert_split(network: Network, ranks: int) -> Network:
    """Return what one of *ranks* computes of *network*; raises InputError where experts do not share out evenly."""
    if ranks == 1:
        return network
    if not any(_is_of_experts(layer) for layer in network.layers):
        raise InputError(f"--parallel: ep={ranks}: {network.name} has no experts")
    elements = list(network.elements)
    layers: list[Layer] = []
    for part, run in groupby(network.layers, key=lambda layer: layer.part):
        mine = list(run)
        products = [layer for layer in mine if _is_of_experts(layer)]
        if part != "experts" or not products:
            layers += mine
            continue
        for layer in mine:
            own = _part_of(layer, ranks)
            if layer is products[0]:
                sent = _exchange(layer, f"{layer.name}.dispatch", layer.inputs[0], len(elements), elements)
                layers.append(sent)
                own = replace(own, inputs=(sent.output, *layer.inputs[1:]))
            if layer is products[-1]:
                returned = _exchange(layer, f"{layer.name}.return", len(elements), layer.output, elements)
                layers += [replace(own, output=returned.inputs[0]), returned]
            else:
                layers.append(own)
    return replace(network, layers=tuple(layers), elements=tuple(elements))


def expert_parameters(network: Network) -> frozenset[str]:
    """Return the names of parameters of which ranks that divide the experts have different ones."""
    return frozenset(p.name for layer in network.layers if layer.part == "experts" for p in layer.parameters)


def whole_experts_note(network: Network, tp: int) -> str | None:
    """Return that tensor parallelism of *tp* ranks leaves the experts of *network* whole, None where it has none."""
    if tp == 1 or not any(_is_of_experts(layer) for layer in network.layers):
        return None
    return f"tp={tp} leaves experts whole on each of its ranks (--expert-tensor-parallel-size 1); ep divides them"


def _is_of_experts(layer: Layer) -> bool:
    return isinstance(layer.operator, Linear) and layer.operator.experts > 1


def _exchange(layer: Layer, name: str, tensor: int, output: int, elements: list[int]) -> Layer:
    """Return the all-to-all from *tensor* to *output*, of which one is new and gets the next number."""
    n = elements[layer.inputs[0] if output == len(elements) else layer.output]
    elements.append(n)
    exchange = Exchange("ep", "all-to-all", "all-to-all", n, n)
    return Layer(name, exchange, (tensor,), output, part=layer.part)


def _part_of(layer: Layer, ranks: int) -> Layer:
    operator = layer.operator
    if not isinstance(operator, Linear) or operator.experts == 1:
        return layer
    if operator.experts % ranks:
        fits = ", ".join(str(d) for d in range(1, operator.experts + 1) if operator.experts % d == 0)
        raise InputError(
            f"--parallel: ep={ranks} does not divide the {operator.experts} experts of {layer.name}; {fits}"
        )
    parameters = tuple(Parameter(p.name, p.elements // ranks, p.trained) for p in layer.parameters)
    return replace(layer, operator=replace(operator, experts=operator.experts // ranks), parameters=parameters)
