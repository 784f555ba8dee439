"""WaveGlow (Prenger et al., arXiv 1811.00002), as NVIDIA's DeepLearningExamples train it.

A signal is ``(batch, channels, 1, length)``.  The norm of each filter is a separate parameter (weight normalisation).
The kernels that apply it, and the determinants of the small matrices, are left out, because they do not depend on the
samples.
"""

from __future__ import annotations

from simulator.workload.network import Parameter
from simulator.workload.operators import Conv2d, Copy, Elementwise
from simulator.workload.zoo.builder import LayerOutput, NetworkBuilder, SizeError

_FLOWS, _LAYERS, _GROUP, _BANDS, _HOP, _WINDOW = 12, 8, 8, 80, 256, 1024
_EVERY, _EARLY = 4, 2  # every 4 flows, 2 channels are output


def waveglow(b: NetworkBuilder, batch: int, samples: int, channels: int) -> LayerOutput:
    """Return the noise ``(batch * samples / 8, 8)``; raises SizeError unless *samples* is a multiple of 8."""
    if samples % _GROUP:
        raise SizeError(f"samples go by {_GROUP}; got {samples}")
    length, frames = samples // _GROUP, samples // _HOP + 1
    heard = _spectrum(b, b.input(batch, _BANDS, 1, frames), samples)
    x = b.input(batch, _GROUP, 1, length)
    done: list[LayerOutput] = []
    for flow in range(_FLOWS):
        if flow and flow % _EVERY == 0:
            done.append(b.view(x, batch, _EARLY, 1, length))
            x = b.view(x, batch, x.shape[1] - _EARLY, 1, length)
        x = b.conv(x, f"flows.{flow}.mix", x.shape[1], 1)
        half = b.view(x, batch, x.shape[1] // 2, 1, length)
        y = _network(b, half, heard, f"flows.{flow}", channels)
        part = b.view(y, *half.shape)
        scale = _of_part(b, f"flows.{flow}.exp", "exp", part, y)
        moved = b.add(b.elementwise(f"flows.{flow}.scale", "mul", scale, half), part, f"flows.{flow}.shift")
        x = b.add_layer(f"flows.{flow}.join", Copy(x.elements), (half, moved), x.shape)
    elements = batch * samples
    return b.add_layer("join", Copy(elements), (*done, x), (elements // _GROUP, _GROUP))


def _spectrum(b: NetworkBuilder, x: LayerOutput, samples: int) -> LayerOutput:
    """Return the spectrum upsampled to the sample rate, with groups of 8 samples as channels."""
    batch, bands, *_ = x.shape
    x = b.up(x, "upsample", bands, (1, _WINDOW), (1, _HOP))
    shape = batch, bands * _GROUP, 1, samples // _GROUP
    return b.add_layer("upsample.groups", Copy(batch * bands * samples, transposed=True), (x,), shape)


def _network(b: NetworkBuilder, x: LayerOutput, heard: LayerOutput, name: str, channels: int) -> LayerOutput:
    """Return the scales and shifts of one flow, with twice as many channels as *x*."""
    half = x.shape[1]
    x = _conv(b, x, f"{name}.start", channels)
    wide = x.shape[0], channels, 1, x.shape[3]
    total: LayerOutput | None = None
    for i in range(_LAYERS):
        layer, is_last = f"{name}.{i}", i == _LAYERS - 1
        y = _conv(b, x, f"{layer}.in", 2 * channels, 3, 2**i)
        y = b.add(y, _conv(b, heard, f"{layer}.condition", 2 * channels), f"{layer}.add")
        part = b.view(y, *wide)
        tanh, gate = (_of_part(b, f"{layer}.{f}", f, part, y) for f in ("tanh", "sigmoid"))
        y = b.elementwise(f"{layer}.mul", "mul", tanh, gate)
        y = _conv(b, y, f"{layer}.out", channels if is_last else 2 * channels)
        part = b.view(y, *wide)
        if not is_last:
            residual = Elementwise("add", x.elements, 2, part_of=y.elements)
            x = b.add_layer(f"{layer}.residual", residual, (x, part), x.shape)
        skip = Elementwise("add", part.elements, 2, part_of=0 if is_last else y.elements)
        total = part if total is None else b.add_layer(f"{layer}.skip", skip, (total, part), part.shape)
    assert total is not None
    return b.conv(total, f"{name}.end", 2 * half, 1, bias=True)


def _of_part(b: NetworkBuilder, name: str, function: str, part: LayerOutput, whole: LayerOutput) -> LayerOutput:
    """Return *function* of *part*, a slice of *whole*."""
    operator = Elementwise(function, part.elements, part_of=whole.elements)
    return b.add_layer(name, operator, (part,), part.shape)


def _conv(b: NetworkBuilder, x: LayerOutput, name: str, width: int, kernel: int = 1, dilation: int = 1) -> LayerOutput:
    batch, channels, _, length = x.shape
    pad = (kernel - 1) // 2 * dilation
    operator = Conv2d(batch, channels, width, 1, length, 1, kernel, pad_w=pad, bias=True, dilation_w=dilation)
    sizes = {"weight": operator.weight_elements, "norm": width, "bias": width}
    weights = tuple(Parameter(f"{name}.{key}", size) for key, size in sizes.items())
    return b.add_layer(name, operator, (x,), (batch, width, 1, length), weights)
