"""AlexNet and related networks, as frameworks and benchmarks of the time defined them.

``alexnet``: torchvision (Krizhevsky, arXiv 1404.5997, one column).  ``alexnet-owt``: the same column in
convnet-benchmarks' version, without dropout.  ``overfeat-fast``: OverFeat's fast model (Sermanet et al., arXiv
1312.6229, table 1) in convnet-benchmarks' version.  ``vgg``: Simonyan and Zisserman, arXiv 1409.1556, table 1
(A, B, D, E), as in torchvision.
"""

from __future__ import annotations

from simulator.workload.zoo.builder import Tensor

_WIDTHS = (64, 192, 384, 256, 256)


def alexnet(x: Tensor, classes: int) -> Tensor:
    """Return the logits of torchvision's AlexNet."""
    x = _column(x).adaptive_avg_pool("avgpool", 6).flatten().dropout("classifier.0")
    x = x.linear("classifier.1", 4096).relu("classifier.2").dropout("classifier.3")
    return x.linear("classifier.4", 4096).relu("classifier.5").linear("classifier.6", classes)


def alexnet_owt(
    x: Tensor,
    classes: int,
    widths: tuple[int, ...] = _WIDTHS,
    dense: tuple[int, ...] = (4096, 4096),
    pad: int = 2,
    pool: int = 3,
) -> Tensor:
    """Return the logits of convnet-benchmarks' AlexNet or, with its sizes, OverFeat (fast)."""
    x = _column(x, widths, pad, pool).flatten()
    for i, width in enumerate(dense):
        x = x.linear(f"classifier.{2 * i}", width).relu(f"classifier.{2 * i + 1}")
    return x.linear(f"classifier.{2 * len(dense)}", classes)


def _column(x: Tensor, widths: tuple[int, ...] = _WIDTHS, pad: int = 2, pool: int = 3) -> Tensor:
    """Return the features after five convolutions, the first two padded by *pad*, and three pools."""
    x = x.conv("features.0", widths[0], 11, stride=4, pad=pad, bias=True).relu("features.1")
    x = x.pool("features.2", pool, stride=2).conv("features.3", widths[1], 5, pad=pad, bias=True)
    x = x.relu("features.4").pool("features.5", pool, stride=2)
    for i, channels in zip((6, 8, 10), widths[2:], strict=True):
        x = x.conv(f"features.{i}", channels, 3, pad=1, bias=True).relu(f"features.{i + 1}")
    return x.pool("features.12", pool, stride=2)


# Convolutions of 64, 128, 256, 512 and 512 channels before each pool.
VGG_BLOCKS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(x: Tensor, classes: int, depth: int) -> Tensor:
    """Return the logits of VGG with *depth* weighted layers."""
    i = 0
    for convolutions, channels in zip(VGG_BLOCKS[depth], (64, 128, 256, 512, 512), strict=True):
        for _ in range(convolutions):
            x = x.conv(f"features.{i}", channels, 3, pad=1, bias=True).relu(f"features.{i + 1}")
            i += 2
        x = x.pool(f"features.{i}", 2)
        i += 1
    x = x.adaptive_avg_pool("avgpool", 7).flatten()
    for j in (0, 3):
        x = x.linear(f"classifier.{j}", 4096).relu(f"classifier.{j + 1}").dropout(f"classifier.{j + 2}")
    return x.linear("classifier.6", classes)
