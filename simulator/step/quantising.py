"""Quantising the operands of products in nvfp4: the passes of Transformer Engine's ``NVFP4Quantizer``.

The scale of a whole tensor comes from its largest value, so each tensor is read twice.  Products read both operands
along the dimension that they sum over, so inputs, weights and gradients of results are written twice: by rows, and as a
transposed copy for another of the three products of a linear layer (transformer_engine/pytorch/csrc/quantizer.cpp).

* Inputs and gradients: one pass finds the largest value, of the tensor and of its randomly Hadamard-transformed
  transpose (``nvte_hadamard_transform_amax``); one reads the tensor again and writes both copies, the transposed one
  transformed (row_cast_col_hadamard_transform_cast_fusion.cu, NVIDIA/TransformerEngine pull request 2555; before it
  each copy had a pass of its own).  The transform multiplies blocks of 16 values and hides behind the bytes.
  Layers with the same input share its copies, as Megatron-LM's joined products of queries, keys and values do.  For
  the backward pass the transposed copy of an input is saved, and not the input.
* Weights: the same two passes without the transform, once a step: the copies stay in memory and serve all its
  micro-batches (``is_first_microbatch``).
"""

from __future__ import annotations

from simulator.questions.options import Policy
from simulator.workload.kernels import Streaming
from simulator.workload.network import Network, block_name
from simulator.workload.operators import Linear
from simulator.workload.precision import ELEMENT_BYTES, NVFP4_BYTES


def nvfp4_passes(elements: int) -> tuple[Streaming, Streaming]:
    """Return the passes that quantise a tensor of *elements* elements in bf16, by rows and transposed."""
    read = elements * ELEMENT_BYTES["bf16"]
    return Streaming("amax", elements, read, 0), Streaming("copy", elements, read, round(2 * elements * NVFP4_BYTES))


def quantised_layers(network: Network, policy: Policy) -> frozenset[int]:
    """Return the indices of the layers of *network* whose products are in nvfp4: linear ones of repeated blocks."""
    if policy != "nvfp4":
        return frozenset()
    layers = enumerate(network.layers)
    return frozenset(i for i, each in layers if isinstance(each.operator, Linear) and block_name(each.name))


def nvfp4_weights(network: Network, policy: Policy) -> int:
    """Return the number of weights of *network* whose products are in nvfp4."""
    found = 0
    for index in quantised_layers(network, policy):
        operator = network.layers[index].operator
        assert isinstance(operator, Linear)
        found += operator.experts * operator.inputs * operator.outputs
    return found
