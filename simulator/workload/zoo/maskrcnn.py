"""Detection of objects: Mask R-CNN and SSD300.

Mask R-CNN (He et al., arXiv 1703.06870) on a feature pyramid of ResNet-50, as torchvision trains it.  The stem and the
first stage are frozen, and batch normalisation is a product and a sum with constants.  Each image trains the maximum
number of sampled regions: 512 in the box head, a quarter of them in the mask head.  The selection of regions (sorting,
suppression, matching with ground truth) is left out, and RoIAlign counts as a copy of its output.

SSD300 (Liu et al., arXiv 1512.02325) on ResNet, as NVIDIA's DeepLearningExamples train it (PyTorch/Detection/SSD).
The backbone ends after its third stage, which keeps the size of 38 x 38.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.workload.operators import Copy
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError
from simulator.workload.zoo.resnet import resnet_stages

_WIDTH, _ANCHORS, _REGIONS, _MASKS = 256, 3, 512, 128


def mask_rcnn(b: NetworkBuilder, x: LayerOutput, classes: int) -> tuple[LayerOutput, ...]:
    """Return five outputs: objects and offsets of each anchor; classes, offsets and masks of each region.

    Raises SizeError unless the sides of *x* are multiples of 32 pixels.
    """
    if x.shape[2] % 32 or x.shape[3] % 32:
        raise SizeError(f"sides must be multiples of 32 pixels; got {x.shape[2]} x {x.shape[3]}")
    b.constant_norms = True
    stages = resnet_stages(b, x, 50, frozen=1)
    b.constant_norms = False
    levels = _pyramid(b, stages)
    objects, offsets = _anchors(b, [*levels, b.pool(levels[-1], "fpn.last", 1, stride=2)])
    batch = x.shape[0]
    regions = _cut(b, levels, "roi_boxes", batch * _REGIONS, 7)
    y = b.relu(b.linear(b.flatten(regions), "box.fc6", 1024), "box.relu6")
    y = b.relu(b.linear(y, "box.fc7", 1024), "box.relu7")
    found, moved = b.linear(y, "box.classes", classes), b.linear(y, "box.offsets", 4 * classes)
    y = _cut(b, levels, "roi_masks", batch * _MASKS, 14)
    for i in range(4):
        y = b.relu(b.conv(y, f"mask.{i}", _WIDTH, 3, pad=1, bias=True), f"mask.relu{i}")
    y = b.relu(b.up(y, "mask.up", _WIDTH, 2, 2), "mask.relu_up")
    return objects, offsets, found, moved, b.conv(y, "mask.classes", classes, 1, bias=True)


def _pyramid(b: NetworkBuilder, stages: Sequence[LayerOutput]) -> list[LayerOutput]:
    """Return one level per stage, largest first; each level but the smallest adds the upsampled next smaller one."""
    found: list[LayerOutput] = []
    above: LayerOutput | None = None
    for i in reversed(range(len(stages))):
        x = b.conv(stages[i], f"fpn.inner{i}", _WIDTH, 1, bias=True)
        if above is not None:
            larger = b.add_layer(f"fpn.larger{i}", Copy(x.elements), (above,), x.shape)
            x = b.add(x, larger, f"fpn.add{i}")
        above = x
        found.insert(0, b.conv(x, f"fpn.level{i}", _WIDTH, 3, pad=1, bias=True))
    return found


def _anchors(b: NetworkBuilder, levels: Sequence[LayerOutput]) -> tuple[LayerOutput, LayerOutput]:
    """Return one logit and four offsets of each anchor of all levels; the levels share their filters."""
    found: list[list[LayerOutput]] = [[], []]
    for i, level in enumerate(levels):
        x = b.relu(b.conv(level, f"rpn.conv.{i}", _WIDTH, 3, pad=1, bias=True, of="rpn.conv"), f"rpn.relu.{i}")
        found[0].append(b.conv(x, f"rpn.objects.{i}", _ANCHORS, 1, bias=True, of="rpn.objects"))
        found[1].append(b.conv(x, f"rpn.offsets.{i}", 4 * _ANCHORS, 1, bias=True, of="rpn.offsets"))
    joined = []
    for name, tensors, numbers in (("objects", found[0], 1), ("offsets", found[1], 4)):
        elements = sum(tensor.elements for tensor in tensors)
        shape = elements // numbers, numbers
        joined.append(b.add_layer(f"rpn.{name}.join", Copy(elements), tuple(tensors), shape))
    return joined[0], joined[1]


def _cut(b: NetworkBuilder, levels: Sequence[LayerOutput], name: str, count: int, side: int) -> LayerOutput:
    """Return *count* regions of *side* by *side* pixels, cut from *levels* (RoIAlign)."""
    shape = count, _WIDTH, side, side
    return b.add_layer(name, Copy(count * _WIDTH * side * side), tuple(levels), shape)


# For each extra level: inner channels, channels, stride.  Then for all levels: boxes per pixel.
_LEVELS = ((256, 512, 2), (256, 512, 2), (128, 256, 2), (128, 256, 1), (128, 256, 1))
_BOXES = (4, 6, 6, 6, 4, 4)


def ssd300(b: NetworkBuilder, x: LayerOutput, classes: int, *, depth: int) -> tuple[LayerOutput, LayerOutput]:
    """Return the class logits of each box, and its four offsets."""
    x = resnet_stages(b, x, depth, strides=(1, 2, 1))[-1]
    levels = [x]
    for i, (inner, channels, stride) in enumerate(_LEVELS):
        x = b.relu(b.batch_norm(b.conv(x, f"extra{i}.conv1", inner, 1), f"extra{i}.bn1"), f"extra{i}.relu1")
        x = b.conv(x, f"extra{i}.conv2", channels, 3, stride=stride, pad=1 if stride > 1 else 0)
        x = b.relu(b.batch_norm(x, f"extra{i}.bn2"), f"extra{i}.relu2")
        levels.append(x)
    return _heads(b, levels, "class", classes), _heads(b, levels, "box", 4)


def _heads(b: NetworkBuilder, levels: list[LayerOutput], name: str, numbers: int) -> LayerOutput:
    """Return *numbers* outputs for each box of all levels."""
    found = tuple(
        b.conv(x, f"{name}{i}", boxes * numbers, 3, pad=1, bias=True)
        for i, (x, boxes) in enumerate(zip(levels, _BOXES, strict=True))
    )
    elements = sum(x.elements for x in found)
    return b.add_layer(f"{name}.join", Copy(elements), found, (elements // numbers, numbers))
