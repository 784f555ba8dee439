"""Element-wise layers that Megatron-Core runs as one function each, outside of experts.

* The activation between two products of a feed-forward part with its gate (``bias_swiglu_fusion``, on by default).
* Rotary positions of queries and of keys (``apply_rope_fusion``, on by default: ``fused_apply_rotary_pos_emb`` of
  Transformer Engine); those of latent attention stay passes of plain torch.

Forward, a function reads what enters and writes its result.  Backward, an activation reads what entered and the
gradient of its result, a rotation that gradient alone, and both write the gradients of what entered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from simulator.questions.options import StepOptions
from simulator.step.expert_passes import NARROW, ExpertExtras, expert_passes
from simulator.step.joint_products import joint_products
from simulator.step.precision import storage_of
from simulator.workload.kernels import Streaming
from simulator.workload.network import Layer, Network, block_name
from simulator.workload.operators import Attention, Copy, Elementwise
from simulator.workload.precision import ELEMENT_BYTES

_ROTATES = "rotate_"
_LATENT = "kv_latent"


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
