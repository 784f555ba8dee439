"""Sums, means and maxima: of rows, and of windows of images."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Literal

from simulator.package_data import own_data
from simulator.records import dataclass
from simulator.workload.kernels import Kernel, Rowwise, Shape, Streaming
from simulator.workload.operator import Direction, Kernels, OneKernel, Operator, Rows, Saved, has_elements
from simulator.workload.operators.elementwise import Elementwise
from simulator.workload.precision import ELEMENT_BYTES, INDEX_BYTES, Precision

_TORCH = own_data("simulator.workload", "torch_functions.json")


@dataclass(frozen=True, slots=True)
class Pooling(Kernel):
    """Windows of images reduced (``fwd``) or their gradients spread (``bwd``)."""

    word = "pooling"
    colour = "#a26769"
    gpu_cost = "simulator.devices.gpu.memory:pooling_cost"
    cpu_cost = "simulator.devices.cpu.memory:pooling_pass"
    apart = ("precision", "kind", "direction")
    axes: ClassVar = {"window": 0.5, "input": 0.2, "output": 0.2}
    variety_words = ("max", "avg", "fwd", "bwd")

    kind: Literal["max", "avg"]
    direction: Literal["fwd", "bwd"]
    input_elements: int
    output_elements: int
    window: int
    precision: Precision

    @property
    def bytes(self) -> int:
        """Least bytes moved, including the index of each maximum."""
        index = INDEX_BYTES * self.output_elements if self.kind == "max" else 0
        return ELEMENT_BYTES[self.precision] * (self.input_elements + self.output_elements) + index

    def place(self) -> Shape:
        return self.window, self.input_elements, self.output_elements


def _pool(call: Any, kind: Literal["max", "avg"]) -> Operator:
    """Return pooling; in 3-D pooling, depth and height are merged into the height."""
    lead = 3 if "3d" in call.name else 2
    source, result = call.first, call.out
    batch, channels = (1, *source.shape[:-lead])[-2:]
    h_in, w_in = prod(source.shape[-lead:-1]), source.shape[-1]
    h_out, w_out = prod(result.shape[-lead:-1]), result.shape[-1]
    adaptive = -(-h_in // h_out), -(-w_in // w_out)
    kernel = call.pair("kernel_size") if "kernel_size" in call.arguments else adaptive
    return Pool(kind, batch, channels, h_in, w_in, h_out, w_out, *kernel)


@dataclass(frozen=True, slots=True)
class Pool(OneKernel):
    """The maximum or mean of each window of an image; ``h_out`` and ``w_out`` as the framework rounds them."""

    per_token = ()
    by_channel = "channels"
    result = ("batch", "channels", "h_out", "w_out")
    from_torch: ClassVar = {
        **{f"max_pool{n}d_with_indices": lambda c: _pool(c, "max") for n in (2, 3)},
        **{f"adaptive_max_pool{n}d": lambda c: _pool(c, "max") for n in (2, 3)},
        **{f"{kind}avg_pool{n}d": lambda c: _pool(c, "avg") for kind in ("", "_adaptive_") for n in (2, 3)},
    }

    kind: Literal["max", "avg"]
    batch: int
    channels: int
    h_in: int
    w_in: int
    h_out: int
    w_out: int
    kernel_h: int
    kernel_w: int

    def check(self) -> None:
        has_elements(self.h_out, self.w_out, self.output_elements)

    def in_direction(self, direction: Direction, precision: Precision) -> Pooling:
        read, window = self.batch * self.channels * self.h_in * self.w_in, self.kernel_h * self.kernel_w
        way: Literal["fwd", "bwd"] = "fwd" if direction == "fwd" else "bwd"
        return Pooling(self.kind, way, read, self.output_elements, window, precision)

    @property
    def saved(self) -> tuple[Saved, ...]:
        """What it saves; a mean of whole images needs only their size."""
        whole = (self.kernel_h, self.kernel_w) == (self.h_in, self.w_in)
        return () if whole and self.kind == "avg" else ("input",)

    def saved_bytes(self, element_bytes: int) -> int:
        return self.output_elements * INDEX_BYTES if self.kind == "max" else 0  # the places of maxima


def _reduction(call: Any) -> Operator:
    """Return a sum of rows; a mean over height and width is a pool of whole images."""
    n, kept, dims = call.first.numel(), max(1, call.out.numel()), call.arguments.get("dim")
    if call.name == "mean" and call.first.dim() == 4 and dims is not None and sorted(d % 4 for d in dims) == [2, 3]:
        batch, channels, height, width = call.first.shape
        return Pool("avg", batch, channels, height, width, 1, 1, height, width)
    if call.name == "topk":
        kept = n // max(1, call.first.shape[call["dim"]])
    return Reduction(kept, n // kept)


def _loss(call: Any) -> tuple[Operator, ...]:
    n = call["self"].numel()
    return (Elementwise(call.name, n, 2), *((Reduction(1, n),) if call["reduction"] else ()))


@dataclass(frozen=True, slots=True)
class Reduction(Rows):
    """A sum, mean or maximum over each of ``rows`` rows of ``cols`` elements."""

    autocast = "fp32"
    saved = ()
    result = ("rows",)
    from_torch: ClassVar = {
        **dict.fromkeys(_TORCH["sums"], _reduction),
        **dict.fromkeys(_TORCH["losses"], _loss),
    }

    def forward_kernels(self, precision: Precision) -> Kernels:
        return (Rowwise("sum", self.rows, self.cols, precision),)

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return the kernels of the inputs' gradients: that of a row is written to every element of it."""
        n, size = self.rows * self.cols, ELEMENT_BYTES[precision]
        return (Streaming("fill", n, self.rows * size, n * size),)
