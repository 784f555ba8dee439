"""Builds a network layer by layer: one call per operator, with its input tensors.

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


class SizeError(ValueError):
    """A layer cannot take its inputs, for example an image smaller than its kernel."""


@dataclass(frozen=True, slots=True)
class LayerOutput:
    """The result of a layer: its number in the network, and its shape.  A view keeps the number."""

    number: int
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def pair(value: Pair) -> tuple[int, int]:
    """Return *value* as (height, width)."""
    return (value, value) if isinstance(value, int) else value


class NetworkBuilder:
    """Collects layers in forward order; :meth:`build` returns the network.

    ``training``: include dropout.  While ``frozen`` is set, new parameters are not trained.  While ``constant_norms``
    is set, batch normalisation is a product and a sum with constants (torchvision's FrozenBatchNorm2d).
    """

    def __init__(self, name: str, *, training: bool = True) -> None:
        self.name = name
        self.training = training
        self._layers: list[Layer] = []
        self._elements: list[int] = []
        self._part: Part | None = None
        self._shared: tuple[str, str] | None = None
        self.frozen = False
        self.constant_norms = False

    @contextmanager
    def part(self, part: Part) -> Iterator[None]:
        """Assign the layers added inside the context to *part* of a block."""
        self._part, before = part, self._part
        yield
        self._part = before

    @contextmanager
    def sharing(self, prefix: str, other: str) -> Iterator[None]:
        """Give parameters whose names begin with *prefix*, of layers added inside the context, those of *other*."""
        self._shared, before = (prefix, other), self._shared
        yield
        self._shared = before

    def build(self, samples: int, sample: str = "images") -> Network:
        """Return the network built so far, for a batch of *samples*."""
        return Network(self.name, tuple(self._layers), tuple(self._elements), samples, sample)

    def input(self, *shape: int) -> LayerOutput:
        """Return an input tensor of the network."""
        self._elements.append(prod(shape))
        return LayerOutput(len(self._elements) - 1, shape)

    def add_layer(
        self,
        name: str,
        operator: ops.Operator,
        inputs: tuple[LayerOutput, ...],
        shape: tuple[int, ...],
        parameters: tuple[Parameter, ...] = (),
        in_place: bool = False,
        split: Split | None = None,
    ) -> LayerOutput:
        """Append *operator* and return its result of *shape*."""
        number = len(self._elements)
        self._elements.append(prod(shape))
        read = tuple(t.number for t in inputs)
        if self._shared is not None:
            own, other = self._shared
            parameters = tuple(
                replace(p, name=other + p.name.removeprefix(own)) if p.name.startswith(own) else p for p in parameters
            )
        if self.frozen:
            parameters = tuple(replace(p, trained=False) for p in parameters)
        self._layers.append(Layer(name, operator, read, number, parameters, in_place, self._part, split))
        return LayerOutput(number, shape)

    def embedding_of(self, x: LayerOutput) -> tuple[Parameter, int]:
        """Return the weight and vocabulary size of the embedding that returned *x*; raises SizeError if none did."""
        for layer in self._layers:
            if layer.output == x.number and isinstance(layer.operator, ops.Embedding):
                return layer.parameters[0], layer.operator.vocabulary
        raise SizeError("tied must name an embedding")

    # -- views: no data movement -------------------------------------------------------

    def view(self, x: LayerOutput, *shape: int) -> LayerOutput:
        """Return a view of *x*, or of a part of it, with *shape*."""
        return LayerOutput(x.number, shape)

    def flatten(self, x: LayerOutput) -> LayerOutput:
        """Return a view of *x* with all dimensions but the first merged."""
        return LayerOutput(x.number, (x.shape[0], prod(x.shape[1:])))

    # -- layers with parameters --------------------------------------------------------

    def linear(
        self,
        x: LayerOutput,
        name: str,
        outputs: int,
        *,
        bias: bool = True,
        tied: Parameter | None = None,
        split: Split | None = None,
        of: str = "",
    ) -> LayerOutput:
        """Return a linear layer over the last dimension; *tied* is the weight of another layer that it shares.

        *of*: the name of the weights, if layers share them.
        """
        inputs = x.shape[-1]
        weight = tied or Parameter(f"{of or name}.weight", inputs * outputs)
        parameters = (weight, Parameter(f"{of or name}.bias", outputs)) if bias else (weight,)
        operator = ops.Linear(prod(x.shape[:-1]), inputs, outputs, bias)
        return self.add_layer(name, operator, (x,), (*x.shape[:-1], outputs), parameters, split=split)

    def conv(
        self,
        x: LayerOutput,
        name: str,
        channels: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        pad: Pair = 0,
        groups: int = 1,
        bias: bool = False,
        of: str = "",
    ) -> LayerOutput:
        """Return a convolution with *channels* output channels; *of*: the name of filters that layers share.

        Raises SizeError if the sizes do not fit.
        """
        batch, c_in, height, width = x.shape
        (kernel_h, kernel_w), (stride_h, stride_w), (pad_h, pad_w) = pair(kernel), pair(stride), pair(pad)
        if c_in % groups or channels % groups:
            raise SizeError(f"{name}: {groups} groups do not divide {c_in} and {channels} channels")
        operator = ops.Conv2d(
            batch, c_in, channels, height, width, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, groups, bias
        )
        out = operator.h_out, operator.w_out
        if height + 2 * pad_h < kernel_h or width + 2 * pad_w < kernel_w:
            raise SizeError(f"{name}: a kernel of {kernel_h}x{kernel_w} is larger than what it gets, {height}x{width}")
        weight = Parameter(f"{of or name}.weight", operator.weight_elements)
        parameters = (weight, Parameter(f"{of or name}.bias", channels)) if bias else (weight,)
        return self.add_layer(name, operator, (x,), (batch, channels, *out), parameters)

    def up(self, x: LayerOutput, name: str, channels: int, kernel: Pair, stride: Pair) -> LayerOutput:
        """Return a transposed convolution with a bias; a side has ``(side - 1) stride + kernel`` pixels."""
        batch, c_in, height, width = x.shape
        (kernel_h, kernel_w), (stride_h, stride_w) = pair(kernel), pair(stride)
        out = (height - 1) * stride_h + kernel_h, (width - 1) * stride_w + kernel_w
        operator = ops.Conv2d(
            batch, channels, c_in, *out, kernel_h, kernel_w, stride_h, stride_w, bias=True, transposed=True
        )
        parameters = Parameter(f"{name}.weight", operator.weight_elements), Parameter(f"{name}.bias", channels)
        return self.add_layer(name, operator, (x,), (batch, channels, *out), parameters)

    def batch_norm(self, x: LayerOutput, name: str) -> LayerOutput:
        """Return the batch normalisation of each channel."""
        if self.constant_norms:
            return self.elementwise(f"{name}.add", "add_scalar", self.elementwise(f"{name}.mul", "mul_scalar", x))
        batch, channels, height, width = x.shape
        parameters = Parameter(f"{name}.weight", channels), Parameter(f"{name}.bias", channels)
        return self.add_layer(name, ops.BatchNorm(batch, channels, height, width), (x,), x.shape, parameters)

    def layer_norm(
        self, x: LayerOutput, name: str, *, kind: Literal["layer_norm", "rms_norm"] = "layer_norm", bias: bool = True
    ) -> LayerOutput:
        """Return the normalisation of the last dimension; RMSNorm has no bias."""
        cols = x.shape[-1]
        parameters: tuple[Parameter, ...] = (Parameter(f"{name}.weight", cols),)
        if bias and kind == "layer_norm":
            parameters += (Parameter(f"{name}.bias", cols),)
        operator = ops.LayerNorm(prod(x.shape[:-1]), cols, kind, plain=kind == "rms_norm")
        return self.add_layer(name, operator, (x,), x.shape, parameters)

    def embedding(self, tokens: LayerOutput, name: str, vocabulary: int, size: int, of: str = "") -> LayerOutput:
        """Return a row of *size* elements for each of *tokens*; *of*: the name of a table that layers share."""
        operator = ops.Embedding(tokens.elements, size, vocabulary)
        parameters = (Parameter(f"{of or name}.weight", vocabulary * size),)
        return self.add_layer(name, operator, (tokens,), (*tokens.shape, size), parameters)

    def recurrent(
        self, x: LayerOutput, name: str, hidden: int, cell: Literal["rnn", "lstm", "gru"] = "lstm"
    ) -> LayerOutput:
        """Return the states of a recurrent layer after each time step, with separate biases for input and state."""
        batch, timesteps, inputs = x.shape
        operator = ops.Recurrent(cell, batch, timesteps, inputs, hidden)
        gates = operator.gates * hidden
        sizes = {"weight_ih": gates * inputs, "weight_hh": gates * hidden, "bias_ih": gates, "bias_hh": gates}
        parameters = tuple(Parameter(f"{name}.{key}", size) for key, size in sizes.items())
        return self.add_layer(name, operator, (x,), (batch, timesteps, hidden), parameters)

    # -- layers without parameters -----------------------------------------------------

    def pool(
        self,
        x: LayerOutput,
        name: str,
        kernel: Pair,
        *,
        kind: Literal["max", "avg"] = "max",
        stride: Pair | None = None,
        pad: Pair = 0,
        ceil: bool = False,
    ) -> LayerOutput:
        """Return the maximum or mean of each window; *ceil* rounds the result's size up, as Caffe does.

        Raises SizeError if a window is larger than the padded image.
        """
        batch, channels, height, width = x.shape
        (kernel_h, kernel_w), (pad_h, pad_w) = pair(kernel), pair(pad)
        stride_h, stride_w = pair(kernel if stride is None else stride)
        h_out = _pooled(name, height, kernel_h, stride_h, pad_h, ceil)
        w_out = _pooled(name, width, kernel_w, stride_w, pad_w, ceil)
        operator = ops.Pool(kind, batch, channels, height, width, h_out, w_out, kernel_h, kernel_w)
        return self.add_layer(name, operator, (x,), (batch, channels, h_out, w_out))

    def adaptive_avg_pool(self, x: LayerOutput, name: str, size: int = 1) -> LayerOutput:
        """Return the means of ``size`` by ``size`` windows that cover the image."""
        batch, channels, height, width = x.shape
        kernel = -(-height // size), -(-width // size)
        operator = ops.Pool("avg", batch, channels, height, width, size, size, *kernel)
        return self.add_layer(name, operator, (x,), (batch, channels, size, size))

    def elementwise(self, name: str, function: str, *inputs: LayerOutput, in_place: bool = False) -> LayerOutput:
        """Return *function* of *inputs*, tensors of one size."""
        operator = ops.Elementwise(function, inputs[0].elements, len(inputs))
        return self.add_layer(name, operator, inputs, inputs[0].shape, in_place=in_place)

    def relu(self, x: LayerOutput, name: str, *, in_place: bool = True) -> LayerOutput:
        """Return the ReLU of *x*, in place by default."""
        return self.elementwise(name, "relu", x, in_place=in_place)

    def add(self, a: LayerOutput, b: LayerOutput, name: str, *, in_place: bool = False) -> LayerOutput:
        """Return the sum."""
        return self.elementwise(name, "add", a, b, in_place=in_place)

    def dropout(self, x: LayerOutput, name: str) -> LayerOutput:
        """Return *x* after dropout; in inference, *x* itself."""
        return self.elementwise(name, "dropout", x) if self.training else x

    def dropout_add(self, x: LayerOutput, residual: LayerOutput, name: str) -> LayerOutput:
        """Return *residual* plus the dropout of *x*, as one kernel; in inference, their sum."""
        return self.elementwise(name, "dropout_add" if self.training else "add", x, residual)

    def concat(self, tensors: tuple[LayerOutput, ...], name: str) -> LayerOutput:
        """Return images concatenated along their channels; raises SizeError if they differ in size."""
        batch, _, height, width = tensors[0].shape
        if any((t.shape[0], *t.shape[2:]) != (batch, height, width) for t in tensors):
            raise SizeError(f"{name}: the images to be joined differ in size")
        shape = batch, sum(t.shape[1] for t in tensors), height, width
        return self.add_layer(name, ops.Copy(prod(shape)), tensors, shape)

    def join(self, tensors: tuple[LayerOutput, ...], name: str) -> LayerOutput:
        """Return *tensors* side by side along their last dimension."""
        shape = *tensors[0].shape[:-1], sum(x.shape[-1] for x in tensors)
        return self.add_layer(name, ops.Copy(prod(shape)), tensors, shape)

    def copy(
        self, x: LayerOutput, name: str, shape: tuple[int, ...] | None = None, *, transposed: bool = False
    ) -> LayerOutput:
        """Return *x*, a permuted view, copied into a contiguous tensor of *shape*."""
        shape = x.shape if shape is None else shape
        return self.add_layer(name, ops.Copy(prod(shape), transposed), (x,), shape)

    def softmax(self, x: LayerOutput, name: str, kernel: Literal["", "masked", "causal"] = "") -> LayerOutput:
        """Return the softmax over the last dimension; *kernel* as in :class:`~simulator.workload.operators.Softmax`."""
        return self.add_layer(name, ops.Softmax(prod(x.shape[:-1]), x.shape[-1], kernel), (x,), x.shape)

    def matmul(
        self, a: LayerOutput, b: LayerOutput, name: str, layout: Literal["NN", "NT", "TN", "TT"] = "NN"
    ) -> LayerOutput:
        """Return the matrix products over the last two dimensions; with ``NT``, *b* is read transposed."""
        *outer, m, k = a.shape if layout[0] == "N" else (*a.shape[:-2], a.shape[-1], a.shape[-2])
        n = b.shape[-2] if layout[1] == "T" else b.shape[-1]
        return self.add_layer(name, ops.MatMul(m, n, k, prod(outer), layout), (a, b), (*outer, m, n))

    def attention(
        self,
        query: LayerOutput,
        key: LayerOutput,
        value: LayerOutput,
        name: str,
        *,
        causal: bool,
        library: ops.AttentionLibrary,
        window: int = 0,
        sinks: bool = False,
    ) -> LayerOutput:
        """Return fused attention of ``(batch, heads, length, size)`` inputs, as ``(batch, length, heads * size)``.

        *window*: keys that a query sees; 0: all.  *sinks*: a learned number per head takes part in its softmax.
        """
        batch, heads, q_length, size = query.shape
        of_values = value.shape[3]
        other = 0 if of_values == size else of_values
        window = window if window < key.shape[2] else 0
        lengths = batch, heads, q_length, key.shape[2]
        operator = ops.Attention(*lengths, size, key.shape[1], causal, library, other, window)
        parameters = (Parameter(f"{name}.sinks", heads),) if sinks else ()
        return self.add_layer(name, operator, (query, key, value), (batch, q_length, heads * of_values), parameters)

    def cross_entropy(self, logits: LayerOutput, name: str = "loss") -> LayerOutput:
        """Return the mean cross-entropy over the last dimension, with labels as another input of the network."""
        rows, cols = prod(logits.shape[:-1]), logits.shape[-1]
        labels = self.input(rows)
        return self.add_layer(name, ops.CrossEntropy(rows, cols), (logits, labels), (1,))


def _pooled(name: str, size: int, kernel: int, stride: int, pad: int, ceil: bool) -> int:
    """Return the number of windows along one side, rounded as the framework rounds it."""
    span = size + 2 * pad - kernel
    if span < 0:
        raise SizeError(f"{name}: a kernel of {kernel} is larger than what it gets, {size}")
    n = (-(-span // stride) if ceil else span // stride) + 1
    if ceil and (n - 1) * stride >= size + pad:  # a window must begin inside the image or its first padding
        n -= 1
    return n
