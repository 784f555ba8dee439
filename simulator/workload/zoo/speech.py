"""Networks of one-dimensional convolutions for speech, as NVIDIA's DeepLearningExamples train them on LibriSpeech.

Jasper 10x5 with dense residuals: Li et al., arXiv 1904.03288, table 1.  QuartzNet 15x5: Kriman et al., arXiv
1910.10261, table 1, whose convolutions are separable.  A spectrum is ``(batch, bands, 1, frames)``, a frame 10 ms.  The
loss (CTC) is left out: it reads one number a frame and letter.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.workload.network import Parameter
from simulator.workload.operators import Conv2d
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError

_BANDS = 64
_REPEAT = 5
_JASPER = [(width, kernel) for width, kernel in ((256, 11), (384, 13), (512, 17), (640, 21), (768, 25)) for _ in "12"]
_QUARTZ = [(w, k) for w, k in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)) for _ in "123"]


def jasper(b: NetworkBuilder, batch: int, spectrum: int, classes: int) -> LayerOutput:
    """Return the scores of each letter in every second frame, ``(batch, classes, 1, frames / 2)``."""
    x = _layer(b, _spectrum(b, batch, spectrum), "first", 256, 11, stride=2)
    seen: list[LayerOutput] = []
    for i, (width, kernel) in enumerate(_JASPER):
        seen.append(x)
        x = _block(b, x, f"blocks.{i}", width, kernel, seen, separable=False)
    x = _layer(b, _layer(b, x, "last.0", 896, 29, dilation=2), "last.1", 1024, 1)
    return b.conv(x, "letters", classes, 1, bias=True)


def quartznet(b: NetworkBuilder, batch: int, spectrum: int, classes: int) -> LayerOutput:
    """Return the scores of each letter in every second frame, ``(batch, classes, 1, frames / 2)``."""
    x = _layer(b, _spectrum(b, batch, spectrum), "first", 256, 33, stride=2, separable=True)
    for i, (width, kernel) in enumerate(_QUARTZ):
        x = _block(b, x, f"blocks.{i}", width, kernel, (x,), separable=True)
    x = _layer(b, x, "last.0", 512, 87, dilation=2, separable=True)
    return b.conv(_layer(b, x, "last.1", 1024, 1), "letters", classes, 1, bias=True)


def _spectrum(b: NetworkBuilder, batch: int, frames: int) -> LayerOutput:
    if frames % 2:
        raise SizeError(f"frames must be even; got {frames}")
    return b.input(batch, _BANDS, 1, frames)


def _block(
    b: NetworkBuilder,
    x: LayerOutput,
    name: str,
    width: int,
    kernel: int,
    residuals: Sequence[LayerOutput],
    *,
    separable: bool,
) -> LayerOutput:
    """Return five layers whose last one adds each of *residuals*, through a convolution of its own."""
    y = x
    for i in range(_REPEAT - 1):
        y = _layer(b, y, f"{name}.{i}", width, kernel, separable=separable)
    y = _convolved(b, y, f"{name}.{_REPEAT - 1}", width, kernel, 1, 1, separable=separable)
    for i, residual in enumerate(residuals):
        way = b.batch_norm(b.conv(residual, f"{name}.residual{i}", width, 1), f"{name}.residual{i}.norm")
        y = b.add(y, way, f"{name}.add{i}", in_place=True)
    return b.dropout(b.relu(y, f"{name}.relu"), f"{name}.dropout")


def _layer(
    b: NetworkBuilder,
    x: LayerOutput,
    name: str,
    width: int,
    kernel: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    separable: bool = False,
) -> LayerOutput:
    y = _convolved(b, x, name, width, kernel, stride, dilation, separable=separable)
    return b.dropout(b.relu(y, f"{name}.relu"), f"{name}.dropout")


def _convolved(
    b: NetworkBuilder,
    x: LayerOutput,
    name: str,
    width: int,
    kernel: int,
    stride: int,
    dilation: int,
    *,
    separable: bool,
) -> LayerOutput:
    """Return the normalised convolution; a separable one goes channel by channel, then across channels."""
    if separable:
        x = _along(b, x, f"{name}.along", x.shape[1], kernel, stride, dilation, groups=x.shape[1])
        return b.batch_norm(b.conv(x, f"{name}.across", width, 1), f"{name}.norm")
    return b.batch_norm(_along(b, x, f"{name}.conv", width, kernel, stride, dilation), f"{name}.norm")


def _along(
    b: NetworkBuilder,
    x: LayerOutput,
    name: str,
    width: int,
    kernel: int,
    stride: int,
    dilation: int,
    groups: int = 1,
) -> LayerOutput:
    batch, channels, _, frames = x.shape
    pad = (kernel - 1) // 2 * dilation
    operator = Conv2d(*(batch, channels, width, 1, frames, 1, kernel, 1, stride, 0, pad, groups), dilation_w=dilation)
    weight = Parameter(f"{name}.weight", operator.weight_elements)
    return b.add_layer(name, operator, (x,), (batch, width, 1, operator.w_out), (weight,))
