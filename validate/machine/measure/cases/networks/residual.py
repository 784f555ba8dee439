"""Residual networks (He et al., arXiv 1512.03385): table 1 for ImageNet, and ResNet-18 for small images."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


def _conv(c_in: int, c_out: int, kernel: int, stride: int = 1) -> list[Any]:
    """Return a convolution, padded to keep the image size but for its stride, and its batch norm."""
    return [nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(c_out)]


class _Block(nn.Module):  # type: ignore[misc]
    """A residual block: *layers* plus the shortcut, which is a 1x1 convolution where sizes differ."""

    def __init__(self, layers: list[Any], c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        same = stride == 1 and c_in == c_out
        self.shortcut = None if same else nn.Sequential(*_conv(c_in, c_out, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        y += x if self.shortcut is None else self.shortcut(x)
        return torch.relu_(y)


def _basic(c_in: int, planes: int, stride: int) -> _Block:
    layers = [*_conv(c_in, planes, 3, stride), nn.ReLU(inplace=True), *_conv(planes, planes, 3)]
    return _Block(layers, c_in, planes, stride)


def _bottleneck(c_in: int, planes: int, stride: int) -> _Block:
    layers = [*_conv(c_in, planes, 1), nn.ReLU(inplace=True), *_conv(planes, planes, 3, stride)]
    layers += [nn.ReLU(inplace=True), *_conv(planes, 4 * planes, 1)]
    return _Block(layers, c_in, 4 * planes, stride)


def _network(stem: list[Any], blocks: tuple[int, ...], basic: bool, classes: int) -> Any:
    layers, c_in = list(stem), 64
    for stage, count in enumerate(blocks):
        planes = 64 << stage
        for i in range(count):
            stride = 2 if stage and not i else 1
            layers.append((_basic if basic else _bottleneck)(c_in, planes, stride))
            c_in = planes if basic else 4 * planes
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c_in, classes))


def resnet(depth: int) -> Any:
    """Return ResNet for ImageNet; a bottleneck has its stride at the 3x3 convolution."""
    stem = [*_conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return _network(stem, _BLOCKS[depth], depth < 50, 1000)


def resnet_small_image(channels: int) -> Any:
    """Return ResNet-18 for small images: a 3x3 stem that keeps the size, no max-pool."""
    return _network([*_conv(channels, 64, 3), nn.ReLU(inplace=True)], _BLOCKS[18], True, 10)
