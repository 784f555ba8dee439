"""ResNet-50 and VGG as torchvision has them, rebuilt from torch's modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it


class Bottleneck(nn.Module):
    """A bottleneck of torchvision's ResNet."""

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        sides = (channels, planes, 1, 1), (planes, planes, 3, stride), (planes, 4 * planes, 1, 1)
        for c_in, c_out, kernel, step in sides:
            layers += [nn.Conv2d(c_in, c_out, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(c_out)]
            layers.append(nn.ReLU(inplace=True))
        self.body = nn.Sequential(*layers[:-1])
        other = nn.Conv2d(channels, 4 * planes, 1, stride, bias=False), nn.BatchNorm2d(4 * planes)
        self.shortcut = nn.Sequential(*other) if channels != 4 * planes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


def resnet50(batch: int) -> Any:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            layers.append(Bottleneck(channels, 64 << stage, 2 if stage and not i else 1))
            channels = 256 << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers), torch.empty(batch, 3, 224, 224)


def vgg(batch: int, convolutions: tuple[int, ...]) -> Any:
    """Return VGG with so many *convolutions* in its blocks."""
    layers: list[nn.Module] = []
    channels = 3
    for count, width in zip(convolutions, (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers), torch.empty(batch, 3, 224, 224)


def vgg11(batch: int) -> Any:
    return vgg(batch, (1, 1, 2, 2, 2))


def vgg16(batch: int) -> Any:
    return vgg(batch, (2, 2, 3, 3, 3))
