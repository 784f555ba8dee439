"""Convolutions of images."""

from typing import Any, ClassVar, Self

from simulator.records import dataclass, replace
from simulator.workload.kernels import Gemm, Kernel, Product, Rowwise, Shape, Streaming, streamed
from simulator.workload.operator import Direction, Divided, Kernels, Meeting, Operator, Phase, has_elements
from simulator.workload.precision import ELEMENT_BYTES, Precision


@dataclass(frozen=True, slots=True)
class Convolution(Product):
    """One direction of a convolution; ``shape`` is always that of the forward pass.

    ``channels_last``: images are stored with the channels of a pixel together (NHWC), as matrix units read them.
    """

    shape: "Conv2d"
    direction: Direction
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

    def place(self) -> Shape:
        shape = self.shape
        positions = shape.batch * shape.h_in * shape.w_in / (shape.stride_h * shape.stride_w)
        taps = f"{shape.kernel_h}x{shape.kernel_w}"
        return self.direction, taps, shape.stride_h, shape.c_in, shape.c_out, positions, self.flop

    def old_bytes(self, *, forward: bool, has_parameters: bool) -> float:
        """Return the bytes of the filters or, for their gradient, of the saved images."""
        shape = self.shape
        elements = shape.input_elements if self.direction == "bwd_weight" else shape.weight_elements
        return float(elements * ELEMENT_BYTES[self.precision])

    def packed(self, precision: Precision, per_element: int) -> Self:
        """Return the convolution with so many times fewer channels."""
        shape = self.shape
        channels = -(-shape.c_in // (per_element * shape.groups)) * shape.groups
        return replace(self, precision=precision, shape=replace(shape, c_in=channels))


def _convolution(call: Any) -> Operator:
    """Return a convolution; 1-D ones have height 1, and in 3-D ones each output depth is an image of its own."""
    images, weight, result = call["input"], call["weight"], call.out
    transposed = call["transposed"]
    if transposed:
        images, result = result, images
    n = images.dim() - 2
    stride, pad, dilation = _sides(call["stride"], n, 1), _sides(call["padding"], n, 0), _sides(call["dilation"], n, 1)
    kernel = _sides(weight.shape[2:], n, 1)
    batch, channels, *sizes = images.shape
    height, width = _sides(sizes, n, 1)[-2:]
    if n == 3:
        batch, channels = batch * result.shape[2], channels * kernel[0]
    return Conv2d(
        batch, channels, result.shape[1], height, width, kernel[-2], kernel[-1], stride[-2], stride[-1],
        pad[-2], pad[-1], call["groups"], call["bias"] is not None, dilation[-2], dilation[-1], bool(transposed),
    )  # fmt: skip


def _sides(values: Any, dimensions: int, missing: int) -> tuple[int, ...]:
    """Return strides, paddings or sizes for at least two dimensions; *missing* stands for an absent height."""
    sides = tuple(int(value) for value in values)
    sides = sides * dimensions if len(sides) == 1 else sides
    return sides if len(sides) > 1 else (missing, *sides)


@dataclass(frozen=True, slots=True)
class Conv2d(Operator):
    """A convolution over ``batch`` images with ``c_in`` channels of ``h_in`` by ``w_in``.

    ``transposed``: the operator computes the data gradient of the convolution with these sizes, from ``c_out``
    channels to ``c_in``.  Its kernels are those of the plain one with forward and data gradient exchanged.
    """

    from_torch: ClassVar = dict.fromkeys(("convolution", "convolution_overrideable"), _convolution)

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

    @property
    def _plain(self) -> "Conv2d":
        return replace(self, transposed=False, bias=False) if self.transposed else self

    def check(self) -> None:
        if self.c_in % self.groups or self.c_out % self.groups:
            raise ValueError(f"groups={self.groups} must divide c-in={self.c_in} and c-out={self.c_out}")
        has_elements(self.h_out, self.w_out, self.output_elements)

    def forward_kernels(self, precision: Precision) -> Kernels:
        kernel = Convolution(self._plain, "bwd_data" if self.transposed else "fwd", precision)
        return (kernel, *streamed(self.output_elements, precision, ("add", 1, 1))) if self.bias else (kernel,)

    def input_gradients(self, precision: Precision) -> Kernels:
        return (Convolution(self._plain, "fwd" if self.transposed else "bwd_data", precision),)

    def parameter_gradients(self, precision: Precision) -> Kernels:
        kernel = Convolution(self._plain, "bwd_weight", precision)
        channels = self.c_in if self.transposed else self.c_out
        summed = Rowwise("sum", channels, self.output_elements // channels, precision, own=True)
        return (kernel, summed) if self.bias else (kernel,)

    def as_run_by(self, framework: str, phase: Phase, precision: Precision, kernels: Kernels) -> Kernels:
        """Return *kernels*, or those of Caffe and Torch7 without cuDNN, by im2col (docs/decisions/kernels.md)."""
        if framework != "caffe" or self.transposed:
            return kernels
        places, groups = self.h_out * self.w_out, self.groups
        reduction, filters = self.c_in // groups * self.kernel_h * self.kernel_w, self.c_out // groups
        columns, size = groups * reduction * places, ELEMENT_BYTES[precision]
        image, result = self.input_elements // self.batch, self.output_elements // self.batch
        written = Streaming("copy", columns, image * size, columns * size)
        added = Streaming("add", image, columns * size, image * size)
        found: list[Kernel] = []
        if phase == "fwd":
            bias = streamed(result, precision, ("fill", 0, 1)) if self.bias else ()
            product = Gemm(filters, places, reduction, precision, groups, "NN", epilogue_elements=result)
            found += [*bias, written, product]
        if phase in ("bwd", "bwd_data"):
            found += [Gemm(reduction, places, filters, precision, groups, "TN"), added]
        if phase in ("bwd", "bwd_weight"):
            found += [written, Gemm(filters, reduction, places, precision, groups, "NT")]
            if self.bias:
                found += streamed(result, precision, ("sum", 1, 0))
        return tuple(found) * self.batch

    def host_picks(self, phase: Phase) -> int:
        return 2 if phase == "bwd" else 1  # one call, but one kernel of cuDNN a gradient

    def meets(self, meeting: Meeting) -> Divided[Self] | None:
        n = meeting.ranks
        if self.groups == 1 and not self.transposed:
            if meeting.is_split:
                return Divided("rows", replace(self, c_in=meeting.part(self.c_in)))
            return None if self.c_out % n else Divided("columns", replace(self, c_out=self.c_out // n))
        if not meeting.is_split or self.groups % n:
            return None
        groups, c_in, c_out = self.groups // n, self.c_in // n, self.c_out // n
        return Divided("split", replace(self, groups=groups, c_in=c_in, c_out=c_out))
