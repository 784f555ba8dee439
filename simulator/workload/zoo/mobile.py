"""Networks of depthwise convolutions: EfficientNets, GPUNets, and MobileFaceNet.

EfficientNet: Tan and Le, arXiv 1905.11946; EfficientNetV2: arXiv 2104.00298, both as torchvision builds them.
GPUNet: Wang et al., arXiv 2205.00841, by the configurations of NVIDIA's DeepLearningExamples for V100.
MobileFaceNet: Chen et al., arXiv 1804.07573, table 1, with InsightFace's identities.
"""

from __future__ import annotations

from math import ceil

from simulator.workload.zoo import stage_sizes
from simulator.workload.zoo.builder import Tensor
from simulator.workload.zoo.resnet import prelu, squeeze_excite

_STAGES = stage_sizes("efficientnet")  # each: expansion, side of the kernel, stride, channels, blocks
_LAST = 1280  # channels before the head, of the second generation


def efficientnet(x: Tensor, classes: int, variant: str) -> Tensor:
    """Return the logits of EfficientNet *variant*, ``b0`` to ``b7`` or ``v2-s`` to ``v2-l``."""
    if variant in _STAGES["second"]:
        sizes = _STAGES["second"][variant]
        fused, stages = sizes["fused"], sizes["stages"]
        stem, last = stages[0][3], _LAST
    else:
        width, depth = _STAGES["scales"][variant]
        fused, stem = 0, _channels(32 * width)
        stages = tuple((e, k, s, _channels(width * c), ceil(depth * n)) for e, k, s, c, n in _STAGES["first"])
        last = 4 * stages[-1][3]
    x = _unit(x, "stem", stem, 3, stride=2)
    for i, (expansion, kernel, first, channels, blocks) in enumerate(stages):
        for j in range(blocks):
            name, stride, entering = f"{i}.{j}", 1 if j else first, x.shape[1]
            if i < fused and expansion == 1:
                y = _unit(x, f"{name}.conv", channels, kernel, stride=stride)
            elif i < fused:
                y = _projected(_unit(x, f"{name}.expand", expansion * entering, kernel, stride=stride), name, channels)
            else:
                y = _unit(x, f"{name}.expand", expansion * entering, 1) if expansion > 1 else x
                y = _depthwise(y, name, kernel, stride)
                y = _projected(squeeze_excite(y, f"{name}.se", max(1, entering // 4), "silu"), name, channels)
            x = _added(x, y, name)
    return _head(x, last, classes)


def _channels(wanted: float) -> int:
    """Return the nearest multiple of 8 that is not more than a tenth below *wanted*."""
    found = max(8, int(wanted + 4) // 8 * 8)
    return found + 8 if found < 0.9 * wanted else found


def _unit(
    x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1, groups: int = 1, act: str = "silu"
) -> Tensor:
    """Return a convolution, batch normalisation and activation *act* of *x*."""
    x = x.conv(name, channels, kernel, stride=stride, pad=kernel // 2, groups=groups).batch_norm(f"{name}.bn")
    return prelu(x, f"{name}.prelu") if act == "prelu" else x.apply(f"{name}.{act}", act, in_place=True)


def _depthwise(x: Tensor, block: str, kernel: int, stride: int, act: str = "silu") -> Tensor:
    return _unit(x, f"{block}.depthwise", x.shape[1], kernel, stride=stride, groups=x.shape[1], act=act)


def _projected(x: Tensor, block: str, channels: int) -> Tensor:
    return x.conv(f"{block}.project", channels, 1).batch_norm(f"{block}.project.bn")


def _added(x: Tensor, y: Tensor, block: str) -> Tensor:
    return y.add(x, f"{block}.add", in_place=True) if y.shape == x.shape else y


def _head(x: Tensor, width: int, classes: int) -> Tensor:
    x = _unit(x, "head", width, 1).adaptive_avg_pool("pool").flatten()
    return x.dropout("dropout").linear("classifier", classes)


GpuNetStage = tuple[str, int, int, int, int, int, str, bool]
"""Kind, expansion, side of the kernel, stride, channels, blocks, activation, whether channels are weighted."""


def gpunet(x: Tensor, classes: int, stem: int, stages: tuple[GpuNetStage, ...]) -> Tensor:
    """Return the logits of a GPUNet of *stages*: ``conv``, ``fused`` or ``inverted`` blocks."""
    x = _unit(x, "stem", stem, 3, stride=2)
    for i, (kind, expansion, kernel, first, channels, blocks, act, squeezed) in enumerate(stages):
        for j in range(blocks):
            name, stride, entering = f"{i}.{j}", 1 if j else first, x.shape[1]
            if kind == "conv":
                x = _unit(x, f"{name}.conv", channels, kernel, stride=stride, act=act)
                continue
            if kind == "fused":
                y = _unit(x, f"{name}.expand", expansion * entering, kernel, stride=stride, act=act)
            else:
                y = _depthwise(_unit(x, f"{name}.expand", expansion * entering, 1, act=act), name, kernel, stride, act)
            y = squeeze_excite(y, f"{name}.se", entering // 4) if squeezed else y
            x = _added(x, _projected(y, name, channels), name)
    return _head(x, _LAST, classes)


_FACE_LAST, _FACE_FEATURES = 512, 128


def mobile_face_net(x: Tensor, classes: int) -> Tensor:
    """Return the similarity of each face with *classes* identities."""
    x = _unit(x, "conv1", 64, 3, stride=2, act="prelu")
    x = _unit(x, "conv2", 64, 3, groups=64, act="prelu")
    for i, (expansion, kernel, first, channels, blocks) in enumerate(stage_sizes("mobile-face-net")):
        for j in range(blocks):
            name = f"{i}.{j}"
            y = _unit(x, f"{name}.expand", expansion * x.shape[1], 1, act="prelu")
            y = _depthwise(y, name, kernel, 1 if j else first, "prelu")
            x = _added(x, _projected(y, name, channels), name)
    x = _unit(x, "conv3", _FACE_LAST, 1, act="prelu")
    x = x.conv("depthwise", _FACE_LAST, (x.shape[2], x.shape[3]), groups=_FACE_LAST).batch_norm("depthwise.bn")
    x = x.conv("features", _FACE_FEATURES, 1).batch_norm("features.bn").flatten()
    return x.linear("identities", classes, bias=False)
