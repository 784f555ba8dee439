"""Quantising the operands of products in nvfp4: the passes of Transformer Engine's ``NVFP4Quantizer``.

The scale of a whole tensor comes from its largest value, so each tensor is read twice.  Products read both operands
along the dimension that they sum over, so inputs, weights and gradients of results are written twice: by rows, and as a
transposed copy for another of the three products of a linear layer (transformer_engine/pytorch/csrc/quantizer.cpp).

* Inputs and gradients: one pass finds the largest value, of the tensor and of its randomly Hadamard-transformed
  transpose (``nvte_hadamard_transform_amax``); one reads the tensor again and writes both copies, the transposed one
  transformed (row_cast_col_hadamard_transform_cast_fusion.cu, NVIDIA/TransformerEngine pull request 2555; before it
  each copy had a pass of its own).  The transform multiplies blocks of 16 values and hides behind the bytes.
* Weights: the same two passes without the transform, once a step: the copies serve all its micro-batches
  (``is_first_microbatch``).
"""

from __future__ import annotations

from simulator.devices.kernels import Streaming
from simulator.workload.precision import ELEMENT_BYTES, NVFP4_BYTES

__all__ = ["nvfp4_passes"]


def nvfp4_passes(elements: int) -> tuple[Streaming, Streaming]:
    """Return the passes that quantise a tensor of *elements* elements in bf16, by rows and transposed."""
    read = elements * ELEMENT_BYTES["bf16"]
    return Streaming("amax", elements, read, 0), Streaming("copy", elements, read, round(2 * elements * NVFP4_BYTES))
