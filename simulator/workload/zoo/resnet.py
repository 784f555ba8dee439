"""Residual and densely connected networks, and detection of objects (docs/decisions/zoo.md)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from simulator.records import own_data
from simulator.workload.operators import Elementwise
from simulator.workload.zoo.builder import SizeError, Tensor, weights

_SIZES = own_data("simulator.workload.zoo", "stages.json")
_FIRST_BOTTLENECK = 50
_STRIDES = (1, 2, 2, 2)
Block = Callable[[Tensor, str, int, int], Tensor]
"""Of the input, a name, the number of planes, and a stride."""


def resnet(x: Tensor, classes: int, depth: int, **kind: Any) -> Tensor:
    """Return the logits of the ResNet of *depth* layers; its *kind* is as in :func:`resnet_stages`."""
    return _head(resnet_stages(x, depth, **kind)[-1], classes)


def resnet_stages(
    x: Tensor,
    depth: int,
    *,
    strides: Sequence[int] = _STRIDES,
    groups: int = 1,
    group_width: int = 64,
    frozen: int = 0,
    squeezed: bool = False,
) -> list[Tensor]:
    """Return the stages' results, one for each of *strides*; the first *frozen*, and then the stem, are not trained.

    With *groups* it is a ResNeXt; *squeezed*: channels are weighted by their means.
    """
    x.net.frozen = frozen > 0
    x = x.conv("conv1", 64, 7, stride=2, pad=3).batch_norm("bn1").relu("relu").pool("maxpool", 3, stride=2, pad=1)

    def bottleneck(x: Tensor, name: str, planes: int, stride: int) -> Tensor:
        width = planes * group_width // 64 * groups
        y = x.conv(f"{name}.conv1", width, 1).batch_norm(f"{name}.bn1").relu(f"{name}.relu1")
        y = y.conv(f"{name}.conv2", width, 3, stride=stride, pad=1, groups=groups)
        y = y.batch_norm(f"{name}.bn2").relu(f"{name}.relu2")
        y = y.conv(f"{name}.conv3", 4 * planes, 1).batch_norm(f"{name}.bn3")
        y = squeeze_excite(y, f"{name}.se", y.shape[1] // 16) if squeezed else y
        return _added(x, y, name, stride).relu(f"{name}.relu")

    block = _basic if depth < _FIRST_BOTTLENECK else bottleneck
    return _stages(x, 64, _SIZES["resnet"][str(depth)][: len(strides)], block, strides, frozen)


def resnet_small_image(
    x: Tensor, classes: int, planes: int = 64, blocks: tuple[int, ...] = (2, 2, 2, 2), *, padded: bool = False
) -> Tensor:
    """Return the logits of ResNet-18, or another, for small images: a 3x3 stem that keeps the size, no max-pool.

    *padded*: as for CIFAR-10, with 6n + 2 layers of 16, 32 and 64 channels, shortcuts have no parameters: where sizes
    change, they take every other pixel and pad the channels with zeros (the paper's option A).
    """
    x = x.conv("conv1", planes, 3, pad=1).batch_norm("bn1").relu("relu")
    return _head(_stages(x, planes, blocks, partial(_basic, padded=padded))[-1], classes)


def _stages(
    x: Tensor, planes: int, blocks: Sequence[int], block: Block, strides: Sequence[int] = _STRIDES, frozen: int = 0
) -> list[Tensor]:
    """Return the results of stages with *blocks* blocks each; each stage has twice the planes of the previous one."""
    found = []
    for stage, n_blocks in enumerate(blocks):
        x.net.frozen = stage < frozen
        for i in range(n_blocks):
            x = block(x, f"layer{stage + 1}.{i}", planes << stage, 1 if i else strides[stage])
        found.append(x)
    x.net.frozen = False
    return found


def _head(x: Tensor, classes: int, name: str = "fc") -> Tensor:
    return x.adaptive_avg_pool("avgpool").flatten().linear(name, classes)


def _basic(x: Tensor, name: str, planes: int, stride: int, *, padded: bool = False) -> Tensor:
    y = x.conv(f"{name}.conv1", planes, 3, stride=stride, pad=1).batch_norm(f"{name}.bn1").relu(f"{name}.relu1")
    y = y.conv(f"{name}.conv2", planes, 3, pad=1).batch_norm(f"{name}.bn2")
    x = x.copy(f"{name}.pad", *y.shape) if padded and x.shape != y.shape else x
    return _added(x, y, name, stride).relu(f"{name}.relu")


def _added(x: Tensor, y: Tensor, name: str, stride: int) -> Tensor:
    """Add the shortcut, with a 1x1 convolution if the shapes differ."""
    if x.shape != y.shape:
        x = x.conv(f"{name}.downsample.0", y.shape[1], 1, stride=stride).batch_norm(f"{name}.downsample.1")
    return y.add(x, f"{name}.add", in_place=True)


def squeeze_excite(x: Tensor, name: str, width: int, function: str = "relu") -> Tensor:
    """Return *x* with channels weighted by a squeeze-and-excitation of *width* (Hu et al., arXiv 1709.01507)."""
    y = x.adaptive_avg_pool(f"{name}.means").flatten().linear(f"{name}.squeeze", width)
    shares = y.apply(f"{name}.{function}", function).linear(f"{name}.expand", x.shape[1])
    shares = shares.apply(f"{name}.sigmoid", "sigmoid")
    return x.layer(f"{name}.scale", Elementwise("mul", x.elements, 2, 1), None, (), shares)


_FACE_BLOCKS, _FACE_WIDTHS, _EMBEDDING = (3, 13, 30, 3), (64, 128, 256, 512), 512


def iresnet100(x: Tensor, classes: int) -> Tensor:
    """Return the similarity of each face with *classes* identities (InsightFace; arXiv 1801.07698)."""
    x = prelu(x.conv("conv1", 64, 3, pad=1).batch_norm("bn1"), "prelu")
    for stage, (blocks, width) in enumerate(zip(_FACE_BLOCKS, _FACE_WIDTHS, strict=True), 1):
        for i in range(blocks):
            name, stride = f"layer{stage}.{i}", 1 if i else 2
            y = x.batch_norm(f"{name}.bn1").conv(f"{name}.conv1", width, 3, pad=1).batch_norm(f"{name}.bn2")
            y = prelu(y, f"{name}.prelu").conv(f"{name}.conv2", width, 3, stride=stride, pad=1)
            x = _added(x, y.batch_norm(f"{name}.bn3"), name, stride)
    x = x.batch_norm("bn2").dropout("dropout").flatten().linear("fc", _EMBEDDING).layer_norm("features")
    return x.linear("identities", classes, bias=False)


def prelu(x: Tensor, name: str) -> Tensor:
    """Return the ReLU of *x* with a learned slope for each channel."""
    slope = weights(name, weight=x.shape[1])
    return x.layer(name, Elementwise("prelu", x.elements, summed=1), None, slope)


_BOTTLENECK = 4  # width in units of the growth rate


def densenet(x: Tensor, classes: int, depth: int) -> Tensor:
    """Return the logits of DenseNet with *depth* weighted layers.

    Each layer concatenates all earlier features of its block (a copy even of a single one).
    """
    growth, blocks, channels = _SIZES["densenet"][str(depth)]  # growth rate, layers of each block, the stem's channels
    x = x.conv("features.conv0", channels, 7, stride=2, pad=3).batch_norm("features.norm0").relu("features.relu0")
    x = x.pool("features.pool0", 3, stride=2, pad=1)
    for i, layers in enumerate(blocks, 1):
        if i > 1:
            name = f"features.transition{i - 1}"
            x = x.batch_norm(f"{name}.norm").relu(f"{name}.relu").conv(f"{name}.conv", x.shape[1] // 2, 1)
            x = x.pool(f"{name}.pool", 2, kind="avg")
        features = [x]
        for j in range(1, layers + 1):
            name = f"features.denseblock{i}.denselayer{j}"
            y = x.concat(f"{name}.cat", *features[1:]).batch_norm(f"{name}.norm1").relu(f"{name}.relu1")
            y = y.conv(f"{name}.conv1", _BOTTLENECK * growth, 1).batch_norm(f"{name}.norm2").relu(f"{name}.relu2")
            features.append(y.conv(f"{name}.conv2", growth, 3, pad=1))
        x = x.concat(f"features.denseblock{i}.cat", *features[1:])
    return _head(x.batch_norm("features.norm5").relu("relu"), classes, "classifier")


# -- detection of objects ---------------------------------------------------------------


_WIDTH, _ANCHORS, _REGIONS, _MASKS = 256, 3, 512, 128


def mask_rcnn(x: Tensor, classes: int) -> tuple[Tensor, ...]:
    """Return five outputs: objects and offsets of each anchor; classes, offsets and masks of each region.

    Raises SizeError unless the sides of *x* are multiples of 32 pixels.
    """
    if x.shape[2] % 32 or x.shape[3] % 32:
        raise SizeError(f"sides must be multiples of 32 pixels; got {x.shape[2]} x {x.shape[3]}")
    x.net.constant_norms = True
    stages = resnet_stages(x, 50, frozen=1)
    x.net.constant_norms = False
    levels = _pyramid(stages)
    objects, offsets = _anchors([*levels, levels[-1].pool("fpn.last", 1, stride=2)])

    def cut(name: str, count: int, side: int) -> Tensor:
        """Return *count* regions of each image, of *side* by *side* pixels, cut from all levels (RoIAlign)."""
        return levels[0].gather(name, (x.shape[0] * count, _WIDTH, side, side), *levels[1:])

    y = cut("roi_boxes", _REGIONS, 7).flatten().linear("box.fc6", 1024).relu("box.relu6")
    y = y.linear("box.fc7", 1024).relu("box.relu7")
    found, moved = y.linear("box.classes", classes), y.linear("box.offsets", 4 * classes)
    y = cut("roi_masks", _MASKS, 14)
    for i in range(4):
        y = y.conv(f"mask.{i}", _WIDTH, 3, pad=1, bias=True).relu(f"mask.relu{i}")
    y = y.up("mask.up", _WIDTH, 2, 2).relu("mask.relu_up")
    return objects, offsets, found, moved, y.conv("mask.classes", classes, 1, bias=True)


def _pyramid(stages: Sequence[Tensor]) -> list[Tensor]:
    """Return one level per stage, largest first; each level but the smallest adds the upsampled next smaller one."""
    found: list[Tensor] = []
    above: Tensor | None = None
    for i in reversed(range(len(stages))):
        x = stages[i].conv(f"fpn.inner{i}", _WIDTH, 1, bias=True)
        if above is not None:
            x = x.add(above.gather(f"fpn.larger{i}", x.shape), f"fpn.add{i}")
        above = x
        found.insert(0, x.conv(f"fpn.level{i}", _WIDTH, 3, pad=1, bias=True))
    return found


def _anchors(levels: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return one logit and four offsets of each anchor of all levels; the levels share their filters."""
    objects: list[Tensor] = []
    offsets: list[Tensor] = []
    for i, level in enumerate(levels):
        x = level.conv(f"rpn.conv.{i}", _WIDTH, 3, pad=1, bias=True, of="rpn.conv").relu(f"rpn.relu.{i}")
        objects.append(x.conv(f"rpn.objects.{i}", _ANCHORS, 1, bias=True, of="rpn.objects"))
        offsets.append(x.conv(f"rpn.offsets.{i}", 4 * _ANCHORS, 1, bias=True, of="rpn.offsets"))
    return _joined(objects, "rpn.objects.join", 1), _joined(offsets, "rpn.offsets.join", 4)


def _joined(found: Sequence[Tensor], name: str, numbers: int) -> Tensor:
    """Return *found* as one tensor, with *numbers* for each box or anchor."""
    return found[0].gather(name, (sum(x.elements for x in found) // numbers, numbers), *found[1:])


# For each extra level: inner channels, channels, stride.  Then for all levels: boxes per pixel.
_LEVELS = ((256, 512, 2), (256, 512, 2), (128, 256, 2), (128, 256, 1), (128, 256, 1))
_BOXES = (4, 6, 6, 6, 4, 4)


def ssd300(x: Tensor, classes: int, *, depth: int) -> tuple[Tensor, Tensor]:
    """Return the class logits of each box, and its four offsets."""
    x = resnet_stages(x, depth, strides=(1, 2, 1))[-1]
    levels = [x]
    for i, (inner, channels, stride) in enumerate(_LEVELS):
        x = x.conv(f"extra{i}.conv1", inner, 1).batch_norm(f"extra{i}.bn1").relu(f"extra{i}.relu1")
        x = x.conv(f"extra{i}.conv2", channels, 3, stride=stride, pad=1 if stride > 1 else 0)
        x = x.batch_norm(f"extra{i}.bn2").relu(f"extra{i}.relu2")
        levels.append(x)

    def heads(name: str, numbers: int) -> Tensor:
        each = enumerate(zip(levels, _BOXES, strict=True))
        found = [x.conv(f"{name}{i}", boxes * numbers, 3, pad=1, bias=True) for i, (x, boxes) in each]
        return _joined(found, f"{name}.join", numbers)

    return heads("class", classes), heads("box", 4)
