"""Networks of depthwise convolutions: EfficientNets, GPUNets, and MobileFaceNet.

EfficientNet: Tan and Le, arXiv 1905.11946; EfficientNetV2: arXiv 2104.00298, both as torchvision builds them.
GPUNet: Wang et al., arXiv 2205.00841, by the configurations of NVIDIA's DeepLearningExamples for V100.
MobileFaceNet: Chen et al., arXiv 1804.07573, table 1, with InsightFace's identities.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from simulator.workload.zoo import stage_sizes
from simulator.workload.zoo.builder import Tensor
from simulator.workload.zoo.resnet import prelu, squeeze_excite

_STAGES = stage_sizes("efficientnet")  # each: expansion, side of the kernel, stride, channels, blocks
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
    x = _blocks(x, 0, [("inverted", *row, "prelu", "") for row in stage_sizes("mobile-face-net")])
    x = _unit(x, "conv3", _FACE_LAST, 1, act="prelu")
    x = x.conv("depthwise", _FACE_LAST, (x.shape[2], x.shape[3]), groups=_FACE_LAST).batch_norm("depthwise.bn")
    x = x.conv("features", _FACE_FEATURES, 1).batch_norm("features.bn").flatten()
    return x.linear("identities", classes, bias=False)
