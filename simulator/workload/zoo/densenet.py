"""DenseNet (Huang et al., arXiv 1608.06993, table 1), as in torchvision."""

from __future__ import annotations

from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder

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
