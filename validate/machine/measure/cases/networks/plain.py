"""Sequential networks: perceptrons, LeNet, AlexNet, VGG, and an LSTM language model."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn

# Number of convolutions with 64, 128, 256, 512 and 512 channels before each pool (Simonyan and Zisserman, table 1).
_VGG = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def conv_relu(c_in: int, c_out: int, kernel: int, stride: int = 1, pad: int = 0) -> list[Any]:
    """Return a convolution with a bias, and an in-place ReLU."""
    return [nn.Conv2d(c_in, c_out, kernel, stride, pad), nn.ReLU(inplace=True)]


def perceptron(*widths: int) -> Any:
    """Return linear layers between *widths*, with a ReLU (not in place) between each two."""
    layers: list[Any] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lenet() -> Any:
    """Return LeNet-5 for 28x28 images, with sigmoids and average pools."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, 10)),
    )


def alexnet() -> Any:
    """Return single-column AlexNet (Krizhevsky, arXiv 1404.5997), with dropout before two of its dense layers."""
    return nn.Sequential(
        *(*conv_relu(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2), *conv_relu(64, 192, 5, 1, 2), nn.MaxPool2d(3, 2)),
        *(*conv_relu(192, 384, 3, 1, 1), *conv_relu(384, 256, 3, 1, 1), *conv_relu(256, 256, 3, 1, 1)),
        *(nn.MaxPool2d(3, 2), nn.AdaptiveAvgPool2d(6), nn.Flatten()),
        *(nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(inplace=True)),
        *(nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000)),
    )


def vgg(depth: int) -> Any:
    """Return VGG with *depth* weight layers."""
    layers: list[Any] = []
    c_in = 3
    for convolutions, channels in zip(_VGG[depth], (64, 128, 256, 512, 512), strict=True):
        for _ in range(convolutions):
            layers += conv_relu(c_in, channels, 3, 1, 1)
            c_in = channels
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for inputs in (512 * 7 * 7, 4096):
        layers += [nn.Linear(inputs, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, 1000))


class Words(nn.Module):  # type: ignore[misc]
    """A language model: embedding, LSTM layers and a linear layer, all of one width."""

    def __init__(self, hidden: int = 256, layers: int = 2, vocabulary: int = 10000) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each word."""
        return self.decoder(self.lstm(self.embed(tokens))[0])
