"""GoogLeNet without batch normalisation, and its successor with it (Inception-BN).

``googlenet``: Szegedy et al., arXiv 1409.4842, table 1, without local response normalisation and auxiliary
classifiers, as timed by convnet-benchmarks.  ``inception-bn``: Ioffe and Szegedy, arXiv 1502.03167, in the sizes of
MXNet's example (its convolutions have a bias).
"""

from __future__ import annotations

from simulator.workload.zoo import stage_sizes
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder

# Channels: 1x1; 3x3's reduction and 3x3; 5x5's reduction and 5x5; projection after the pool.
_GOOGLENET = stage_sizes("googlenet")
# Channels: 1x1; 3x3's reduction and 3x3; double 3x3's reduction and each 3x3; projection after the pool; kind of pool.
# Blocks without the 1x1 and the projection (0) halve the image.
_INCEPTION_BN = stage_sizes("inception-bn")


def googlenet(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of GoogLeNet."""
    x = b.pool(_conv(b, x, "conv1", 64, 7, 2), "pool1", 3, stride=2, ceil=True)
    x = _conv(b, _conv(b, x, "conv2_reduce", 64), "conv2", 192, 3)
    x = b.pool(x, "pool2", 3, stride=2, ceil=True)
    for name, (one, reduce3, three, reduce5, five, pooled) in _GOOGLENET.items():
        if name in ("4a", "5a"):
            x = b.pool(x, f"pool{int(name[0]) - 1}", 3, stride=2, ceil=True)
        branches = (
            _conv(b, x, f"inception.{name}.1x1", one),
            _conv(b, _conv(b, x, f"inception.{name}.3x3_reduce", reduce3), f"inception.{name}.3x3", three, 3),
            _conv(b, _conv(b, x, f"inception.{name}.5x5_reduce", reduce5), f"inception.{name}.5x5", five, 5),
            _conv(b, b.pool(x, f"inception.{name}.pool", 3, stride=1, pad=1), f"inception.{name}.proj", pooled),
        )
        x = b.concat(branches, f"inception.{name}.cat")
    x = b.flatten(b.adaptive_avg_pool(x, "avgpool"))
    return b.linear(b.dropout(x, "dropout"), "fc", classes)


def inception_bn(b: NetworkBuilder, x: LayerOutput, classes: int) -> LayerOutput:
    """Return the logits of Inception-BN."""
    x = b.pool(_conv_bn(b, x, "conv1", 64, 7, 2), "pool1", 3, stride=2)
    x = _conv_bn(b, _conv_bn(b, x, "conv2_reduce", 64), "conv2", 192, 3)
    x = b.pool(x, "pool2", 3, stride=2)
    for block, (one, reduce3, three, reduce_d, double, projected, kind) in _INCEPTION_BN.items():
        name, stride = f"inception.{block}", 1 if one else 2
        branches = [_conv_bn(b, x, f"{name}.1x1", one)] if one else []
        y = _conv_bn(b, x, f"{name}.3x3_reduce", reduce3)
        branches.append(_conv_bn(b, y, f"{name}.3x3", three, 3, stride))
        y = _conv_bn(b, x, f"{name}.double_reduce", reduce_d)
        y = _conv_bn(b, y, f"{name}.double_0", double, 3)
        branches.append(_conv_bn(b, y, f"{name}.double_1", double, 3, stride))
        y = b.pool(x, f"{name}.pool", 3, kind="avg" if kind == "avg" else "max", stride=stride, pad=1)
        branches.append(_conv_bn(b, y, f"{name}.proj", projected) if projected else y)
        x = b.concat(tuple(branches), f"{name}.cat")
    x = b.flatten(b.adaptive_avg_pool(x, "avgpool"))
    return b.linear(x, "fc", classes)


def _conv(b: NetworkBuilder, x: LayerOutput, name: str, channels: int, kernel: int = 1, stride: int = 1) -> LayerOutput:
    x = b.conv(x, name, channels, kernel, stride=stride, pad=kernel // 2, bias=True)
    return b.relu(x, f"{name}.relu")


def _conv_bn(
    b: NetworkBuilder, x: LayerOutput, name: str, channels: int, kernel: int = 1, stride: int = 1
) -> LayerOutput:
    x = b.conv(x, name, channels, kernel, stride=stride, pad=kernel // 2, bias=True)
    return b.relu(b.batch_norm(x, f"{name}.bn"), f"{name}.relu")
