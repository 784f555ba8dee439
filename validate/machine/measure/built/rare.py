"""Operators that few networks have: products of experts, norms of each image, sums that are weighed."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.built.description import Layer
from validate.machine.measure.built.made import Made, named
from validate.machine.measure.built.shapes import Shape
from validate.machine.measure.case import Unavailable

__all__ = ["experts", "of_each_image", "weighed_rows", "weighed_sum"]


class _Experts(nn.Module):  # type: ignore[misc]
    """Products of rows, expert after expert, each with its expert's weights: as many for each as for the others."""

    def __init__(self, count: int, rows: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.rows, self.inputs = rows, inputs
        self.weight = nn.Parameter(torch.randn(count, outputs, inputs) * inputs**-0.5)
        ends = [rows * (i + 1) // count for i in range(count)]
        self.register_buffer("ends", torch.tensor(ends, dtype=torch.int32), persistent=False)

    def forward(self, x: Any) -> Any:
        x, weight, place = x.reshape(self.rows, self.inputs), self.weight, x.device.type
        if place != "meta" and torch.is_autocast_enabled(place):  # which does not know this product
            x, weight = (each.to(torch.get_autocast_dtype(place)) for each in (x, weight))
        return F.grouped_mm(x, weight.transpose(-2, -1), offs=self.ends)


def experts(layer: Layer, have: Shape) -> Made:
    """Return the product of rows with so many experts, by torch's kernel for all of them."""
    count, rows, inputs, outputs = (layer.size(name) for name in ("experts", "rows", "inputs", "outputs"))
    if not hasattr(F, "grouped_mm"):
        raise Unavailable(f"{layer.name}: torch {torch.__version__} has no grouped_mm for experts; 2.10 and later have")
    if len(layer.parameters) > 1 or prod(have) != rows * inputs:
        raise Unavailable(f"{layer.name}: torch has no product of {rows} rows with {count} experts and biases")
    module = _Experts(count, rows, inputs, outputs)
    return Made(module, (rows, outputs), module, named(layer, {"weight": count * inputs * outputs}))


def weighed_rows(rows: Shape, scores: Shape) -> Made:
    """Return rows, each times its score: of *scores* by expert, in order, the first of each row of them."""
    count = prod(rows) // rows[-1]
    chosen = count * scores[-1] // prod(scores)

    def call(x: Any, best: Any) -> Any:
        return x * best[..., :chosen].reshape(*rows[:-1], 1).to(x.dtype)

    return Made(call, rows)


class _Normed(nn.Module):  # type: ignore[misc]
    """Images normed each by itself, in each channel."""

    def __init__(self, channels: int, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.weight, self.bias = (nn.Parameter(torch.ones(channels)) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return F.instance_norm(x.reshape(self.shape), weight=self.weight, bias=self.bias).reshape(x.shape)


def of_each_image(layer: Layer, have: Shape, want: Shape) -> Made:
    """Return the norm of each image by itself; *want* has the channels of all images side by side, as torch runs it."""
    channels = layer.parameters[0].elements
    shape = (want[0] * want[1] // channels, channels, *want[2:])
    if prod(have) != prod(want) or len(layer.parameters) != 2:
        raise Unavailable(f"{layer.name}: no norm of each image with such parameters")
    module = _Normed(channels, shape)
    return Made(module, have, module, named(layer, {"weight": channels, "bias": channels}))


class _Weighed(nn.Module):  # type: ignore[misc]
    """The sum of each row, its columns weighed, with one scale for all where there is one."""

    def __init__(self, cols: int, *, scaled: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(cols))
        self.scale = nn.Parameter(torch.ones(1)) if scaled else None

    def forward(self, x: Any) -> Any:
        return torch.matmul(x, self.weight if self.scale is None else self.weight * self.scale)


def weighed_sum(layer: Layer, view: Callable[[Any], Any], want: Shape) -> Made:
    """Return the sum of rows of *want* with weights that are learned."""
    scaled = len(layer.parameters) > 1
    module = _Weighed(want[-1], scaled=scaled)
    names = named(layer, {"weight": want[-1]} | ({"scale": 1} if scaled else {}))
    return Made(lambda x: module(view(x)), want[:1], module, names)
