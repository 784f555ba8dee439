"""A network with another loss: in place of its scores, or computed together with its output layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from simulator.errors import InputError
from simulator.workload.network import Layer, Network, readers_of
from simulator.workload.operators import CrossEntropy, InPlaceCrossEntropy, Linear, LinearCrossEntropy

LossWay = Literal["plain", "in-place", "fused-linear", "chunked"]
LOSS_WAYS: tuple[LossWay, ...] = get_args(LossWay)
_CHUNKS = 8  # torchtitan's default


def with_losses(network: Network, way: LossWay) -> Network:
    """Return *network* with its cross-entropies computed in another *way*.

    ``in-place``: the scores' gradient over the scores (Transformer Engine); ``fused-linear``: with the output layer, in
    chunks (Liger); ``chunked``: the same by torch's operators in eight chunks (torchtitan).

    Raises InputError if there is no linear layer whose result only the loss reads.
    """
    writers = {layer.output: layer for layer in network.layers}
    readers = readers_of(network)
    elements = list(network.elements)
    found: list[Layer] = []
    for layer in network.layers:
        if not isinstance(layer.operator, CrossEntropy):
            found.append(layer)
            continue
        scores = layer.inputs[0]
        head = writers.get(scores)
        if head is None or not isinstance(head.operator, Linear) or len(readers[scores]) > 1:
            raise InputError(
                f"{network.name}: cross_entropy={way} needs a linear layer whose result only the loss reads"
            )
        rows, classes = layer.operator.rows, layer.operator.cols
        if way == "in-place":
            found.append(replace(layer, operator=InPlaceCrossEntropy(rows, classes)))
            continue
        found.remove(head)
        elements[scores] = 0
        chunks = _CHUNKS if way == "chunked" else 0
        operator = LinearCrossEntropy(rows, head.operator.inputs, classes, min(chunks, rows), bool(head.trained))
        inputs = head.inputs[0], layer.inputs[1]
        found.append(replace(layer, operator=operator, inputs=inputs, parameters=head.parameters))
    return replace(network, layers=tuple(found), elements=tuple(elements))
