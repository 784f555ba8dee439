"""Linear layers of one input that Megatron-Core computes as one product.

Queries, keys and values are one matrix (``linear_qkv`` in megatron/core/transformer/attention.py), and so are a gate
and what it multiplies (``linear_fc1`` of a gated feed-forward part in mlp.py).  So the input is cast once, and its
gradient comes whole from one product instead of being added up.  Each expert's gate is joined in the network itself.

Adapters (LoRA) of joined layers are one: a product to their rank, one to all results, and one scale and sum.

The first of the layers in forward order stands for all: forward, the others read its result; backward, it comes last,
when the gradients of all results are there.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.records import dataclass, replace
from simulator.workload.network import Layer, Network, block_name, once
from simulator.workload.operators import Elementwise, Linear, Operator

_ADAPTS = ("lora_a", "lora_b", "lora_scale", "lora_add")


@dataclass(frozen=True, slots=True)
class JointProduct:
    """What runs for a layer: ``operator`` of all, or None, if another stands for it.

    ``adds_as``: its gradients are added to others where this layer's are; "": nowhere.
    """

    operator: Operator | None = None
    adds_as: str = ""


@once
def joint_products(network: Network) -> dict[str, JointProduct]:
    """Return the layers of *network* that are one product with others of the same input, by name."""
    alike: dict[tuple[object, ...], list[Layer]] = {}
    for layer in network.layers:
        operator = layer.operator
        if type(operator) is Linear and layer.split == "columns" and block_name(layer.name):
            key = block_name(layer.name), layer.part, layer.inputs, bool(layer.trained), operator.bias
            alike.setdefault(key, []).append(layer)
    by_name = {layer.name: layer for layer in network.layers}
    found: dict[str, JointProduct] = {}
    for layers in alike.values():
        if len(layers) > 1:
            _join(layers, found)
            for suffix in _ADAPTS:
                adapters = [by_name[name] for layer in layers if (name := f"{layer.name}.{suffix}") in by_name]
                if len(adapters) == len(layers):
                    _join(adapters, found, widens=suffix != "lora_a")
    return found


def _join(layers: Sequence[Layer], found: dict[str, JointProduct], *, widens: bool = True) -> None:
    """Add what stands for each of *layers* to *found*; *widens*: their results are beside one another."""
    found.update((layer.name, JointProduct()) for layer in layers)
    first, elements = layers[0].operator, sum(layer.operator.output_elements for layer in layers)
    if widens and isinstance(first, Linear):
        first = replace(first, outputs=elements // first.rows)
    elif isinstance(first, Elementwise):
        first = replace(first, elements=elements)
    found[layers[0].name] = JointProduct(first, adds_as=layers[-1].name)
