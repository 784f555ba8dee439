"""GoogLeNet without batch normalisation, its successor with it (Inception-BN), and Inception v3.

``googlenet``: Szegedy et al., arXiv 1409.4842, table 1, without local response normalisation and auxiliary
classifiers, as timed by convnet-benchmarks.  ``inception-bn``: Ioffe and Szegedy, arXiv 1502.03167, in the sizes of
MXNet's example (its convolutions have a bias).  ``inception3``: Szegedy et al., arXiv 1512.00567, as in torchvision,
for 299x299 images.  ``stages.json`` has the sizes of their blocks.
"""

from __future__ import annotations

from typing import Any

from simulator.workload.zoo import stage_sizes
from simulator.workload.zoo.builder import Tensor, pair


def googlenet(x: Tensor, classes: int) -> Tensor:
    """Return the logits of GoogLeNet.

    Sizes of a block are channels: 1x1; 3x3's reduction and 3x3; 5x5's reduction and 5x5; projection after the pool.
    """
    x = _conv(x, "conv1", 64, 7, 2).pool("pool1", 3, stride=2, ceil=True)
    x = _conv(_conv(x, "conv2_reduce", 64), "conv2", 192, 3).pool("pool2", 3, stride=2, ceil=True)
    for block, (one, reduce3, three, reduce5, five, pooled) in stage_sizes("googlenet").items():
        name = f"inception.{block}"
        if block in ("4a", "5a"):
            x = x.pool(f"pool{int(block[0]) - 1}", 3, stride=2, ceil=True)
        x = _conv(x, f"{name}.1x1", one).concat(
            f"{name}.cat",
            _conv(_conv(x, f"{name}.3x3_reduce", reduce3), f"{name}.3x3", three, 3),
            _conv(_conv(x, f"{name}.5x5_reduce", reduce5), f"{name}.5x5", five, 5),
            _conv(x.pool(f"{name}.pool", 3, stride=1, pad=1), f"{name}.proj", pooled),
        )
    return x.adaptive_avg_pool("avgpool").flatten().dropout("dropout").linear("fc", classes)


def inception_bn(x: Tensor, classes: int) -> Tensor:
    """Return the logits of Inception-BN.

    Sizes of a block are channels: 1x1; 3x3's reduction and 3x3; double 3x3's reduction and each 3x3; projection after
    the pool; kind of pool.  Blocks without the 1x1 and the projection (0) halve the image.
    """

    def conv(x: Tensor, name: str, channels: int, kernel: int = 1, stride: int = 1) -> Tensor:
        return _conv(x, name, channels, kernel, stride, normed=True)

    x = conv(x, "conv1", 64, 7, 2).pool("pool1", 3, stride=2)
    x = conv(conv(x, "conv2_reduce", 64), "conv2", 192, 3).pool("pool2", 3, stride=2)
    for block, (one, reduce3, three, reduce_d, double, projected, kind) in stage_sizes("inception-bn").items():
        name, stride = f"inception.{block}", 1 if one else 2
        branches = [conv(x, f"{name}.1x1", one)] if one else []
        branches.append(conv(conv(x, f"{name}.3x3_reduce", reduce3), f"{name}.3x3", three, 3, stride))
        y = conv(conv(x, f"{name}.double_reduce", reduce_d), f"{name}.double_0", double, 3)
        branches.append(conv(y, f"{name}.double_1", double, 3, stride))
        y = x.pool(f"{name}.pool", 3, kind=kind, stride=stride, pad=1)
        branches.append(conv(y, f"{name}.proj", projected) if projected else y)
        x = branches[0].concat(f"{name}.cat", *branches[1:])
    return x.adaptive_avg_pool("avgpool").flatten().linear("fc", classes)


def _conv(x: Tensor, name: str, channels: int, kernel: int = 1, stride: int = 1, *, normed: bool = False) -> Tensor:
    x = x.conv(name, channels, kernel, stride=stride, pad=kernel // 2, bias=True)
    return (x.batch_norm(f"{name}.bn") if normed else x).relu(f"{name}.relu")


def inception3(x: Tensor, classes: int) -> tuple[Tensor, ...]:
    """Return the logits of Inception v3 and, in training, the auxiliary classifier's logits.

    A branch of a block is a list of layers, each with its name: a convolution's channels, kernel and stride, or the
    convolutions that read its input side by side; a pool has no sizes.
    """
    x = _unit(x, "Conv2d_1a_3x3", 32, 3, stride=2)
    x = _unit(_unit(x, "Conv2d_2a_3x3", 32, 3), "Conv2d_2b_3x3", 64, 3, pad=1).pool("maxpool1", 3, stride=2)
    x = _unit(_unit(x, "Conv2d_3b_1x1", 80, 1), "Conv2d_4a_3x3", 192, 3).pool("maxpool2", 3, stride=2)
    auxiliary: tuple[Tensor, ...] = ()
    for name, branches in stage_sizes("inception3").items():
        if name == "Mixed_7a" and x.net.training:
            y = x.pool("AuxLogits.avg_pool", 5, kind="avg", stride=3)
            y = _unit(_unit(y, "AuxLogits.conv0", 128, 1), "AuxLogits.conv1", 768, 5)
            auxiliary = (y.adaptive_avg_pool("AuxLogits.avgpool").flatten().linear("AuxLogits.fc", classes),)
        found = []
        for layers in branches:
            y = x
            for layer, *sizes in layers:
                y = _layer(y, f"{name}.{layer}", *sizes)
            found.append(y)
        x = found[0].concat(f"{name}.cat", *found[1:])
    return x.adaptive_avg_pool("avgpool").dropout("dropout").flatten().linear("fc", classes), *auxiliary


def _layer(x: Tensor, name: str, channels: Any = 0, kernel: Any = 3, stride: int = 1) -> Tensor:
    if not channels:
        kept = name.endswith("avg_pool")
        return x.pool(name, 3, kind="avg", stride=1, pad=1) if kept else x.pool(name, 3, stride=2)
    if isinstance(channels, list):
        one, *others = (_layer(x, name + end, *sizes) for end, *sizes in channels)
        return one.concat(f"{name}.cat", *others)
    height, width = pair(kernel if isinstance(kernel, int) else tuple(kernel))
    return _unit(x, name, channels, (height, width), stride, (height // 2, width // 2) if stride == 1 else (0, 0))


def _unit(
    x: Tensor, name: str, channels: int, kernel: int | tuple[int, int], stride: int = 1, pad: int | tuple[int, int] = 0
) -> Tensor:
    x = x.conv(f"{name}.conv", channels, kernel, stride=stride, pad=pad)
    return x.batch_norm(f"{name}.bn").relu(f"{name}.relu")
