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

from simulator.workload.zoo.builder import SizeError, Tensor
from simulator.workload.zoo.resnet import resnet_stages

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
