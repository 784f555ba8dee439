"""Networks that concatenate channels: DenseNet (arXiv 1608.06993, table 1) and Inception v3 (arXiv 1512.00567)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_GROWTH = 32
Pair = int | tuple[int, int]


# -- DenseNet --------------------------------------------------------------------------


def _ready(channels: int) -> list[Any]:
    return [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]


class _Dense(nn.Module):  # type: ignore[misc]
    """A dense block: each layer reads the concatenation of all earlier outputs."""

    def __init__(self, channels: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for i in range(count):
            c_in = channels + i * _GROWTH
            first = [*_ready(c_in), nn.Conv2d(c_in, 4 * _GROWTH, 1, bias=False)]
            second = [*_ready(4 * _GROWTH), nn.Conv2d(4 * _GROWTH, _GROWTH, 3, padding=1, bias=False)]
            self.layers.append(nn.Sequential(*first, *second))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


def densenet121() -> Any:
    """Return DenseNet-121."""
    channels = 64
    layers: list[Any] = [nn.Conv2d(3, channels, 7, 2, 3, bias=False), *_ready(channels), nn.MaxPool2d(3, 2, 1)]
    for i, count in enumerate((6, 12, 24, 16)):
        if i:
            half = channels // 2
            layers += [*_ready(channels), nn.Conv2d(channels, half, 1, bias=False), nn.AvgPool2d(2)]
            channels = half
        layers.append(_Dense(channels, count))
        channels += count * _GROWTH
    layers += [*_ready(channels), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*layers)


# -- Inception v3 ----------------------------------------------------------------------


def _conv(c_in: int, c_out: int, kernel: Pair, stride: int = 1, pad: Pair = 0) -> Any:
    convolution = nn.Conv2d(c_in, c_out, kernel, stride, pad, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(c_out, eps=0.001), nn.ReLU(inplace=True))


def _seven(c_in: int, c_out: int, row: bool) -> Any:
    return _conv(c_in, c_out, (1, 7), pad=(0, 3)) if row else _conv(c_in, c_out, (7, 1), pad=(3, 0))


class _Join(nn.Module):  # type: ignore[misc]
    """Parallel branches, concatenated along channels."""

    def __init__(self, *branches: Any) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _pooled(c_in: int, c_out: int) -> Any:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), _conv(c_in, c_out, 1))


def _block_a(c: int, pooled: int) -> Any:
    return _Join(
        _conv(c, 64, 1),
        nn.Sequential(_conv(c, 48, 1), _conv(48, 64, 5, pad=2)),
        nn.Sequential(_conv(c, 64, 1), _conv(64, 96, 3, pad=1), _conv(96, 96, 3, pad=1)),
        _pooled(c, pooled),
    )


def _block_b(c: int) -> Any:
    return _Join(
        _conv(c, 384, 3, 2),
        nn.Sequential(_conv(c, 64, 1), _conv(64, 96, 3, pad=1), _conv(96, 96, 3, 2)),
        nn.MaxPool2d(3, 2),
    )


def _block_c(c: int, w: int) -> Any:
    return _Join(
        _conv(c, 192, 1),
        nn.Sequential(_conv(c, w, 1), _seven(w, w, True), _seven(w, 192, False)),
        nn.Sequential(
            _conv(c, w, 1), _seven(w, w, False), _seven(w, w, True), _seven(w, w, False), _seven(w, 192, True)
        ),
        _pooled(c, 192),
    )


def _block_d(c: int) -> Any:
    return _Join(
        nn.Sequential(_conv(c, 192, 1), _conv(192, 320, 3, 2)),
        nn.Sequential(_conv(c, 192, 1), _seven(192, 192, True), _seven(192, 192, False), _conv(192, 192, 3, 2)),
        nn.MaxPool2d(3, 2),
    )


def _fork(c: int) -> Any:
    return _Join(_conv(c, 384, (1, 3), pad=(0, 1)), _conv(c, 384, (3, 1), pad=(1, 0)))


def _block_e(c: int) -> Any:
    return _Join(
        _conv(c, 320, 1),
        nn.Sequential(_conv(c, 384, 1), _fork(384)),
        nn.Sequential(_conv(c, 448, 1), _conv(448, 384, 3, pad=1), _fork(384)),
        _pooled(c, 192),
    )


class _Inception(nn.Module):  # type: ignore[misc]
    """Inception v3, with its auxiliary classifier in training."""

    def __init__(self, training: bool) -> None:
        super().__init__()
        first = [_conv(3, 32, 3, 2), _conv(32, 32, 3), _conv(32, 64, 3, pad=1), nn.MaxPool2d(3, 2)]
        first += [_conv(64, 80, 1), _conv(80, 192, 3), nn.MaxPool2d(3, 2)]
        first += [_block_a(192, 32), _block_a(256, 64), _block_a(288, 64), _block_b(288)]
        first += [_block_c(768, width) for width in (128, 160, 160, 192)]
        self.first = nn.Sequential(*first)
        self.auxiliary = None
        if training:
            layers = [nn.AvgPool2d(5, 3), _conv(768, 128, 1), _conv(128, 768, 5)]
            self.auxiliary = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, 1000))
        last = [_block_d(768), _block_e(1280), _block_e(2048), nn.AdaptiveAvgPool2d(1), nn.Dropout()]
        self.last = nn.Sequential(*last, nn.Flatten(), nn.Linear(2048, 1000))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.first(x)
        auxiliary = () if self.auxiliary is None else (self.auxiliary(x),)
        return self.last(x), *auxiliary


def inception3(training: bool) -> Any:
    """Return Inception v3 for 299x299 images."""
    return _Inception(training)
