"""SSD300 (Liu et al., arXiv 1512.02325) on ResNet, as NVIDIA's DeepLearningExamples train it (PyTorch/Detection/SSD).

The backbone ends after its third stage, which keeps the size of 38 x 38.
"""

from __future__ import annotations

from simulator.workload.operators import Copy
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder
from simulator.workload.zoo.resnet import resnet_stages

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
