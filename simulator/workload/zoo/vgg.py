"""VGG (Simonyan and Zisserman, arXiv 1409.1556, table 1: A, B, D, E), as in torchvision."""

from __future__ import annotations

from simulator.workload.zoo.builder import NetworkBuilder, Tensor

# Convolutions of 64, 128, 256, 512 and 512 channels before each pool.
VGG_BLOCKS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(b: NetworkBuilder, x: Tensor, classes: int, depth: int) -> Tensor:
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
