"""Linear layers of one input that Megatron-Core computes as one product.

Queries, keys and values are one matrix (``linear_qkv`` in megatron/core/transformer/attention.py), and so are a gate
and what it multiplies (``linear_fc1`` of a gated feed-forward part in mlp.py).  So the input is cast once, and its
gradient comes whole from one product instead of being added up.  Each expert's gate is joined in the network itself.

The first of the layers in forward order stands for all: forward, the others read its result; backward, it comes last,
when the gradients of all results are there.
"""

from __future__ import annotations

from simulator.records import dataclass, replace
from simulator.workload.network import Layer, Network, block_name, once
from simulator.workload.operators import Linear


@dataclass(frozen=True, slots=True)
class Joined:
    """What runs for a layer: ``operator`` of all, or None, if another stands for it.

    ``adds_as``: its gradients are added to others where this layer's are; "": nowhere.
    """

    operator: Linear | None = None
    adds_as: str = ""


@once
def joined_layers(network: Network) -> dict[str, Joined]:
    """Return the layers of *network* that are one product with others of the same input, by name."""
    alike: dict[tuple[object, ...], list[Layer]] = {}
    for layer in network.layers:
        operator = layer.operator
        if type(operator) is Linear and layer.split == "columns" and block_name(layer.name):
            key = block_name(layer.name), layer.part, layer.inputs, bool(layer.trained), operator.bias
            alike.setdefault(key, []).append(layer)
    found: dict[str, Joined] = {}
    for layers in alike.values():
        if len(layers) > 1:
            found.update((layer.name, Joined()) for layer in layers)
            products = [layer.operator for layer in layers if isinstance(layer.operator, Linear)]
            whole = replace(products[0], outputs=sum(product.outputs for product in products))
            found[layers[0].name] = Joined(whole, adds_as=layers[-1].name)
    return found
