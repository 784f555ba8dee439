"""Operators: what a network computes, as shapes.

An operator is one call of a framework's forward pass, with its sizes and nothing of any device.  From the sizes follow
its FLOPs (a multiplication and an addition are two), counted as ``torch.utils.flop_counter.FlopCounterMode`` counts:
products of matrices and convolutions, nothing else.  ``output_elements`` is the size of what it returns.

Which kernels a library runs for it, forward and backward, is in :mod:`simulator.devices.lowering`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.workload.collective import Collective

__all__ = [
    "Attention",
    "AttentionLibrary",
    "BatchNorm",
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
AttentionLibrary = Literal["flash1", "flash2", "native"]


class WithoutProducts:
    """What holds no product of matrices and no convolution: none of its FLOPs count."""

    __slots__ = ()

    @property
    def flop(self) -> int:
        """None that count."""
        return 0


@dataclass(frozen=True, slots=True)
class Rows(WithoutProducts):
    """What works on each of ``rows`` rows of ``cols``, and returns as much."""

    rows: int
    cols: int

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.rows * self.cols


@dataclass(frozen=True, slots=True)
class Linear:
    """``y[rows, outputs] = x[rows, inputs] W^T``, and a bias.

    With ``experts``, that many matrices, each with its own bias: every row is multiplied by one of them, and all of
    them get as many rows (balanced routing; a grouped product).
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
        """Experts that get a row: all, unless there are fewer rows."""
        return min(self.experts, self.rows)

    @property
    def rows_each(self) -> int:
        """Rows of an expert that gets any, of the one with most."""
        return -(-self.rows // self.busy_experts)

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.rows * self.outputs


@dataclass(frozen=True, slots=True)
class MatMul:
    """``batch`` products ``C[m, n] = A[m, k] B[k, n]`` of activations.

    ``layout`` is BLAS's pair of letters, for A and B: ``N`` as written, ``T`` stored transposed.
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
    """A convolution over images of ``c_in`` channels, ``h_in`` by ``w_in``.

    ``transposed``: the sizes are those of a convolution whose gradient of the images is what is
    computed, from ``c_out`` channels to ``c_in``.
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
        """FLOPs of the forward pass by the direct algorithm."""
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
    """``function`` of each of ``elements`` elements, from ``inputs`` tensors of that size.

    ``function`` is the framework's name in lower case (``add``, ``relu``, ``gelu``, ``dropout``);
    with a number in place of the second tensor it ends in ``_scalar``.  ``summed``: of a sum, how many of its terms are
    smaller and read again and again, so that their gradients are sums over all elements.  ``part_of``: of a term that
    is a slice of a larger tensor, the elements of that, whose gradient is zeros but there.
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
    """Softmax (or log-softmax) of each of ``rows`` rows of ``cols``.

    ``kernel``: the framework's own; or one that scales and masks besides, and whose warps hold a row in registers,
    however long (Megatron-LM's ``scaled_masked_softmax``); of a causal mask it reads what is left alone
    (``scaled_upper_triang_masked_softmax``).
    """

    kernel: Literal["", "masked", "causal"] = ""

    @property
    def calls(self) -> int:
        """Calls that it takes: one; or Megatron-LM's casts, scale and mask besides, where its kernels do not fit.

        They take whole fours of heads and samples (``FusedScaleMaskSoftmax.is_kernel_available``); else it calls
        PyTorch's softmax, in fp32 as ``--apply-query-key-layer-scaling`` has it, its default until 2023.
        """
        return 5 if self.kernel and self.rows // self.cols % 4 else 1


@dataclass(frozen=True, slots=True)
class Reduction(Rows):
    """One number (a sum, a mean, the largest) of each of ``rows`` rows of ``cols``."""

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.rows


@dataclass(frozen=True, slots=True)
class LayerNorm(Rows):
    """Normalisation of each of ``rows`` rows of ``cols``; RMSNorm leaves the mean where it is."""

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
    """The largest, or the mean, of windows of an image; ``h_out`` and ``w_out`` as the framework rounds them."""

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
    """``rows`` lookups of rows of ``cols`` in a table of ``vocabulary`` rows."""

    vocabulary: int = 0


@dataclass(frozen=True, slots=True)
class Recurrent:
    """One layer of a recurrent network over ``timesteps`` steps; of no ``inputs``: products with the state alone."""

    cell: Literal["rnn", "lstm", "gru"]
    batch: int
    timesteps: int
    inputs: int = field(metadata={"least": 0})
    hidden: int

    @property
    def gates(self) -> int:
        """Products with the state, for each hidden unit: 1, 4 (lstm) or 3 (gru)."""
        return {"rnn": 1, "lstm": 4, "gru": 3}[self.cell]

    @property
    def flop(self) -> int:
        """FLOPs of the forward pass: products with the input and with the state."""
        return 2 * self.timesteps * self.batch * self.gates * self.hidden * (self.inputs + self.hidden)

    @property
    def output_elements(self) -> int:
        """Elements of the result: the state after each step."""
        return self.timesteps * self.batch * self.hidden


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention in one kernel that never writes the scores (FlashAttention).

    ``library``: whose kernel it is.  ``flash1``, FlashAttention 1, is what was there until July 2023, the package or
    in Triton.  ``flash2``, FlashAttention 2, is the package flash-attn and what PyTorch's own
    ``scaled_dot_product_attention`` takes up to 2.10; ``native`` is written for the GPU's own generation
    (FlashAttention 3, cuDNN 9): Transformer Engine and so Megatron-LM, vLLM, SGLang, TensorRT-LLM, and on Hopper and
    Blackwell of data centres PyTorch since 2.11, which comes with the cuDNN that it prefers there
    (huggingface/transformers pull request 48163).  ``value_size`` is the size of a head of values (DeepSeek's differ).
    """

    batch: int
    heads: int
    query_length: int
    key_length: int
    head_size: int
    kv_heads: int = 0  # 0: as many as heads
    causal: bool = False
    library: AttentionLibrary = "flash2"
    value_size: int = 0  # 0: head_size

    @property
    def _scores_flop(self) -> int:
        """FLOPs for each number of a head, of all scores."""
        return 2 * self.batch * self.heads * self.query_length * self.key_length

    @property
    def flop(self) -> int:
        """FLOPs of both products, of the whole square also where half of it is masked (as torch counts)."""
        return self._scores_flop * (self.head_size + (self.value_size or self.head_size))

    @property
    def backward_flop(self) -> int:
        """FLOPs of the backward pass: the scores anew, and gradients of scores, queries, keys and values."""
        return self._scores_flop * (3 * self.head_size + 2 * (self.value_size or self.head_size))

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.batch * self.heads * self.query_length * (self.value_size or self.head_size)


@dataclass(frozen=True, slots=True)
class CrossEntropy(Rows):
    """The loss: log-softmax of ``rows`` rows of ``cols`` classes, and the mean of the labels' entries."""

    @property
    def output_elements(self) -> int:
        """One number."""
        return 1


@dataclass(frozen=True, slots=True)
class Copy(WithoutProducts):
    """``elements`` moved: a transposition made contiguous, a concatenation, a cast."""

    elements: int
    transposed: bool = False

    @property
    def output_elements(self) -> int:
        """Elements of the result."""
        return self.elements


@dataclass(frozen=True, slots=True)
class Exchange(WithoutProducts):
    """A collective among the ranks that divide a layer, ``axis`` says along which degree of a layout.

    ``forward`` and ``backward`` are the collectives of either pass, None where it exchanges nothing; ``elements`` are
    counted as nccl-tests counts bytes (:mod:`simulator.workload.collective`), ``output_elements`` those of its result.
    ``copies``: so many of them are equal, or are added up, as copies of a token for different experts.
    """

    axis: Literal["tp", "cp", "ep", "etp"]
    forward: Collective | None
    backward: Collective | None
    elements: int
    output_elements: int
    copies: int = 1


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
    | CrossEntropy
    | Copy
    | Exchange
)
