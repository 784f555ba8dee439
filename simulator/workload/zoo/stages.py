"""Networks whose blocks ``stages.json`` and ``networks.json`` list (docs/decisions/zoo.md)."""

from collections.abc import Sequence
from functools import reduce
from math import ceil
from typing import Any

from simulator.records import own_data
from simulator.workload.zoo.builder import Pooled, Tensor, pair
from simulator.workload.zoo.resnet import prelu, squeeze_excite

_SIZES = own_data("simulator.workload.zoo", "stages.json")


def inception(x: Tensor, classes: int, variant: str) -> tuple[Tensor, ...]:
    """Return the logits of the *variant* whose layers ``stages.json`` has and, in training, an auxiliary classifier's.

    Each layer has its name and a convolution's channels, kernel (1), stride (1) and padding (half of the kernel); or a
    pool's kind, stride and padding; or branches, lists of layers that begin with their input, whose results are put
    side by side.  Convolutions, whose names end with ``ending``, have a ``bias`` or not, and a ``norm`` or not;
    ``rounds_up``: pools do, with sizes.  The classifier reads what the layer ``auxiliary`` reads; ``drops``: the last
    one drops some of what it reads.
    """
    kind = _SIZES[variant]

    def layer(x: Tensor, name: str, first: Any, second: Any = 1, stride: int = 1, pad: int | None = None) -> Tensor:
        if isinstance(first, str):
            pooled: Pooled = "avg" if first == "avg" else "max"
            return x.pool(name, 3, kind=pooled, stride=second, pad=stride, ceil=kind["rounds_up"])
        if isinstance(first, list):
            one, *others = (reduce(lambda y, each: layer(y, name + each[0], *each[1:]), rows, x) for rows in first)
            return one.concat(f"{name}.cat", *others)
        height, width = pair(second)
        pads = (height // 2, width // 2) if pad is None else pad
        x = x.conv(name + kind["ending"], first, (height, width), stride=stride, pad=pads, bias=kind["bias"])
        return (x.batch_norm(f"{name}.bn") if kind["norm"] else x).relu(f"{name}.relu")

    also: tuple[Tensor, ...] = ()
    for name, *sizes in kind["layers"]:
        if name == kind["auxiliary"] and x.net.training:
            y = x.pool("AuxLogits.avg_pool", 5, kind="avg", stride=3)
            y = layer(layer(y, "AuxLogits.conv0", 128), "AuxLogits.conv1", 768, 5, 1, 0)
            also = (y.adaptive_avg_pool("AuxLogits.avgpool").flatten().linear("AuxLogits.fc", classes),)
        x = layer(x, name, *sizes)
    x = x.adaptive_avg_pool("avgpool").flatten()
    return (x.dropout("dropout") if kind["drops"] else x).linear("fc", classes), *also


_STAGES = _SIZES["efficientnet"]  # each: expansion, side of the kernel, stride, channels, blocks
_LAST = 1280  # channels before the head, of the second generation


Stage = tuple[str, int, int, int, int, int, str, str]
"""Kind, expansion, side of the kernel, stride, channels, blocks, activation, that of squeeze-and-excitation or ""."""


def efficientnet(x: Tensor, classes: int, variant: str) -> Tensor:
    """Return the logits of EfficientNet *variant*, ``b0`` to ``b7`` or ``v2-s`` to ``v2-l``."""
    if variant in _STAGES["second"]:
        sizes = _STAGES["second"][variant]
        fused, stages = sizes["fused"], sizes["stages"]
        stem, last = stages[0][3], _LAST
    else:
        width, depth = _STAGES["scales"][variant]
        fused, stem = 0, _channels(32 * width)
        stages = [(e, k, s, _channels(width * c), ceil(depth * n)) for e, k, s, c, n in _STAGES["first"]]
        last = 4 * stages[-1][3]
    fuses = [("summed" if row[0] == 1 else "fused", *row, "silu", "") for row in stages[:fused]]
    return _head(
        _blocks(x, stem, fuses + [("inverted", *row, "silu", "silu") for row in stages[fused:]]), last, classes
    )


def _channels(wanted: float) -> int:
    """Return the nearest multiple of 8 that is not more than a tenth below *wanted*."""
    found = max(8, int(wanted + 4) // 8 * 8)
    return found + 8 if found < 0.9 * wanted else found


def gpunet(x: Tensor, classes: int, stem: int, stages: tuple[Stage, ...]) -> Tensor:
    """Return the logits of a GPUNet of *stages*, of which the last number is whether channels are weighted."""
    return _head(_blocks(x, stem, [(*row[:-1], "relu" if row[-1] else "") for row in stages]), _LAST, classes)


def _blocks(x: Tensor, stem: int, stages: Sequence[Stage]) -> Tensor:
    """Return the result of a convolution and *stages* of blocks.

    A block is a convolution (``conv``, or ``summed`` with what enters), or it expands channels and projects them again:
    by a convolution over pixels (``fused``), or by one in which each channel is convolved by itself (``inverted``).
    """
    x = _unit(x, "stem", stem, 3, stride=2) if stem else x
    for i, (kind, expansion, kernel, first, channels, blocks, act, squeezed) in enumerate(stages):
        for j in range(blocks):
            name, stride, wide = f"{i}.{j}", 1 if j else first, expansion * x.shape[1]
            if kind in ("conv", "summed"):
                y = _unit(x, f"{name}.conv", channels, kernel, stride=stride, act=act)
            else:
                y = x
                if kind == "fused":
                    y = _unit(y, f"{name}.expand", wide, kernel, stride=stride, act=act)
                else:
                    y = _unit(y, f"{name}.expand", wide, 1, act=act) if expansion > 1 else y
                    y = _unit(y, f"{name}.depthwise", wide, kernel, stride=stride, groups=wide, act=act)
                y = squeeze_excite(y, f"{name}.se", max(1, x.shape[1] // 4), squeezed) if squeezed else y
                y = y.conv(f"{name}.project", channels, 1).batch_norm(f"{name}.project.bn")
            x = y.add(x, f"{name}.add", in_place=True) if y.shape == x.shape and kind != "conv" else y
    return x


def _unit(
    x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1, groups: int = 1, act: str = "silu"
) -> Tensor:
    """Return a convolution, batch normalisation and activation *act* of *x*."""
    x = x.conv(name, channels, kernel, stride=stride, pad=kernel // 2, groups=groups).batch_norm(f"{name}.bn")
    return prelu(x, f"{name}.prelu") if act == "prelu" else x.apply(f"{name}.{act}", act, in_place=True)


def _head(x: Tensor, width: int, classes: int) -> Tensor:
    x = _unit(x, "head", width, 1).adaptive_avg_pool("pool").flatten()
    return x.dropout("dropout").linear("classifier", classes)


_FACE_LAST, _FACE_FEATURES = 512, 128


def mobile_face_net(x: Tensor, classes: int) -> Tensor:
    """Return the similarity of each face with *classes* identities."""
    x = _unit(x, "conv1", 64, 3, stride=2, act="prelu")
    x = _unit(x, "conv2", 64, 3, groups=64, act="prelu")
    x = _blocks(x, 0, [("inverted", *row, "prelu", "") for row in _SIZES["mobile-face-net"]])
    x = _unit(x, "conv3", _FACE_LAST, 1, act="prelu")
    x = x.conv("depthwise", _FACE_LAST, (x.shape[2], x.shape[3]), groups=_FACE_LAST).batch_norm("depthwise.bn")
    x = x.conv("features", _FACE_FEATURES, 1).batch_norm("features.bn").flatten()
    return x.linear("identities", classes, bias=False)
