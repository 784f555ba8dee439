"""Operators: the computations of a network, as shapes.

An operator is one call of a framework's forward pass, as sizes that are independent of any device.  Its FLOPs follow
from the sizes, counted as ``torch.utils.flop_counter.FlopCounterMode`` counts: matrix products and convolutions only,
with a multiplication and an addition as two.  ``output_elements`` is the size of the result.

:mod:`simulator.devices.lowering` maps operators to the kernels that a library runs, forward and backward.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.workload.collective import Collective
from simulator.workload.sequences import Attention, AttentionLibrary, ChunkScan, Recurrent

__all__ = [
    "Attention",
    "AttentionLibrary",
    "BatchNorm",
    "ChunkScan",
    "Conv2d",
    "Copy",
    "CrossEntropy",
    "Elementwise",
    "Embedding",
    "Exchange",
    "LayerNorm",
    "Linear",
    "MatMul",
    "Operator",
    "Phase",
    "Pool",
    "Recurrent",
    "Reduction",
    "Softmax",
    "WithoutProducts",
]

Phase = Literal["fwd", "bwd_data", "bwd_weight", "bwd"]


class WithoutProducts:
    """Base of operators without matrix products or convolutions: none of their FLOPs are counted."""

    __slots__ = ()

    @property
    def flop(self) -> int:
        """0: no FLOPs are counted."""
        return 0


@dataclass(frozen=True, slots=True)
class Rows(WithoutProducts):
    """Base of operators on ``rows`` rows of ``cols`` elements; by default the result has the same size."""

    rows: int
    cols: int

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.rows * self.cols


@dataclass(frozen=True, slots=True)
class Linear:
    """``y[rows, outputs] = x[rows, inputs] W^T``, and a bias.

    With ``experts``, there are that many matrices, each with its own bias, and each row is multiplied by one of them.
    All experts get equally many rows (balanced routing, as one grouped product).
    """

    rows: int
    inputs: int
    outputs: int
    bias: bool = True
    experts: int = 1

    @property
    def flop(self) -> int:
        """FLOPs of the forward pass."""
        return 2 * self.rows * self.inputs * self.outputs

    @property
    def busy_experts(self) -> int:
        """Experts with at least one row: all, unless there are fewer rows than experts."""
        return min(self.experts, self.rows)

    @property
    def rows_each(self) -> int:
        """Rows of the busiest expert."""
        return -(-self.rows // self.busy_experts)

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.rows * self.outputs


@dataclass(frozen=True, slots=True)
class MatMul:
    """``batch`` products ``C[m, n] = A[m, k] B[k, n]`` of activations.

    ``layout`` has BLAS's letters for A and B: ``N`` stored as written, ``T`` stored transposed.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    layout: Literal["NN", "NT", "TN", "TT"] = "NN"

    @property
    def flop(self) -> int:
        """FLOPs of the forward pass."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.batch * self.m * self.n


@dataclass(frozen=True, slots=True)
class Conv2d:
    """A convolution over ``batch`` images with ``c_in`` channels of ``h_in`` by ``w_in``.

    ``transposed``: the operator computes the data gradient of the convolution with these sizes, from ``c_out``
    channels to ``c_in``.
    """

    batch: int
    c_in: int
    c_out: int
    h_in: int
    w_in: int
    kernel_h: int
    kernel_w: int
    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0
    groups: int = 1
    bias: bool = False
    dilation_h: int = 1
    dilation_w: int = 1
    transposed: bool = False

    @property
    def h_out(self) -> int:
        """Height of the result."""
        return (self.h_in + 2 * self.pad_h - self.dilation_h * (self.kernel_h - 1) - 1) // self.stride_h + 1

    @property
    def w_out(self) -> int:
        """Width of the result."""
        return (self.w_in + 2 * self.pad_w - self.dilation_w * (self.kernel_w - 1) - 1) // self.stride_w + 1

    @property
    def flop(self) -> int:
        """FLOPs of the forward pass, with the direct algorithm."""
        return 2 * self._windows * (self.c_in // self.groups) * self.kernel_h * self.kernel_w

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.input_elements if self.transposed else self._windows

    @property
    def _windows(self) -> int:
        return self.batch * self.c_out * self.h_out * self.w_out

    @property
    def input_elements(self) -> int:
        """Elements of the images."""
        return self.batch * self.c_in * self.h_in * self.w_in

    @property
    def weight_elements(self) -> int:
        """Elements of the filters."""
        return self.c_out * (self.c_in // self.groups) * self.kernel_h * self.kernel_w


@dataclass(frozen=True, slots=True)
class Elementwise(WithoutProducts):
    """``function`` applied to each of ``elements`` elements, with ``inputs`` input tensors of that size.

    ``function`` is the framework's name in lower case (``add``, ``relu``, ``gelu``, ``dropout``), with the ending
    ``_scalar`` if the second operand is a number.  ``summed``: the number of operands of a sum that are smaller and
    broadcast, so that their gradients are sums over all elements.  ``part_of``: if an operand is a slice of a larger
    tensor, the elements of that tensor, whose gradient is zero outside the slice.
    """

    function: str
    elements: int
    inputs: int = field(default=1, metadata={"least": 0})
    summed: int = field(default=0, metadata={"least": 0})
    part_of: int = field(default=0, metadata={"least": 0})

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.elements


@dataclass(frozen=True, slots=True)
class Softmax(Rows):
    """Softmax (or log-softmax) of each of ``rows`` rows of ``cols`` elements.

    ``kernel``: "" is the framework's own.  Megatron-LM's fused kernels also scale and mask, and hold a row of any
    length in a warp's registers: ``masked`` is ``scaled_masked_softmax``; ``causal``,
    ``scaled_upper_triang_masked_softmax``, reads only the unmasked elements.
    """

    kernel: Literal["", "masked", "causal"] = ""

    @property
    def calls(self) -> int:
        """Number of calls: 1, or 5 if Megatron-LM has to cast, scale and mask separately.

        Its kernels need a multiple of four of heads and samples (``FusedScaleMaskSoftmax.is_kernel_available``).
        Otherwise it calls PyTorch's softmax, in fp32 with ``--apply-query-key-layer-scaling``, its default until 2023.
        """
        return 5 if self.kernel and self.rows // self.cols % 4 else 1


@dataclass(frozen=True, slots=True)
class Reduction(Rows):
    """A sum, mean or maximum over each of ``rows`` rows of ``cols`` elements."""

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.rows


@dataclass(frozen=True, slots=True)
class LayerNorm(Rows):
    """Normalisation of each of ``rows`` rows of ``cols`` elements; RMSNorm does not subtract the mean."""

    kind: Literal["layer_norm", "rms_norm"] = "layer_norm"


@dataclass(frozen=True, slots=True)
class BatchNorm(WithoutProducts):
    """Normalisation of each channel over the batch and the image."""

    batch: int
    channels: int
    height: int
    width: int

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.batch * self.channels * self.height * self.width


@dataclass(frozen=True, slots=True)
class Pool(WithoutProducts):
    """The maximum or mean of each window of an image; ``h_out`` and ``w_out`` as the framework rounds them."""

    kind: Literal["max", "avg"]
    batch: int
    channels: int
    h_in: int
    w_in: int
    h_out: int
    w_out: int
    kernel_h: int
    kernel_w: int

    @property
    def input_elements(self) -> int:
        """Elements of the images."""
        return self.batch * self.channels * self.h_in * self.w_in

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.batch * self.channels * self.h_out * self.w_out


@dataclass(frozen=True, slots=True)
class Embedding(Rows):
    """``rows`` lookups in a table of ``vocabulary`` rows of ``cols`` elements."""

    vocabulary: int = 0


@dataclass(frozen=True, slots=True)
class CrossEntropy(Rows):
    """The loss: log-softmax of ``rows`` rows of ``cols`` classes, and the mean over the labels' entries."""

    @property
    def output_elements(self) -> int:
        """1: the loss is one number."""
        return 1


@dataclass(frozen=True, slots=True)
class Copy(WithoutProducts):
    """A copy of ``elements`` elements: a materialised transposition, a concatenation, a cast."""

    elements: int
    transposed: bool = False

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.elements


@dataclass(frozen=True, slots=True)
class Exchange(WithoutProducts):
    """A collective among the ranks that divide a layer, along the degree ``axis`` of a layout.

    ``forward`` and ``backward`` are the collectives of the two passes, or None.  ``elements`` is the collective's size
    by nccl-tests' convention (:mod:`simulator.workload.collective`), ``output_elements`` the size of the result.
    ``copies``: how many equal copies are sent or summed, as of a token for its different experts.  ``flex``: the
    dispatcher of experts sends one of them to each rank, and copies it there (DeepEP, HybridEP).
    """

    axis: Literal["tp", "cp", "ep", "etp"]
    forward: Collective | None
    backward: Collective | None
    elements: int
    output_elements: int
    copies: int = 1
    flex: bool = False


Operator = (
    Linear
    | MatMul
    | Conv2d
    | Elementwise
    | Softmax
    | Reduction
    | LayerNorm
    | BatchNorm
    | Pool
    | Embedding
    | Recurrent
    | Attention
    | ChunkScan
    | CrossEntropy
    | Copy
    | Exchange
)
