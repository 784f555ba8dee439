"""Inception v3 (Szegedy et al., arXiv 1512.00567), as in torchvision, for 299x299 images."""

from __future__ import annotations

from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, Pair


def inception3(b: NetworkBuilder, x: LayerOutput, classes: int) -> tuple[LayerOutput, ...]:
    """Return the logits and, in training, the auxiliary classifier's logits."""
    x = _conv(b, x, "Conv2d_1a_3x3", 32, 3, stride=2)
    x = _conv(b, x, "Conv2d_2a_3x3", 32, 3)
    x = _conv(b, x, "Conv2d_2b_3x3", 64, 3, pad=1)
    x = b.pool(x, "maxpool1", 3, stride=2)
    x = _conv(b, x, "Conv2d_3b_1x1", 80, 1)
    x = _conv(b, x, "Conv2d_4a_3x3", 192, 3)
    x = b.pool(x, "maxpool2", 3, stride=2)
    for letter, pooled in zip("bcd", (32, 64, 64), strict=True):
        x = _block_a(b, x, f"Mixed_5{letter}", pooled)
    x = _block_b(b, x, "Mixed_6a")
    for letter, width in zip("bcde", (128, 160, 160, 192), strict=True):
        x = _block_c(b, x, f"Mixed_6{letter}", width)
    auxiliary = (_auxiliary(b, x, classes),) if b.training else ()
    x = _block_d(b, x, "Mixed_7a")
    for letter in "bc":
        x = _block_e(b, x, f"Mixed_7{letter}")
    x = b.dropout(b.adaptive_avg_pool(x, "avgpool"), "dropout")
    return b.linear(b.flatten(x), "fc", classes), *auxiliary


def _conv(
    b: NetworkBuilder, x: LayerOutput, name: str, channels: int, kernel: Pair, *, stride: int = 1, pad: Pair = 0
) -> LayerOutput:
    x = b.batch_norm(b.conv(x, f"{name}.conv", channels, kernel, stride=stride, pad=pad), f"{name}.bn")
    return b.relu(x, f"{name}.relu")


def _pooled(b: NetworkBuilder, x: LayerOutput, name: str, channels: int) -> LayerOutput:
    x = b.pool(x, f"{name}.avg_pool", 3, kind="avg", stride=1, pad=1)
    return _conv(b, x, f"{name}.branch_pool", channels, 1)


def _block_a(b: NetworkBuilder, x: LayerOutput, name: str, pooled: int) -> LayerOutput:
    one = _conv(b, x, f"{name}.branch1x1", 64, 1)
    five = _conv(b, _conv(b, x, f"{name}.branch5x5_1", 48, 1), f"{name}.branch5x5_2", 64, 5, pad=2)
    double = _double(b, x, f"{name}.branch3x3dbl", pad=1)
    return b.concat((one, five, double, _pooled(b, x, name, pooled)), f"{name}.cat")


def _block_b(b: NetworkBuilder, x: LayerOutput, name: str) -> LayerOutput:
    three = _conv(b, x, f"{name}.branch3x3", 384, 3, stride=2)
    double = _double(b, x, f"{name}.branch3x3dbl", stride=2)
    return b.concat((three, double, b.pool(x, f"{name}.max_pool", 3, stride=2)), f"{name}.cat")


def _double(b: NetworkBuilder, x: LayerOutput, name: str, **last: int) -> LayerOutput:
    x = _conv(b, _conv(b, x, f"{name}_1", 64, 1), f"{name}_2", 96, 3, pad=1)
    return _conv(b, x, f"{name}_3", 96, 3, **last)


def _sevens(
    b: NetworkBuilder, x: LayerOutput, name: str, steps: tuple[tuple[int, bool], ...], first: int = 1
) -> LayerOutput:
    """Return *x* after 1x7 (``True``) or 7x1 convolutions; *steps* gives channels and orientation of each."""
    for i, (channels, row) in enumerate(steps, first):
        kernel, pad = ((1, 7), (0, 3)) if row else ((7, 1), (3, 0))
        x = _conv(b, x, f"{name}_{i}", channels, kernel, pad=pad)
    return x


def _block_c(b: NetworkBuilder, x: LayerOutput, name: str, width: int) -> LayerOutput:
    one = _conv(b, x, f"{name}.branch1x1", 192, 1)
    y = _conv(b, x, f"{name}.branch7x7_1", width, 1)
    seven = _sevens(b, y, f"{name}.branch7x7", ((width, True), (192, False)), 2)
    y = _conv(b, x, f"{name}.branch7x7dbl_1", width, 1)
    steps = ((width, False), (width, True), (width, False), (192, True))
    double = _sevens(b, y, f"{name}.branch7x7dbl", steps, 2)
    return b.concat((one, seven, double, _pooled(b, x, name, 192)), f"{name}.cat")


def _block_d(b: NetworkBuilder, x: LayerOutput, name: str) -> LayerOutput:
    three = _conv(b, x, f"{name}.branch3x3_1", 192, 1)
    three = _conv(b, three, f"{name}.branch3x3_2", 320, 3, stride=2)
    y = _conv(b, x, f"{name}.branch7x7x3_1", 192, 1)
    y = _sevens(b, y, f"{name}.branch7x7x3", ((192, True), (192, False)), 2)
    y = _conv(b, y, f"{name}.branch7x7x3_4", 192, 3, stride=2)
    return b.concat((three, y, b.pool(x, f"{name}.max_pool", 3, stride=2)), f"{name}.cat")


def _block_e(b: NetworkBuilder, x: LayerOutput, name: str) -> LayerOutput:
    one = _conv(b, x, f"{name}.branch1x1", 320, 1)
    three = _fork(b, _conv(b, x, f"{name}.branch3x3_1", 384, 1), f"{name}.branch3x3_2")
    y = _conv(b, x, f"{name}.branch3x3dbl_1", 448, 1)
    y = _conv(b, y, f"{name}.branch3x3dbl_2", 384, 3, pad=1)
    double = _fork(b, y, f"{name}.branch3x3dbl_3")
    return b.concat((one, three, double, _pooled(b, x, name, 192)), f"{name}.cat")


def _fork(b: NetworkBuilder, x: LayerOutput, name: str) -> LayerOutput:
    row = _conv(b, x, f"{name}a", 384, (1, 3), pad=(0, 1))
    column = _conv(b, x, f"{name}b", 384, (3, 1), pad=(1, 0))
    return b.concat((row, column), f"{name}.cat")


def _auxiliary(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    x = b.pool(x, "AuxLogits.avg_pool", 5, kind="avg", stride=3)
    x = _conv(b, x, "AuxLogits.conv0", 128, 1)
    x = _conv(b, x, "AuxLogits.conv1", 768, 5)
    x = b.adaptive_avg_pool(x, "AuxLogits.avgpool")
    return b.linear(b.flatten(x), "AuxLogits.fc", classes)
