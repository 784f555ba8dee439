"""AlexNet and related networks, as frameworks and benchmarks of the time defined them.

``alexnet``: torchvision (Krizhevsky, arXiv 1404.5997, one column).  ``alexnet-owt``: the same column in
convnet-benchmarks' version, without dropout.  ``overfeat-fast``: OverFeat's fast model (Sermanet et al., arXiv
1312.6229, table 1) in convnet-benchmarks' version.  ``vgg``: Simonyan and Zisserman, arXiv 1409.1556, table 1
(A, B, D, E), as in torchvision.
"""

from __future__ import annotations

from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder

_WIDTHS = (64, 192, 384, 256, 256)


def alexnet(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of torchvision's AlexNet."""
    x = _column(b, x)
    x = b.adaptive_avg_pool(x, "avgpool", 6)
    x = b.dropout(b.flatten(x), "classifier.0")
    x = b.relu(b.linear(x, "classifier.1", 4096), "classifier.2")
    x = b.dropout(x, "classifier.3")
    x = b.relu(b.linear(x, "classifier.4", 4096), "classifier.5")
    return b.linear(x, "classifier.6", classes)


def alexnet_owt(
    b: NetworkBuilder,
    x: LayerOutput,
    classes: int,
    widths: tuple[int, ...] = _WIDTHS,
    dense: tuple[int, ...] = (4096, 4096),
    pad: int = 2,
    pool: int = 3,
) -> LayerOutput:
    """Return the logits of convnet-benchmarks' AlexNet or, with its sizes, OverFeat (fast)."""
    x = b.flatten(_column(b, x, widths, pad, pool))
    for i, width in enumerate(dense):
        x = b.relu(b.linear(x, f"classifier.{2 * i}", width), f"classifier.{2 * i + 1}")
    return b.linear(x, f"classifier.{2 * len(dense)}", classes)


def _column(
    b: NetworkBuilder, x: LayerOutput, widths: tuple[int, ...] = _WIDTHS, pad: int = 2, pool: int = 3
) -> LayerOutput:
    """Return the features after five convolutions, the first two padded by *pad*, and three pools."""
    x = b.relu(b.conv(x, "features.0", widths[0], 11, stride=4, pad=pad, bias=True), "features.1")
    x = b.pool(x, "features.2", pool, stride=2)
    x = b.relu(b.conv(x, "features.3", widths[1], 5, pad=pad, bias=True), "features.4")
    x = b.pool(x, "features.5", pool, stride=2)
    for i, channels in zip((6, 8, 10), widths[2:], strict=True):
        x = b.relu(b.conv(x, f"features.{i}", channels, 3, pad=1, bias=True), f"features.{i + 1}")
    return b.pool(x, "features.12", pool, stride=2)


# Convolutions of 64, 128, 256, 512 and 512 channels before each pool.
VGG_BLOCKS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(b: NetworkBuilder, x: LayerOutput, classes: int, depth: int) -> LayerOutput:
    """Return the logits of VGG with *depth* weighted layers."""
    i = 0
    for convolutions, channels in zip(VGG_BLOCKS[depth], (64, 128, 256, 512, 512), strict=True):
        for _ in range(convolutions):
            x = b.conv(x, f"features.{i}", channels, 3, pad=1, bias=True)
            x = b.relu(x, f"features.{i + 1}")
            i += 2
        x = b.pool(x, f"features.{i}", 2)
        i += 1
    x = b.flatten(b.adaptive_avg_pool(x, "avgpool", 7))
    for j in (0, 3):
        x = b.relu(b.linear(x, f"classifier.{j}", 4096), f"classifier.{j + 1}")
        x = b.dropout(x, f"classifier.{j + 2}")
    return b.linear(x, "classifier.6", classes)
