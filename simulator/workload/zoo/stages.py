"""Networks whose blocks ``stages.json`` and ``networks.json`` list (docs/decisions/zoo.md)."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from simulator.records import own_data
from simulator.workload.zoo.builder import Pair, Tensor, pair
from simulator.workload.zoo.resnet import prelu, squeeze_excite

_SIZES = own_data("simulator.workload.zoo", "stages.json")
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
    for block, branches in _SIZES["googlenet"].items():
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
    for block, branches in _SIZES["inception-bn"].items():
        x = _mixed(x, f"inception.{block}", branches, unit)
    return x.adaptive_avg_pool("avgpool").flatten().linear("fc", classes)


def inception3(x: Tensor, classes: int) -> tuple[Tensor, ...]:
    """Return the logits of Inception v3 and, in training, the auxiliary classifier's logits."""
    x = _unpadded(x, "Conv2d_1a_3x3", 32, 3, 2)
    x = _same(_unpadded(x, "Conv2d_2a_3x3", 32, 3), "Conv2d_2b_3x3", 64, 3, 1).pool("maxpool1", 3, stride=2)
    x = _unpadded(_unpadded(x, "Conv2d_3b_1x1", 80, 1), "Conv2d_4a_3x3", 192, 3).pool("maxpool2", 3, stride=2)
    auxiliary: tuple[Tensor, ...] = ()
    for name, branches in _SIZES["inception3"].items():
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


_STAGES = _SIZES["efficientnet"]  # each: expansion, side of the kernel, stride, channels, blocks
_LAST = 1280  # channels before the head, of the second generation


Stage = tuple[str, int, int, int, int, int, str, str]
"""Kind, expansion, side of the kernel, stride, channels, blocks, activation, that of squeeze-and-excitation or ""."""


def efficientnet(x: Tensor, classes: int, variant: str) -> Tensor:
    """Return the logits of EfficientNet *variant*, ``b0`` to ``b7`` or ``v2-s`` to ``v2-l``."""
    if variant in _STAGES["second"]:
        sizes = _STAGES["second"][variant]
        fused, stages = sizes["fused"], sizes["stages"]
        stem, last = stages[0][3], _LAST
    else:
        width, depth = _STAGES["scales"][variant]
        fused, stem = 0, _channels(32 * width)
        stages = [(e, k, s, _channels(width * c), ceil(depth * n)) for e, k, s, c, n in _STAGES["first"]]
        last = 4 * stages[-1][3]
    fuses = [("summed" if row[0] == 1 else "fused", *row, "silu", "") for row in stages[:fused]]
    return _head(
        _blocks(x, stem, fuses + [("inverted", *row, "silu", "silu") for row in stages[fused:]]), last, classes
    )


def _channels(wanted: float) -> int:
    """Return the nearest multiple of 8 that is not more than a tenth below *wanted*."""
    found = max(8, int(wanted + 4) // 8 * 8)
    return found + 8 if found < 0.9 * wanted else found


def gpunet(x: Tensor, classes: int, stem: int, stages: tuple[Stage, ...]) -> Tensor:
    """Return the logits of a GPUNet of *stages*, of which the last number is whether channels are weighted."""
    return _head(_blocks(x, stem, [(*row[:-1], "relu" if row[-1] else "") for row in stages]), _LAST, classes)


def _blocks(x: Tensor, stem: int, stages: Sequence[Stage]) -> Tensor:
    """Return the result of a convolution and *stages* of blocks.

    A block is a convolution (``conv``, or ``summed`` with what enters), or it expands channels and projects them again:
    by a convolution over pixels (``fused``), or by one in which each channel is convolved by itself (``inverted``).
    """
    x = _unit(x, "stem", stem, 3, stride=2) if stem else x
    for i, (kind, expansion, kernel, first, channels, blocks, act, squeezed) in enumerate(stages):
        for j in range(blocks):
            name, stride, wide = f"{i}.{j}", 1 if j else first, expansion * x.shape[1]
            if kind in ("conv", "summed"):
                y = _unit(x, f"{name}.conv", channels, kernel, stride=stride, act=act)
            else:
                y = x
                if kind == "fused":
                    y = _unit(y, f"{name}.expand", wide, kernel, stride=stride, act=act)
                else:
                    y = _unit(y, f"{name}.expand", wide, 1, act=act) if expansion > 1 else y
                    y = _unit(y, f"{name}.depthwise", wide, kernel, stride=stride, groups=wide, act=act)
                y = squeeze_excite(y, f"{name}.se", max(1, x.shape[1] // 4), squeezed) if squeezed else y
                y = y.conv(f"{name}.project", channels, 1).batch_norm(f"{name}.project.bn")
            x = y.add(x, f"{name}.add", in_place=True) if y.shape == x.shape and kind != "conv" else y
    return x


def _unit(
    x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1, groups: int = 1, act: str = "silu"
) -> Tensor:
    """Return a convolution, batch normalisation and activation *act* of *x*."""
    x = x.conv(name, channels, kernel, stride=stride, pad=kernel // 2, groups=groups).batch_norm(f"{name}.bn")
    return prelu(x, f"{name}.prelu") if act == "prelu" else x.apply(f"{name}.{act}", act, in_place=True)


def _head(x: Tensor, width: int, classes: int) -> Tensor:
    x = _unit(x, "head", width, 1).adaptive_avg_pool("pool").flatten()
    return x.dropout("dropout").linear("classifier", classes)


_FACE_LAST, _FACE_FEATURES = 512, 128


def mobile_face_net(x: Tensor, classes: int) -> Tensor:
    """Return the similarity of each face with *classes* identities."""
    x = _unit(x, "conv1", 64, 3, stride=2, act="prelu")
    x = _unit(x, "conv2", 64, 3, groups=64, act="prelu")
    x = _blocks(x, 0, [("inverted", *row, "prelu", "") for row in _SIZES["mobile-face-net"]])
    x = _unit(x, "conv3", _FACE_LAST, 1, act="prelu")
    x = x.conv("depthwise", _FACE_LAST, (x.shape[2], x.shape[3]), groups=_FACE_LAST).batch_norm("depthwise.bn")
    x = x.conv("features", _FACE_FEATURES, 1).batch_norm("features.bn").flatten()
    return x.linear("identities", classes, bias=False)
