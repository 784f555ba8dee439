"""GoogLeNet without batch normalisation, its successor with it (Inception-BN), and Inception v3.

``googlenet``: Szegedy et al., arXiv 1409.4842, table 1, without local response normalisation and auxiliary
classifiers, as timed by convnet-benchmarks.  ``inception-bn``: Ioffe and Szegedy, arXiv 1502.03167, in the sizes of
MXNet's example (its convolutions have a bias).  ``inception3``: Szegedy et al., arXiv 1512.00567, as in torchvision,
for 299x299 images.  ``stages.json`` has the sizes of their blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.workload.zoo import stage_sizes
from simulator.workload.zoo.builder import Pair, Tensor, pair

Unit = Callable[[Tensor, str, int, Pair, int], Tensor]


def _mixed(x: Tensor, name: str, branches: Any, unit: Unit) -> Tensor:
    """Return the results of *branches*, lists of layers, side by side; convolutions are made by *unit*.

    Each layer has its name and a convolution's channels, kernel (1) and stride (1); or a pool's kind, stride and
    padding; or the convolutions that read its input side by side.
    """
    found = []
    for layers in branches:
        y = x
        for layer, *sizes in layers:
            y = _layer(y, f"{name}.{layer}", unit, *sizes)
        found.append(y)
    return found[0].concat(f"{name}.cat", *found[1:])


def _layer(x: Tensor, name: str, unit: Unit, first: Any, second: Any = 1, third: int = 1) -> Tensor:
    if isinstance(first, str):
        return x.pool(name, 3, kind="avg" if first == "avg" else "max", stride=second, pad=third)
    if isinstance(first, list):
        one, *others = (_layer(x, name + end, unit, *sizes) for end, *sizes in first)
        return one.concat(f"{name}.cat", *others)
    return unit(x, name, first, tuple(second) if isinstance(second, list) else second, third)


def googlenet(x: Tensor, classes: int) -> Tensor:
    """Return the logits of GoogLeNet."""
    x = _conv(x, "conv1", 64, 7, 2).pool("pool1", 3, stride=2, ceil=True)
    x = _conv(_conv(x, "conv2_reduce", 64, 1), "conv2", 192, 3).pool("pool2", 3, stride=2, ceil=True)
    for block, branches in stage_sizes("googlenet").items():
        if block in ("4a", "5a"):
            x = x.pool(f"pool{int(block[0]) - 1}", 3, stride=2, ceil=True)
        x = _mixed(x, f"inception.{block}", branches, _conv)
    return x.adaptive_avg_pool("avgpool").flatten().dropout("dropout").linear("fc", classes)


def _conv(x: Tensor, name: str, channels: int, kernel: Pair, stride: int = 1) -> Tensor:
    return x.conv(name, channels, kernel, stride=stride, pad=pair(kernel)[0] // 2, bias=True).relu(f"{name}.relu")


def inception_bn(x: Tensor, classes: int) -> Tensor:
    """Return the logits of Inception-BN."""

    def unit(x: Tensor, name: str, channels: int, kernel: Pair, stride: int = 1) -> Tensor:
        x = x.conv(name, channels, kernel, stride=stride, pad=pair(kernel)[0] // 2, bias=True)
        return x.batch_norm(f"{name}.bn").relu(f"{name}.relu")

    x = unit(x, "conv1", 64, 7, 2).pool("pool1", 3, stride=2)
    x = unit(unit(x, "conv2_reduce", 64, 1), "conv2", 192, 3).pool("pool2", 3, stride=2)
    for block, branches in stage_sizes("inception-bn").items():
        x = _mixed(x, f"inception.{block}", branches, unit)
    return x.adaptive_avg_pool("avgpool").flatten().linear("fc", classes)


def inception3(x: Tensor, classes: int) -> tuple[Tensor, ...]:
    """Return the logits of Inception v3 and, in training, the auxiliary classifier's logits."""
    x = _unpadded(x, "Conv2d_1a_3x3", 32, 3, 2)
    x = _same(_unpadded(x, "Conv2d_2a_3x3", 32, 3), "Conv2d_2b_3x3", 64, 3, 1).pool("maxpool1", 3, stride=2)
    x = _unpadded(_unpadded(x, "Conv2d_3b_1x1", 80, 1), "Conv2d_4a_3x3", 192, 3).pool("maxpool2", 3, stride=2)
    auxiliary: tuple[Tensor, ...] = ()
    for name, branches in stage_sizes("inception3").items():
        if name == "Mixed_7a" and x.net.training:
            y = x.pool("AuxLogits.avg_pool", 5, kind="avg", stride=3)
            y = _unpadded(_unpadded(y, "AuxLogits.conv0", 128, 1), "AuxLogits.conv1", 768, 5)
            auxiliary = (y.adaptive_avg_pool("AuxLogits.avgpool").flatten().linear("AuxLogits.fc", classes),)
        x = _mixed(x, name, branches, _same)
    return x.adaptive_avg_pool("avgpool").dropout("dropout").flatten().linear("fc", classes), *auxiliary


def _same(x: Tensor, name: str, channels: int, kernel: Pair, stride: int) -> Tensor:
    """Return a convolution that keeps the size of *x*, or halves it without padding."""
    height, width = pair(kernel)
    return _unpadded(x, name, channels, kernel, stride, (height // 2, width // 2) if stride == 1 else 0)


def _unpadded(x: Tensor, name: str, channels: int, kernel: Pair, stride: int = 1, pad: Pair = 0) -> Tensor:
    x = x.conv(f"{name}.conv", channels, kernel, stride=stride, pad=pad)
    return x.batch_norm(f"{name}.bn").relu(f"{name}.relu")
