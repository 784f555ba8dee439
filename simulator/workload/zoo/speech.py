"""Networks of one-dimensional convolutions for speech, as NVIDIA's DeepLearningExamples train them on LibriSpeech.

Jasper 10x5 with dense residuals: Li et al., arXiv 1904.03288, table 1.  QuartzNet 15x5: Kriman et al., arXiv
1910.10261, table 1, whose convolutions are separable.  A spectrum is ``(batch, bands, 1, frames)``, a frame 10 ms.  The
loss (CTC) is left out: it reads one number a frame and letter.  Both return the scores of each letter in every second
frame, ``(batch, classes, 1, frames / 2)``.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.workload.operators import Conv2d
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor, weights

_BANDS = 64
_REPEAT = 5
_JASPER = [(width, kernel) for width, kernel in ((256, 11), (384, 13), (512, 17), (640, 21), (768, 25)) for _ in "12"]
_QUARTZ = [(w, k) for w, k in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)) for _ in "123"]


def jasper(net: NetworkBuilder, batch: int, spectrum: int, classes: int) -> Tensor:
    """Return the scores of Jasper."""
    x = _layer(_spectrum(net, batch, spectrum), "first", 256, 11, stride=2)
    seen: list[Tensor] = []
    for i, (width, kernel) in enumerate(_JASPER):
        seen.append(x)
        x = _block(x, f"blocks.{i}", width, kernel, seen)
    x = _layer(_layer(x, "last.0", 896, 29, dilation=2), "last.1", 1024, 1)
    return x.conv("letters", classes, 1, bias=True)


def quartznet(net: NetworkBuilder, batch: int, spectrum: int, classes: int) -> Tensor:
    """Return the scores of QuartzNet."""
    x = _layer(_spectrum(net, batch, spectrum), "first", 256, 33, stride=2, separable=True)
    for i, (width, kernel) in enumerate(_QUARTZ):
        x = _block(x, f"blocks.{i}", width, kernel, (x,), separable=True)
    x = _layer(x, "last.0", 512, 87, dilation=2, separable=True)
    return _layer(x, "last.1", 1024, 1).conv("letters", classes, 1, bias=True)


def _spectrum(net: NetworkBuilder, batch: int, frames: int) -> Tensor:
    if frames % 2:
        raise SizeError(f"frames must be even; got {frames}")
    return net.input(batch, _BANDS, 1, frames)


def _block(
    x: Tensor, name: str, width: int, kernel: int, residuals: Sequence[Tensor], *, separable: bool = False
) -> Tensor:
    """Return five layers whose last one adds each of *residuals*, through a convolution of its own."""
    for i in range(_REPEAT - 1):
        x = _layer(x, f"{name}.{i}", width, kernel, separable=separable)
    x = _convolved(x, f"{name}.{_REPEAT - 1}", width, kernel, separable=separable)
    for i, residual in enumerate(residuals):
        way = residual.conv(f"{name}.residual{i}", width, 1).batch_norm(f"{name}.residual{i}.norm")
        x = x.add(way, f"{name}.add{i}", in_place=True)
    return x.relu(f"{name}.relu").dropout(f"{name}.dropout")


def _layer(
    x: Tensor, name: str, width: int, kernel: int, *, stride: int = 1, dilation: int = 1, separable: bool = False
) -> Tensor:
    x = _convolved(x, name, width, kernel, stride, dilation, separable=separable)
    return x.relu(f"{name}.relu").dropout(f"{name}.dropout")


def _convolved(
    x: Tensor, name: str, width: int, kernel: int, stride: int = 1, dilation: int = 1, *, separable: bool
) -> Tensor:
    """Return the normalised convolution; a separable one goes channel by channel, then across channels."""
    batch, channels, _, frames = x.shape
    wide, groups, own = (channels, channels, f"{name}.along") if separable else (width, 1, f"{name}.conv")
    pad = (kernel - 1) // 2 * dilation
    operator = Conv2d(*(batch, channels, wide, 1, frames, 1, kernel, 1, stride, 0, pad, groups), dilation_w=dilation)
    x = x.layer(own, operator, (batch, wide, 1, operator.w_out), weights(own, weight=operator.weight_elements))
    return (x.conv(f"{name}.across", width, 1) if separable else x).batch_norm(f"{name}.norm")
