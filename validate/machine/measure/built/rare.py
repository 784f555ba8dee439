"""Rare operators: products with experts, instance norms, weighted sums."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.built.description import DescribedLayer
from validate.machine.measure.built.shapes import Shape, TorchLayer, named
from validate.machine.measure.case import Unavailable


class _Experts(nn.Module):  # type: ignore[misc]
    """A grouped product: consecutive groups of equally many rows, one for each expert, times its weights."""

    def __init__(self, count: int, rows: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.rows, self.inputs = rows, inputs
        self.weight = nn.Parameter(torch.randn(count, outputs, inputs) * inputs**-0.5)
        ends = [rows * (i + 1) // count for i in range(count)]
        self.register_buffer("ends", torch.tensor(ends, dtype=torch.int32), persistent=False)

    def forward(self, x: Any) -> Any:
        x, weight, place = x.reshape(self.rows, self.inputs), self.weight, x.device.type
        if place != "meta" and torch.is_autocast_enabled(place):  # autocast does not know this product
            x, weight = (each.to(torch.get_autocast_dtype(place)) for each in (x, weight))
        return F.grouped_mm(x, weight.transpose(-2, -1), offs=self.ends)


def grouped_experts(layer: DescribedLayer, have: Shape) -> TorchLayer:
    """Return the product of rows with several experts, by torch's grouped kernel.

    Raises Unavailable where torch has no such kernel (before 2.10), experts have biases or unlike numbers of rows, or
    products run one by one.
    """
    count, rows, inputs, outputs = (layer.size(name, 1) for name in ("experts", "rows", "inputs", "outputs"))
    if layer.sizes.get("busiest") or layer.sizes.get("grouping", "kernel") != "kernel":
        raise Unavailable(f"{layer.name}: products of unlike numbers of rows, or one by one, are not measured")
    if not hasattr(F, "grouped_mm"):
        raise Unavailable(f"{layer.name}: torch {torch.__version__} has no grouped_mm for experts; 2.10 and later have")
    if len(layer.parameters) > 1 or prod(have) != rows * inputs:
        raise Unavailable(f"{layer.name}: torch has no product of {rows} rows with {count} experts and biases")
    module = _Experts(count, rows, inputs, outputs)
    return TorchLayer(module, (rows, outputs), module, named(layer, {"weight": count * inputs * outputs}))


def weighed_rows(rows: Shape, scores: Shape) -> TorchLayer:
    """Return rows multiplied by their scores: the best ones of each token, from sorted *scores*."""
    count = prod(rows) // rows[-1]
    chosen = count * scores[-1] // prod(scores)

    def call(x: Any, best: Any) -> Any:
        return x * best[..., :chosen].reshape(*rows[:-1], 1).to(x.dtype)

    return TorchLayer(call, rows)


class _Normed(nn.Module):  # type: ignore[misc]
    """Instance norm: each channel of each image is normalised by itself."""

    def __init__(self, channels: int, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.weight, self.bias = (nn.Parameter(torch.ones(channels)) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return F.instance_norm(x.reshape(self.shape), weight=self.weight, bias=self.bias).reshape(x.shape)


def of_each_image(layer: DescribedLayer, have: Shape, want: Shape) -> TorchLayer:
    """Return an instance norm; *want* has all images' channels in a row. Raises Unavailable if parameters misfit."""
    channels = layer.parameters[0].elements
    shape = (want[0] * want[1] // channels, channels, *want[2:])
    if prod(have) != prod(want) or len(layer.parameters) != 2:
        raise Unavailable(f"{layer.name}: no norm of each image with such parameters")
    module = _Normed(channels, shape)
    return TorchLayer(module, have, module, named(layer, {"weight": channels, "bias": channels}))


class _Weighed(nn.Module):  # type: ignore[misc]
    """The sum of each row with weighted columns and, if *scaled*, a common scale."""

    def __init__(self, cols: int, *, scaled: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(cols))
        self.scale = nn.Parameter(torch.ones(1)) if scaled else None

    def forward(self, x: Any) -> Any:
        return torch.matmul(x, self.weight if self.scale is None else self.weight * self.scale)


def weighed_sum(layer: DescribedLayer, view: Callable[[Any], Any], want: Shape) -> TorchLayer:
    """Return the sum over the columns of *want*, with learned weights."""
    scaled = len(layer.parameters) > 1
    module = _Weighed(want[-1], scaled=scaled)
    names = named(layer, {"weight": want[-1]} | ({"scale": 1} if scaled else {}))
    return TorchLayer(lambda x: module(view(x)), want[:1], module, names)
