"""Networks of depthwise convolutions: EfficientNets, GPUNets, and MobileFaceNet.

EfficientNet: Tan and Le, arXiv 1905.11946; EfficientNetV2: arXiv 2104.00298, both as torchvision builds them.
GPUNet: Wang et al., arXiv 2205.00841, by the configurations of NVIDIA's DeepLearningExamples for V100.
MobileFaceNet: Chen et al., arXiv 1804.07573, table 1, with InsightFace's identities.
"""

from __future__ import annotations

from math import ceil

from simulator.workload.network import Parameter
from simulator.workload.operators import Elementwise
from simulator.workload.zoo import stage_sizes
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder
from simulator.workload.zoo.resnet import squeeze_excite

_STAGES = stage_sizes("efficientnet")  # each: expansion, side of the kernel, stride, channels, blocks
_LAST = 1280  # channels before the head, of the second generation


def efficientnet(b: NetworkBuilder, x: LayerOutput, classes: int, variant: str) -> LayerOutput:
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
    x = _unit(b, x, "stem", stem, 3, stride=2)
    for i, (expansion, kernel, first, channels, blocks) in enumerate(stages):
        for j in range(blocks):
            stride = 1 if j else first
            block = _fused if i < fused else _inverted
            y = block(b, x, f"{i}.{j}", channels, expansion, kernel, stride)
            x = b.add(y, x, f"{i}.{j}.add", in_place=True) if y.shape == x.shape else y
    x = b.adaptive_avg_pool(_unit(b, x, "head", last, 1), "pool")
    return b.linear(b.dropout(b.flatten(x), "dropout"), "classifier", classes)


def _channels(wanted: float) -> int:
    """Return the nearest multiple of 8 that is not more than a tenth below *wanted*."""
    found = max(8, int(wanted + 4) // 8 * 8)
    return found + 8 if found < 0.9 * wanted else found


def _unit(
    b: NetworkBuilder,
    x: LayerOutput,
    name: str,
    channels: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    act: str = "silu",
) -> LayerOutput:
    """Return a convolution, batch normalisation and activation *act* of *x*."""
    x = b.conv(x, name, channels, kernel, stride=stride, pad=kernel // 2, groups=groups)
    return b.elementwise(f"{name}.{act}", act, b.batch_norm(x, f"{name}.bn"), in_place=True)


def _inverted(
    b: NetworkBuilder, x: LayerOutput, name: str, channels: int, expansion: int, kernel: int, stride: int
) -> LayerOutput:
    squeezed = max(1, x.shape[1] // 4)
    if expansion > 1:
        x = _unit(b, x, f"{name}.expand", expansion * x.shape[1], 1)
    x = _unit(b, x, f"{name}.depthwise", x.shape[1], kernel, stride=stride, groups=x.shape[1])
    x = squeeze_excite(b, x, f"{name}.se", squeezed, "silu")
    return b.batch_norm(b.conv(x, f"{name}.project", channels, 1), f"{name}.project.bn")


def _fused(
    b: NetworkBuilder, x: LayerOutput, name: str, channels: int, expansion: int, kernel: int, stride: int
) -> LayerOutput:
    if expansion == 1:
        return _unit(b, x, f"{name}.conv", channels, kernel, stride=stride)
    x = _unit(b, x, f"{name}.expand", expansion * x.shape[1], kernel, stride=stride)
    return b.batch_norm(b.conv(x, f"{name}.project", channels, 1), f"{name}.project.bn")


GpuNetStage = tuple[str, int, int, int, int, int, str, bool]
"""Kind, expansion, side of the kernel, stride, channels, blocks, activation, whether channels are weighted."""


def gpunet(b: NetworkBuilder, x: LayerOutput, classes: int, stem: int, stages: tuple[GpuNetStage, ...]) -> LayerOutput:
    """Return the logits of a GPUNet of *stages*: ``conv``, ``fused`` or ``inverted`` blocks."""
    x = _unit(b, x, "stem", stem, 3, stride=2)
    for i, (kind, expansion, kernel, first, channels, blocks, act, squeezed) in enumerate(stages):
        for j in range(blocks):
            name, stride, y, entering = f"{i}.{j}", 1 if j else first, x, x.shape[1]
            if kind == "conv":
                x = _unit(b, x, f"{name}.conv", channels, kernel, stride=stride, act=act)
                continue
            wide = expansion * entering
            if kind == "fused":
                y = _unit(b, y, f"{name}.expand", wide, kernel, stride=stride, act=act)
            else:
                y = _unit(b, y, f"{name}.expand", wide, 1, act=act)
                y = _unit(b, y, f"{name}.depthwise", wide, kernel, stride=stride, groups=wide, act=act)
            y = squeeze_excite(b, y, f"{name}.se", entering // 4) if squeezed else y
            y = b.batch_norm(b.conv(y, f"{name}.project", channels, 1), f"{name}.project.bn")
            x = b.add(y, x, f"{name}.add", in_place=True) if y.shape == x.shape else y
    x = b.adaptive_avg_pool(_unit(b, x, "head", _LAST, 1), "pool")
    return b.linear(b.dropout(b.flatten(x), "dropout"), "classifier", classes)


_FACE_LAST, _FACE_FEATURES = 512, 128


def mobile_face_net(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the similarity of each face with *classes* identities."""
    x = _face_unit(b, x, "conv1", 64, 3, stride=2)
    x = _face_unit(b, x, "conv2", 64, 3, groups=64)
    for i, (expansion, kernel, first, channels, blocks) in enumerate(stage_sizes("mobile-face-net")):
        for j in range(blocks):
            name, stride = f"{i}.{j}", 1 if j else first
            y = _face_unit(b, x, f"{name}.expand", expansion * x.shape[1], 1)
            y = _face_unit(b, y, f"{name}.depthwise", y.shape[1], kernel, stride=stride, groups=y.shape[1])
            y = b.batch_norm(b.conv(y, f"{name}.project", channels, 1), f"{name}.project.bn")
            x = b.add(y, x, f"{name}.add", in_place=True) if y.shape == x.shape else y
    x = _face_unit(b, x, "conv3", _FACE_LAST, 1)
    whole = x.shape[2], x.shape[3]
    x = b.batch_norm(b.conv(x, "depthwise", _FACE_LAST, whole, groups=_FACE_LAST), "depthwise.bn")
    x = b.flatten(b.batch_norm(b.conv(x, "features", _FACE_FEATURES, 1), "features.bn"))
    return b.linear(x, "identities", classes, bias=False)


def _face_unit(
    b: NetworkBuilder, x: LayerOutput, name: str, channels: int, kernel: int, *, stride: int = 1, groups: int = 1
) -> LayerOutput:
    """Return a convolution, batch normalisation and PReLU of *x*."""
    x = b.batch_norm(b.conv(x, name, channels, kernel, stride=stride, pad=kernel // 2, groups=groups), f"{name}.bn")
    slope = Parameter(f"{name}.prelu.weight", channels)
    return b.add_layer(f"{name}.prelu", Elementwise("prelu", x.elements, summed=1), (x,), x.shape, (slope,))
