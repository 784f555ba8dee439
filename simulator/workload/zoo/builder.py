"""Builds a network layer by layer: each is a call of a method of the tensor that it reads, and gives a tensor.

Methods are named as in the framework; shapes are derived from the inputs.  Images are ``(batch, channels, height,
width)``, sequences ``(batch, length, hidden)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Literal

from simulator.records import dataclass, replace
from simulator.workload import operators as ops
from simulator.workload.network import Layer, Network, Parameter, Part, Split

Pair = int | tuple[int, int]
Pooled = Literal["max", "avg"]


class SizeError(ValueError):
    """A layer cannot take its inputs, for example an image smaller than its kernel."""


def pair(value: Pair) -> tuple[int, int]:
    """Return *value* as (height, width)."""
    return (value, value) if isinstance(value, int) else value


def weights(layer: str, **sizes: int) -> tuple[Parameter, ...]:
    """Return the parameters of *layer* by name, with *sizes* in elements; all but the weight fall out with size 0."""
    return tuple(Parameter(f"{layer}.{name}", size) for name, size in sizes.items() if size or name == "weight")


class NetworkBuilder:
    """Collects layers in forward order; :meth:`build` returns the network.

    ``training``: include dropout.  While ``frozen`` is set, new parameters are not trained.  While ``constant_norms``
    is set, batch normalisation is a product and a sum with constants (torchvision's FrozenBatchNorm2d).
    """

    def __init__(self, name: str, *, training: bool = True) -> None:
        self.name, self.training = name, training
        self.layers: list[Layer] = []
        self.elements: list[int] = []
        self.operators: dict[ops.Operator, ops.Operator] = {}  # equal ones are one, which compares at once
        self.frozen = self.constant_norms = False
        self.of_part: Part | None = None
        self.shared = "", ""

    @contextmanager
    def part(self, part: Part) -> Iterator[None]:
        """Assign the layers added inside the context to *part* of a block."""
        self.of_part, before = part, self.of_part
        yield
        self.of_part = before

    @contextmanager
    def sharing(self, prefix: str, other: str) -> Iterator[None]:
        """Give parameters whose names begin with *prefix*, of layers added inside the context, those of *other*."""
        self.shared, before = (prefix, other), self.shared
        yield
        self.shared = before

    def build(self, samples: int, sample: str = "images") -> Network:
        """Return the network built so far, for a batch of *samples*."""
        return Network(self.name, tuple(self.layers), tuple(self.elements), samples, sample)

    def input(self, *shape: int) -> Tensor:
        """Return an input tensor of the network."""
        self.elements.append(prod(shape))
        return Tensor(self, len(self.elements) - 1, shape)

    def embedding_of(self, x: Tensor) -> tuple[Parameter, int]:
        """Return the weight and vocabulary size of the embedding that returned *x*; raises SizeError if none did."""
        for layer in self.layers:
            if layer.output == x.number and isinstance(layer.operator, ops.Embedding):
                return layer.parameters[0], layer.operator.vocabulary
        raise SizeError("tied must name an embedding")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the network that ``net`` builds: its number there, and its shape.  A view keeps the number."""

    net: NetworkBuilder
    number: int
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def layer(
        self,
        name: str,
        operator: ops.Operator,
        shape: tuple[int, ...] | None = None,
        parameters: tuple[Parameter, ...] = (),
        *also: Tensor,
        in_place: bool = False,
        split: Split | None = None,
    ) -> Tensor:
        """Return the result of *operator*, which reads this tensor and *also* others; *shape*: its own by default."""
        net, found = self.net, self.net.input(*(shape or self.shape))
        own, other = net.shared
        if own:
            parameters = tuple(
                replace(p, name=other + p.name.removeprefix(own)) if p.name.startswith(own) else p for p in parameters
            )
        if net.frozen:
            parameters = tuple(replace(p, trained=False) for p in parameters)
        read = self.number, *(x.number for x in also)
        operator = net.operators.setdefault(operator, operator)
        net.layers.append(Layer(name, operator, read, found.number, parameters, in_place, net.of_part, split))
        return found

    # -- views: no data movement -------------------------------------------------------

    def view(self, *shape: int) -> Tensor:
        """Return a view of the tensor, or of a part of it, with *shape*."""
        return Tensor(self.net, self.number, shape)

    def flatten(self) -> Tensor:
        """Return a view with all dimensions but the first merged."""
        return self.view(self.shape[0], prod(self.shape[1:]))

    # -- layers with parameters --------------------------------------------------------

    def linear(
        self,
        name: str,
        outputs: int,
        *,
        bias: bool = True,
        tied: Parameter | None = None,
        split: Split | None = None,
        of: str = "",
    ) -> Tensor:
        """Return a linear layer over the last dimension; *tied* is the weight of another layer that it shares.

        *of*: the name of the weights, if layers share them.
        """
        *outer, inputs = self.shape
        weight, *rest = weights(of or name, weight=inputs * outputs, bias=outputs * bias)
        operator = ops.Linear(prod(outer), inputs, outputs, bias)
        return self.layer(name, operator, (*outer, outputs), (tied or weight, *rest), split=split)

    def conv(
        self,
        name: str,
        channels: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        pad: Pair = 0,
        groups: int = 1,
        bias: bool = False,
        of: str = "",
    ) -> Tensor:
        """Return a convolution with *channels* output channels; *of*: the name of filters that layers share.

        Of volumes, each depth of the result is an image, whose channels are those of all depths of the kernel, which
        is as deep as it is high.  Raises SizeError if the sizes do not fit.
        """
        batch, c_in, *depths, height, width = self.shape
        (kernel_h, kernel_w), (pad_h, pad_w), (stride_h, stride_w) = pair(kernel), pair(pad), pair(stride)
        deep = [(depth + 2 * pad_h - kernel_h) // stride_h + 1 for depth in depths]
        if c_in % groups or channels % groups:
            raise SizeError(f"{name}: {groups} groups do not divide {c_in} and {channels} channels")
        read = batch * prod(deep), c_in * kernel_h ** len(deep), channels, height, width
        operator = ops.Conv2d(*read, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, groups, bias)
        if height + 2 * pad_h < kernel_h or width + 2 * pad_w < kernel_w:
            raise SizeError(f"{name}: a kernel of {kernel_h}x{kernel_w} is larger than what it gets, {height}x{width}")
        parameters = weights(of or name, weight=operator.weight_elements, bias=channels * bias)
        return self.layer(name, operator, (batch, channels, *deep, operator.h_out, operator.w_out), parameters)

    def up(self, name: str, channels: int, kernel: Pair, stride: Pair) -> Tensor:
        """Return a transposed convolution with a bias; a side has ``(side - 1) stride + kernel`` pixels."""
        batch, c_in, *depths, height, width = self.shape
        (kernel_h, kernel_w), (stride_h, stride_w) = pair(kernel), pair(stride)
        deep = [(depth - 1) * stride_h + kernel_h for depth in depths]
        out = (height - 1) * stride_h + kernel_h, (width - 1) * stride_w + kernel_w
        sizes = batch * prod(depths), channels * kernel_h ** len(deep), c_in, *out, kernel_h, kernel_w
        operator = ops.Conv2d(*sizes, stride_h, stride_w, bias=True, transposed=True)
        parameters = weights(name, weight=operator.weight_elements, bias=channels)
        return self.layer(name, operator, (batch, channels, *deep, *out), parameters)

    def batch_norm(self, name: str) -> Tensor:
        """Return the batch normalisation of each channel."""
        if self.net.constant_norms:
            return self.apply(f"{name}.mul", "mul").apply(f"{name}.add", "add")
        batch, channels, height, width = self.shape
        parameters = weights(name, weight=channels, bias=channels)
        return self.layer(name, ops.BatchNorm(batch, channels, height, width), self.shape, parameters)

    def layer_norm(
        self, name: str, *, kind: Literal["layer_norm", "rms_norm"] = "layer_norm", bias: bool = True
    ) -> Tensor:
        """Return the normalisation of the last dimension; RMSNorm has no bias."""
        *outer, cols = self.shape
        parameters = weights(name, weight=cols, bias=cols * (bias and kind == "layer_norm"))
        return self.layer(name, ops.LayerNorm(prod(outer), cols, kind, plain=kind == "rms_norm"), None, parameters)

    def rms_norm(self, name: str) -> Tensor:
        """Return the RMSNorm of the last dimension."""
        return self.layer_norm(name, kind="rms_norm")

    def embedding(self, name: str, vocabulary: int, size: int, of: str = "") -> Tensor:
        """Return a row of *size* elements for each of these tokens; *of*: the name of a table that layers share."""
        operator = ops.Embedding(self.elements, size, vocabulary)
        return self.layer(name, operator, (*self.shape, size), weights(of or name, weight=vocabulary * size))

    def recurrent(self, name: str, hidden: int, cell: Literal["rnn", "lstm", "gru"] = "lstm") -> Tensor:
        """Return the states of a recurrent layer after each time step, with separate biases for input and state."""
        batch, timesteps, inputs = self.shape
        operator = ops.Recurrent(cell, batch, timesteps, inputs, hidden)
        gates = operator.gates * hidden
        sizes = {"weight_ih": gates * inputs, "weight_hh": gates * hidden, "bias_ih": gates, "bias_hh": gates}
        return self.layer(name, operator, (batch, timesteps, hidden), weights(name, **sizes))

    # -- layers without parameters -----------------------------------------------------

    def pool(
        self,
        name: str,
        kernel: Pair,
        *,
        kind: Pooled = "max",
        stride: Pair | None = None,
        pad: Pair = 0,
        ceil: bool = False,
    ) -> Tensor:
        """Return the maximum or mean of each window; *ceil* rounds the result's size up, as Caffe does.

        Raises SizeError if a window is larger than the padded image.
        """
        batch, channels, height, width = self.shape
        kernels, strides = pair(kernel), pair(kernel if stride is None else stride)
        windows = []
        for side, size, step, padding in zip((height, width), kernels, strides, pair(pad), strict=True):
            span = side + 2 * padding - size
            if span < 0:
                raise SizeError(f"{name}: a kernel of {size} is larger than what it gets, {side}")
            n = (-(-span // step) if ceil else span // step) + 1
            outside = ceil and (n - 1) * step >= side + padding  # it must begin inside the image or its first padding
            windows.append(n - outside)
        operator = ops.Pool(kind, batch, channels, height, width, windows[0], windows[1], *kernels)
        return self.layer(name, operator, (batch, channels, *windows))

    def adaptive_avg_pool(self, name: str, size: int = 1) -> Tensor:
        """Return the means of ``size`` by ``size`` windows that cover the image."""
        batch, channels, height, width = self.shape
        kernel = -(-height // size), -(-width // size)
        operator = ops.Pool("avg", batch, channels, height, width, size, size, *kernel)
        return self.layer(name, operator, (batch, channels, size, size))

    def apply(self, name: str, function: str, *others: Tensor, in_place: bool = False) -> Tensor:
        """Return *function* of each element, and of those of *others*, tensors of the same size."""
        operator = ops.Elementwise(function, self.elements, 1 + len(others))
        return self.layer(name, operator, None, (), *others, in_place=in_place)

    def relu(self, name: str, *, in_place: bool = True) -> Tensor:
        """Return the ReLU, in place by default."""
        return self.apply(name, "relu", in_place=in_place)

    def add(self, other: Tensor, name: str, *, in_place: bool = False) -> Tensor:
        """Return the sum."""
        return self.apply(name, "add", other, in_place=in_place)

    def add_small(self, name: str, *others: Tensor, parameters: tuple[Parameter, ...] = ()) -> Tensor:
        """Return the sum with one smaller tensor, of *others* or *parameters*, whose gradient is a sum."""
        return self.layer(name, ops.Elementwise("add", self.elements, summed=1), None, parameters, *others)

    def dropout(self, name: str) -> Tensor:
        """Return the tensor after dropout; in inference, the tensor itself."""
        return self.apply(name, "dropout") if self.net.training else self

    def dropout_add(self, residual: Tensor, name: str) -> Tensor:
        """Return *residual* plus the dropout of this, as one kernel; in inference, their sum."""
        return self.apply(name, "dropout_add" if self.net.training else "add", residual)

    def concat(self, name: str, *others: Tensor) -> Tensor:
        """Return images joined along their channels; raises SizeError if they differ in size."""
        batch, _, *sides = self.shape
        if any((x.shape[0], *x.shape[2:]) != (batch, *sides) for x in others):
            raise SizeError(f"{name}: the images to be joined differ in size")
        return self.gather(name, (batch, sum(x.shape[1] for x in (self, *others)), *sides), *others)

    def join(self, other: Tensor, name: str) -> Tensor:
        """Return the tensor and *other* side by side along their last dimension."""
        return self.gather(name, (*self.shape[:-1], self.shape[-1] + other.shape[-1]), other)

    def gather(self, name: str, shape: tuple[int, ...], *others: Tensor, transposed: bool = False) -> Tensor:
        """Return a contiguous tensor of *shape*, copied from this and *others*."""
        return self.layer(name, ops.Copy(prod(shape), transposed), shape, (), *others)

    def copy(self, name: str, *shape: int, transposed: bool = False) -> Tensor:
        """Return this, a permuted view, copied into a contiguous tensor of *shape* (by default its own)."""
        return self.gather(name, shape or self.shape, transposed=transposed)

    def softmax(self, name: str, kernel: Literal["", "masked", "causal"] = "") -> Tensor:
        """Return the softmax over the last dimension; *kernel* as in :class:`~simulator.workload.operators.Softmax`."""
        *outer, cols = self.shape
        return self.layer(name, ops.Softmax(prod(outer), cols, kernel))

    def matmul(self, other: Tensor, name: str, layout: Literal["NN", "NT", "TN", "TT"] = "NN") -> Tensor:
        """Return the matrix products over the last two dimensions; with ``NT``, *other* is read transposed."""
        *outer, m, k = self.shape if layout[0] == "N" else (*self.shape[:-2], self.shape[-1], self.shape[-2])
        n = other.shape[-2] if layout[1] == "T" else other.shape[-1]
        return self.layer(name, ops.MatMul(m, n, k, prod(outer), layout), (*outer, m, n), (), other)

    def cross_entropy(self, name: str = "loss") -> Tensor:
        """Return the mean cross-entropy over the last dimension, with labels as another input of the network."""
        *outer, cols = self.shape
        rows = prod(outer)
        return self.layer(name, ops.CrossEntropy(rows, cols), (1,), (), self.net.input(rows))
