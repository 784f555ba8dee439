"""What Megatron-Core runs as one outside of experts: products of one input, and functions of element-wise layers.

Queries, keys and values are one matrix (``linear_qkv`` in megatron/core/transformer/attention.py), and so are a gate
and what it multiplies (``linear_fc1`` of a gated feed-forward part in mlp.py).  So the input is cast once, and its
gradient comes whole from one product instead of being added up.  Each expert's gate is joined in the network itself.
Adapters (LoRA) of joined layers are one: a product to their rank, one to all results, and one scale and sum.  The first
of the layers in forward order stands for all: forward, the others read its result; backward, it comes last, when the
gradients of all results are there.

Functions are

* the activation between two products of a feed-forward part with its gate (``bias_swiglu_fusion``, on by default);
* rotary positions of queries and of keys (``apply_rope_fusion``, on by default: ``fused_apply_rotary_pos_emb`` of
  Transformer Engine); those of latent attention stay passes of plain torch.

Forward, a function reads what enters and writes its result.  Backward, an activation reads what entered and the
gradient of its result, a rotation that gradient alone, and both write the gradients of what entered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simulator.questions.options import StepOptions
from simulator.records import dataclass, replace
from simulator.step.expert_passes import NARROW, ExpertExtras, expert_passes
from simulator.step.precision import storage_of
from simulator.workload.kernels import Streaming
from simulator.workload.network import Layer, Network, block_name, once
from simulator.workload.operators import Attention, Copy, Elementwise, Linear, Operator
from simulator.workload.precision import ELEMENT_BYTES

_ADAPTS = ("lora_a", "lora_b", "lora_scale", "lora_add")
_ROTATES = "rotate_"
_LATENT = "kv_latent"


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


# -- passes ----------------------------------------------------------------------------


def passes_of(network: Network, options: StepOptions) -> Mapping[tuple[str, str], ExpertExtras]:
    """Return what Megatron-Core runs besides, or in place of, each layer's kernels, by layer and pass."""
    if options.mode == "inference" or options.compiled:
        return {}
    size = ELEMENT_BYTES[storage_of(options.precision)]
    experts = expert_passes(network, size, narrow=options.precision in NARROW)
    return {**fused_passes(network, size), **split_passes(network, size), **experts}


def split_passes(network: Network, element: int) -> Mapping[tuple[str, str], ExpertExtras]:
    """Return the copies of queries out of, and of all gradients into, a joined product of attention.

    Its result has the queries of a group of heads beside the group's key and value, so queries of several groups are
    copied to be one tensor (``query.reshape`` in megatron/core/transformer/attention.py).  Attention's kernels write
    three gradients, which are joined (``SplitAlongDim``'s backward pass).
    """
    groups = {
        block_name(layer.name): layer.operator.kv_heads or layer.operator.heads
        for layer in network.layers
        if isinstance(layer.operator, Attention)
    }
    found: dict[tuple[str, str], ExpertExtras] = {}
    for layer in network.layers:
        joined = joint_products(network).get(layer.name)
        if joined is None or joined.operator is None or layer.part != "attention":
            continue
        n, whole = network.elements[layer.output], joined.operator.output_elements
        if groups.get(block_name(layer.name), 1) > 1:
            copied = Streaming("copy", n, n * element, n * element)
            found[layer.name, "forward"] = ExpertExtras(after=(copied,))
        laid = Streaming("copy", whole, whole * element, whole * element)
        found[layer.name, "backward"] = ExpertExtras(before=(laid,))
    return found


def fused_passes(network: Network, element: int) -> Mapping[tuple[str, str], ExpertExtras]:
    """Return what runs in place of each layer's kernels, by layer and pass; *element*: bytes of an activation."""
    found: dict[tuple[str, str], ExpertExtras] = {}
    for layers, rotates in _functions(network):
        *others, last = layers
        for layer in others:
            found[layer.name, "forward"] = found[layer.name, "backward"] = ExpertExtras(())
        inside = {layer.output for layer in layers}
        entering = {tensor for layer in layers for tensor in layer.inputs} - inside
        n = network.elements[last.output]
        entered, result = sum(network.elements[tensor] for tensor in entering) * element, n * element
        read = result if rotates else result + entered
        found[last.name, "forward"] = ExpertExtras((Streaming("fused", n, entered, result),))
        found[last.name, "backward"] = ExpertExtras((Streaming("fused", n, read, entered),))
    return found


def _functions(network: Network) -> Iterator[tuple[list[Layer], bool]]:
    """Yield the layers of each function of several, in order, and whether it rotates."""
    found: dict[tuple[str, bool], list[Layer]] = {}
    latent = {layer.name.rpartition(".")[0] for layer in network.layers if layer.name.endswith(_LATENT)}
    for layer in network.layers:
        function, _, _ = layer.name.rpartition(".")
        block, _, own = function.rpartition(".")
        rotates = own.startswith(_ROTATES) and isinstance(layer.operator, Elementwise | Copy) and block not in latent
        if rotates or (layer.part == "feed-forward" and isinstance(layer.operator, Elementwise)):
            found.setdefault((function, rotates), []).append(layer)
    for (_, rotates), layers in found.items():
        if len(layers) > 1:
            yield layers, rotates
