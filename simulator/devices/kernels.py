"""Kernels: what a device runs, as shapes in a precision.

Few classes, by what bounds them.  An operator becomes one or more of them
(:mod:`simulator.devices.lowering`); each class has its cost in a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.workload.operators import AttentionLibrary, Conv2d, WithoutProducts
from simulator.workload.precision import ELEMENT_BYTES, Precision

__all__ = [
    "Convolution",
    "FusedAttention",
    "Gather",
    "Gemm",
    "Kernel",
    "Pooling",
    "Recurrence",
    "Rowwise",
    "Streaming",
]


@dataclass(frozen=True, slots=True)
class Gemm:
    """``batch`` products ``C[m, n] = A[m, k] B[k, n]``.

    ``epilogue_elements`` are read besides, when C is written (a bias).
    """

    m: int
    n: int
    k: int
    precision: Precision
    batch: int = 1
    layout: Literal["NN", "NT", "TN", "TT"] = "NN"
    epilogue_elements: int = 0
    out_bytes: int = 0  # of an element of C; 0: as the precision
    plain: bool = False  # matrices lie as anyone's do, and not as a library of layers lays them out

    @property
    def flop(self) -> int:
        """FLOPs."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: A, B and C once."""
        element = ELEMENT_BYTES[self.precision]
        inputs = self.batch * (self.m * self.k + self.k * self.n) * element
        return inputs + self.batch * self.m * self.n * (self.out_bytes or element)


@dataclass(frozen=True, slots=True)
class Convolution:
    """One direction of a convolution; ``shape`` is always that of the forward pass.

    ``channels_last``: images lie with their channels together, as matrix units read them.
    """

    shape: Conv2d
    direction: Literal["fwd", "bwd_data", "bwd_weight"]
    precision: Precision
    channels_last: bool = False

    @property
    def flop(self) -> int:
        """FLOPs of the direct algorithm; the same in each direction."""
        return self.shape.flop

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: images, filters and result once."""
        shape = self.shape
        return ELEMENT_BYTES[self.precision] * (shape.input_elements + shape.weight_elements + shape.output_elements)


@dataclass(frozen=True, slots=True)
class Streaming(WithoutProducts):
    """A pass over memory: so many bytes read and written, so many operations on each of ``elements``.

    ``function`` says which (``add``, ``tanh``), for what it costs to compute.  ``transposed``: one side
    is not in the order of memory.
    """

    function: str
    elements: int
    read_bytes: int
    written_bytes: int
    transposed: bool = False

    @property
    def bytes(self) -> int:
        """Bytes moved."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class Rowwise(WithoutProducts):
    """Reductions over each of ``rows`` rows of ``cols``, and what is written from them.

    ``kind``: softmax, log_softmax, masked_softmax and causal_softmax (a row in a warp's registers; of a causal one half
    is read), layer_norm, rms_norm, batch_norm, each with ``_bwd``; sum (a reduction alone); for ``batch_norm`` a row is
    a channel.  ``channels_last``: numbers of one channel do not lie together, and blocks share the pixels rather than
    the channels.  ``in_warps``: a normalisation keeps a short row in a warp's registers, as softmax does.
    """

    kind: str
    rows: int
    cols: int
    precision: Precision
    channels_last: bool = False
    in_warps: bool = False

    @property
    def bytes(self) -> int:
        """Bytes that must move at least."""
        passes = {"sum": 1}.get(self.kind, 3 if self.kind.endswith("_bwd") else 2)
        return passes * self.rows * self.cols * ELEMENT_BYTES[self.precision]


@dataclass(frozen=True, slots=True)
class Pooling(WithoutProducts):
    """Windows of images reduced (``fwd``) or their gradients spread (``bwd``)."""

    kind: Literal["max", "avg"]
    direction: Literal["fwd", "bwd"]
    input_elements: int
    output_elements: int
    window: int
    precision: Precision

    @property
    def bytes(self) -> int:
        """Bytes that must move at least; the largest's place is remembered in 8 bytes."""
        index = 8 * self.output_elements if self.kind == "max" else 0
        return ELEMENT_BYTES[self.precision] * (self.input_elements + self.output_elements) + index


@dataclass(frozen=True, slots=True)
class Gather(WithoutProducts):
    """``rows`` rows of ``cols`` picked from a table (``fwd``), or added into its gradient (``bwd``)."""

    direction: Literal["fwd", "bwd"]
    rows: int
    cols: int
    vocabulary: int
    precision: Precision

    @property
    def bytes(self) -> int:
        """Bytes that must move at least; the gradient of the whole table is set to zero first."""
        element = ELEMENT_BYTES[self.precision]
        table = self.vocabulary * self.cols * element if self.direction == "bwd" else 0
        return 2 * self.rows * self.cols * element + table


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrent layer as a vendor's library runs it, all its time steps."""

    cell: Literal["rnn", "lstm", "gru"]
    direction: Literal["fwd", "bwd_data", "bwd_weight"]
    batch: int
    timesteps: int
    inputs: int
    hidden: int
    precision: Precision

    @property
    def gates(self) -> int:
        """Products with the state for each hidden unit."""
        return {"rnn": 1, "lstm": 4, "gru": 3}[self.cell]

    @property
    def flop(self) -> int:
        """FLOPs of the products."""
        return 2 * self.timesteps * self.batch * self.gates * self.hidden * (self.inputs + self.hidden)

    @property
    def bytes(self) -> int:
        """Bytes that must move at least: weights once, input, gates and states of each step."""
        weights = self.gates * self.hidden * (self.inputs + self.hidden)
        states = self.timesteps * self.batch * (self.inputs + (self.gates + 1) * self.hidden)
        return ELEMENT_BYTES[self.precision] * (weights + states)


@dataclass(frozen=True, slots=True)
class FusedAttention:
    """Attention that keeps the scores on the chip.

    ``library`` and ``window``: as :class:`simulator.workload.operators.Attention`.
    """

    direction: Literal["fwd", "bwd"]
    batch: int
    heads: int
    kv_heads: int
    query_length: int
    key_length: int
    head_size: int
    causal: bool
    precision: Precision
    library: AttentionLibrary = "flash2"
    window: int = 0

    @property
    def seen(self) -> float:
        """The share of the scores that no mask hides: half of them under a causal one, fewer in a window."""
        if not self.causal or self.query_length != self.key_length:
            return 1.0
        reach = (self.window or self.key_length) / self.key_length
        return reach - reach * reach / 2

    @property
    def flop(self) -> float:
        """FLOPs of the products that are done: 2 forward, 5 backward; of scores that no mask hides."""
        products = 2 if self.direction == "fwd" else 5
        each = 2 * self.batch * self.heads * self.query_length * self.key_length * self.head_size
        return products * each * self.seen

    @property
    def bytes(self) -> int:
        """Bytes that must move at least."""
        queries = self.batch * self.heads * self.query_length * self.head_size
        keys = self.batch * self.kv_heads * self.key_length * self.head_size
        passes = 1 if self.direction == "fwd" else 2
        return ELEMENT_BYTES[self.precision] * passes * 2 * (queries + keys)


Kernel = Gemm | Convolution | Streaming | Rowwise | Pooling | Gather | Recurrence | FusedAttention
