"""Residual and densely connected networks: for ImageNet as in torchvision, for small images as in their papers.

He et al., arXiv 1512.03385: table 1 (ImageNet), section 4.2 (CIFAR-10).  The stride of a bottleneck is at its 3x3
convolution, as in torchvision and unlike the paper.  ResNeXt: Xie et al., arXiv 1611.05431.
Squeeze and excitation: Hu et al., arXiv 1709.01507, a sixteenth of the channels.  IResNet-100: Deng et al., arXiv
1801.07698, section 2.3, the embedding of faces with the table of identities that it is trained with.  ResNet-200: the
block counts of He et al., arXiv 1603.05027, with the order of operations of ResNet-152, as in fb.resnet.torch.
DenseNet: Huang et al., arXiv 1608.06993, table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from simulator.workload.network import Parameter
from simulator.workload.operators import Elementwise
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder

RESNET_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
_FIRST_BOTTLENECK = 50
_STRIDES = (1, 2, 2, 2)


def resnet(
    b: NetworkBuilder,
    x: LayerOutput,
    classes: int,
    depth: int,
    *,
    groups: int = 1,
    group_width: int = 64,
    squeezed: bool = False,
) -> LayerOutput:
    """Return the logits of ResNet or, with *groups*, ResNeXt; *squeezed*: channels are weighted by their means."""
    stages = resnet_stages(b, x, depth, groups=groups, group_width=group_width, squeezed=squeezed)
    return _head(b, stages[-1], classes)


def resnet_stages(
    b: NetworkBuilder,
    x: LayerOutput,
    depth: int,
    *,
    strides: Sequence[int] = _STRIDES,
    groups: int = 1,
    group_width: int = 64,
    frozen: int = 0,
    squeezed: bool = False,
) -> list[LayerOutput]:
    """Return the stages' results, one for each of *strides*; the first *frozen*, and then the stem, are not trained."""
    b.frozen = frozen > 0
    x = b.conv(x, "conv1", 64, 7, stride=2, pad=3)
    x = b.relu(b.batch_norm(x, "bn1"), "relu")
    x = b.pool(x, "maxpool", 3, stride=2, pad=1)

    def bottleneck(b: NetworkBuilder, x: LayerOutput, name: str, planes: int, stride: int) -> LayerOutput:
        return _bottleneck(b, x, name, planes, stride, planes * group_width // 64 * groups, groups, squeezed)

    block = _basic if depth < _FIRST_BOTTLENECK else bottleneck
    return _stages(b, x, 64, RESNET_BLOCKS[depth][: len(strides)], block, strides, frozen)


def resnet_small_image(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of ResNet-18 for small images: a 3x3 stem that keeps the size, no max-pool."""
    x = b.relu(b.batch_norm(b.conv(x, "conv1", 64, 3, pad=1), "bn1"), "relu")
    return _head(b, _stages(b, x, 64, RESNET_BLOCKS[18], _basic)[-1], classes)


def resnet_cifar(b: NetworkBuilder, x: LayerOutput, classes: int, depth: int) -> LayerOutput:
    """Return the logits of the ResNet for CIFAR-10, with 6n + 2 layers of 16, 32 and 64 channels.

    Its shortcuts have no parameters: where sizes change, they take every other pixel and pad the channels with zeros
    (the paper's option A).
    """
    x = b.relu(b.batch_norm(b.conv(x, "conv1", 16, 3, pad=1), "bn1"), "relu")
    return _head(b, _stages(b, x, 16, 3 * ((depth - 2) // 6,), partial(_basic, padded=True))[-1], classes)


def _stages(
    b: NetworkBuilder,
    x: LayerOutput,
    planes: int,
    blocks: Sequence[int],
    block: Callable[..., LayerOutput],
    strides: Sequence[int] = _STRIDES,
    frozen: int = 0,
) -> list[LayerOutput]:
    """Return the results of stages with *blocks* blocks each; each stage has twice the planes of the previous one."""
    found = []
    for stage, n_blocks in enumerate(blocks):
        b.frozen = stage < frozen
        for i in range(n_blocks):
            x = block(b, x, f"layer{stage + 1}.{i}", planes << stage, 1 if i else strides[stage])
        found.append(x)
    b.frozen = False
    return found


def _head(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    return b.linear(b.flatten(b.adaptive_avg_pool(x, "avgpool")), "fc", classes)


def _basic(
    b: NetworkBuilder, x: LayerOutput, name: str, planes: int, stride: int, *, padded: bool = False
) -> LayerOutput:
    y = b.conv(x, f"{name}.conv1", planes, 3, stride=stride, pad=1)
    y = b.relu(b.batch_norm(y, f"{name}.bn1"), f"{name}.relu1")
    y = b.batch_norm(b.conv(y, f"{name}.conv2", planes, 3, pad=1), f"{name}.bn2")
    if padded and x.shape != y.shape:
        x = b.copy(x, f"{name}.pad", y.shape)
    return _join(b, x, y, name, stride)


def _bottleneck(
    b: NetworkBuilder, x: LayerOutput, name: str, planes: int, stride: int, width: int, groups: int, squeezed: bool
) -> LayerOutput:
    y = b.relu(b.batch_norm(b.conv(x, f"{name}.conv1", width, 1), f"{name}.bn1"), f"{name}.relu1")
    y = b.conv(y, f"{name}.conv2", width, 3, stride=stride, pad=1, groups=groups)
    y = b.relu(b.batch_norm(y, f"{name}.bn2"), f"{name}.relu2")
    y = b.batch_norm(b.conv(y, f"{name}.conv3", 4 * planes, 1), f"{name}.bn3")
    y = squeeze_excite(b, y, f"{name}.se", y.shape[1] // 16) if squeezed else y
    return _join(b, x, y, name, stride)


def _join(b: NetworkBuilder, x: LayerOutput, y: LayerOutput, name: str, stride: int) -> LayerOutput:
    """Add the shortcut, with a 1x1 convolution if the shapes differ."""
    if x.shape != y.shape:
        x = b.conv(x, f"{name}.downsample.0", y.shape[1], 1, stride=stride)
        x = b.batch_norm(x, f"{name}.downsample.1")
    return b.relu(b.add(y, x, f"{name}.add", in_place=True), f"{name}.relu")


def squeeze_excite(b: NetworkBuilder, x: LayerOutput, name: str, width: int, function: str = "relu") -> LayerOutput:
    """Return *x* with channels weighted by a squeeze-and-excitation of *width* (Hu et al., arXiv 1709.01507)."""
    y = b.flatten(b.adaptive_avg_pool(x, f"{name}.means"))
    y = b.elementwise(f"{name}.{function}", function, b.linear(y, f"{name}.squeeze", width))
    weights = b.elementwise(f"{name}.sigmoid", "sigmoid", b.linear(y, f"{name}.expand", x.shape[1]))
    return b.add_layer(f"{name}.scale", Elementwise("mul", x.elements, 2, 1), (x, weights), x.shape)


_FACE_BLOCKS, _FACE_WIDTHS, _EMBEDDING = (3, 13, 30, 3), (64, 128, 256, 512), 512


def iresnet100(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the similarity of each face with *classes* identities (InsightFace; arXiv 1801.07698)."""
    x = _prelu(b, b.batch_norm(b.conv(x, "conv1", 64, 3, pad=1), "bn1"), "prelu")
    for stage, (blocks, width) in enumerate(zip(_FACE_BLOCKS, _FACE_WIDTHS, strict=True), 1):
        for i in range(blocks):
            name, stride = f"layer{stage}.{i}", 1 if i else 2
            y = b.conv(b.batch_norm(x, f"{name}.bn1"), f"{name}.conv1", width, 3, pad=1)
            y = _prelu(b, b.batch_norm(y, f"{name}.bn2"), f"{name}.prelu")
            y = b.batch_norm(b.conv(y, f"{name}.conv2", width, 3, stride=stride, pad=1), f"{name}.bn3")
            if x.shape != y.shape:
                x = b.batch_norm(b.conv(x, f"{name}.downsample.0", width, 1, stride=stride), f"{name}.downsample.1")
            x = b.add(y, x, f"{name}.add", in_place=True)
    x = b.flatten(b.dropout(b.batch_norm(x, "bn2"), "dropout"))
    x = b.layer_norm(b.linear(x, "fc", _EMBEDDING), "features")
    return b.linear(x, "identities", classes, bias=False)


def _prelu(b: NetworkBuilder, x: LayerOutput, name: str) -> LayerOutput:
    slope = Parameter(f"{name}.weight", x.shape[1])
    return b.add_layer(name, Elementwise("prelu", x.elements, summed=1), (x,), x.shape, (slope,))


# Growth rate; layers of each block; channels of the stem.
DENSENET_SIZES = {
    121: (32, (6, 12, 24, 16), 64),
    161: (48, (6, 12, 36, 24), 96),
    169: (32, (6, 12, 32, 32), 64),
    201: (32, (6, 12, 48, 32), 64),
}
_BOTTLENECK = 4  # width in units of the growth rate


def densenet(b: NetworkBuilder, x: LayerOutput, classes: int, depth: int) -> LayerOutput:
    """Return the logits of DenseNet with *depth* weighted layers."""
    growth, blocks, channels = DENSENET_SIZES[depth]
    x = b.conv(x, "features.conv0", channels, 7, stride=2, pad=3)
    x = b.relu(b.batch_norm(x, "features.norm0"), "features.relu0")
    x = b.pool(x, "features.pool0", 3, stride=2, pad=1)
    for i, layers in enumerate(blocks, 1):
        if i > 1:
            name = f"features.transition{i - 1}"
            x = b.relu(b.batch_norm(x, f"{name}.norm"), f"{name}.relu")
            x = b.conv(x, f"{name}.conv", x.shape[1] // 2, 1)
            x = b.pool(x, f"{name}.pool", 2, kind="avg")
        features = [x]
        for j in range(1, layers + 1):
            features.append(_layer(b, features, f"features.denseblock{i}.denselayer{j}", growth))
        x = b.concat(tuple(features), f"features.denseblock{i}.cat")
    x = b.relu(b.batch_norm(x, "features.norm5"), "relu")
    x = b.flatten(b.adaptive_avg_pool(x, "avgpool"))
    return b.linear(x, "classifier", classes)


def _layer(b: NetworkBuilder, features: list[LayerOutput], name: str, growth: int) -> LayerOutput:
    """Return the layer's result; it concatenates all earlier features of its block (a copy even of a single one)."""
    x = b.concat(tuple(features), f"{name}.cat")
    x = b.relu(b.batch_norm(x, f"{name}.norm1"), f"{name}.relu1")
    x = b.conv(x, f"{name}.conv1", _BOTTLENECK * growth, 1)
    x = b.relu(b.batch_norm(x, f"{name}.norm2"), f"{name}.relu2")
    return b.conv(x, f"{name}.conv2", growth, 3, pad=1)
