"""Kernels: the work that a device runs, as shapes in a precision.

There are few classes, distinguished by what bounds them.  An operator becomes one or more kernels
(:mod:`simulator.devices.lowering`); the costs of each class are in a file of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.errors import InputError
from simulator.workload.operators import AttentionLibrary, Conv2d, WithoutProducts
from simulator.workload.precision import ELEMENT_BYTES, Precision


@dataclass(frozen=True, slots=True)
class Gemm:
    """``batch`` products ``C[m, n] = A[m, k] B[k, n]``.

    ``epilogue_elements`` are read in addition when C is written (a bias).
    """

    m: int
    n: int
    k: int
    precision: Precision
    batch: int = 1
    layout: Literal["NN", "NT", "TN", "TT"] = "NN"
    epilogue_elements: int = 0
    out_bytes: int = 0  # per element of C; 0: that of the precision
    plain: bool = False  # matrices in the ordinary row-major layout, not in one that a library of layers prepares

    @property
    def flop(self) -> int:
        """FLOPs."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Least bytes moved: A, B and C once."""
        element = ELEMENT_BYTES[self.precision]
        inputs = self.batch * (self.m * self.k + self.k * self.n) * element
        return inputs + self.batch * self.m * self.n * (self.out_bytes or element)


@dataclass(frozen=True, slots=True)
class Convolution:
    """One direction of a convolution; ``shape`` is always that of the forward pass.

    ``channels_last``: images are stored with the channels of a pixel together (NHWC), as matrix units read them.
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
        """Least bytes moved: images, filters and result once."""
        shape = self.shape
        return ELEMENT_BYTES[self.precision] * (shape.input_elements + shape.weight_elements + shape.output_elements)


@dataclass(frozen=True, slots=True)
class Streaming(WithoutProducts):
    """A pass over memory that reads and writes the given bytes and applies a function to each of ``elements``.

    ``function`` names it (``add``, ``tanh``), which sets the cost of computing it.  ``transposed``: one side is not
    accessed in memory order.
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
    """A reduction over each of ``rows`` rows of ``cols`` elements, and the output written from it.

    ``kind``: softmax, log_softmax, masked_softmax and causal_softmax (a row in a warp's registers; a causal one reads
    half of it), layer_norm, rms_norm, batch_norm, each with ``_bwd``; sum (a reduction alone).  For ``batch_norm`` a
    row is a channel.  ``channels_last``: the elements of a channel are not contiguous, and blocks divide the pixels
    rather than the channels.  ``in_warps``: a normalisation keeps a short row in a warp's registers, as softmax does.
    """

    kind: str
    rows: int
    cols: int
    precision: Precision
    channels_last: bool = False
    in_warps: bool = False

    @property
    def bytes(self) -> int:
        """Least bytes moved."""
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
        """Least bytes moved, including 8 bytes for the index of each maximum."""
        index = 8 * self.output_elements if self.kind == "max" else 0
        return ELEMENT_BYTES[self.precision] * (self.input_elements + self.output_elements) + index


@dataclass(frozen=True, slots=True)
class Gather(WithoutProducts):
    """``rows`` rows of ``cols`` elements gathered from a table (``fwd``) or added into its gradient (``bwd``)."""

    direction: Literal["fwd", "bwd"]
    rows: int
    cols: int
    vocabulary: int
    precision: Precision

    @property
    def bytes(self) -> int:
        """Least bytes moved; backward, the gradient of the whole table is zeroed first."""
        element = ELEMENT_BYTES[self.precision]
        table = self.vocabulary * self.cols * element if self.direction == "bwd" else 0
        return 2 * self.rows * self.cols * element + table


@dataclass(frozen=True, slots=True)
class Recurrence:
    """All time steps of a recurrent layer, as a vendor's library runs it."""

    cell: Literal["rnn", "lstm", "gru"]
    direction: Literal["fwd", "bwd_data", "bwd_weight"]
    batch: int
    timesteps: int
    inputs: int
    hidden: int
    precision: Precision

    @property
    def gates(self) -> int:
        """Gates per hidden unit, each a product with the state."""
        return {"rnn": 1, "lstm": 4, "gru": 3}[self.cell]

    @property
    def flop(self) -> int:
        """FLOPs of the products."""
        return 2 * self.timesteps * self.batch * self.gates * self.hidden * (self.inputs + self.hidden)

    @property
    def bytes(self) -> int:
        """Least bytes moved: weights once; inputs, gates and states of each step."""
        weights = self.gates * self.hidden * (self.inputs + self.hidden)
        states = self.timesteps * self.batch * (self.inputs + (self.gates + 1) * self.hidden)
        return ELEMENT_BYTES[self.precision] * (weights + states)


@dataclass(frozen=True, slots=True)
class FusedAttention:
    """Attention whose scores stay on chip.

    ``library`` and ``window`` are as in :class:`simulator.workload.operators.Attention`.
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
        """FLOPs of the products computed: 2 forward, 5 backward, over the scores that no mask hides."""
        products = 2 if self.direction == "fwd" else 5
        each = 2 * self.batch * self.heads * self.query_length * self.key_length * self.head_size
        return products * each * self.seen

    @property
    def bytes(self) -> int:
        """Least bytes moved."""
        queries = self.batch * self.heads * self.query_length * self.head_size
        keys = self.batch * self.kv_heads * self.key_length * self.head_size
        passes = 1 if self.direction == "fwd" else 2
        return ELEMENT_BYTES[self.precision] * passes * 2 * (queries + keys)


Kernel = Gemm | Convolution | Streaming | Rowwise | Pooling | Gather | Recurrence | FusedAttention


def kernel_class(kernel: Kernel) -> str:
    """Return the name of *kernel*'s class in calibrations and tables."""
    return type(kernel).__name__.lower()


class NoCost(InputError):  # noqa: N818  the name says the fault
    """A kernel whose cost on a kind of device is not modelled."""

    def __init__(self, kernel: Kernel, device: str, kind: str) -> None:
        """Name the class of *kernel*, the *device* and its *kind*."""
        super().__init__(f"{device}: the cost of {kernel_class(kernel)} kernels on a {kind} is not modelled")
