"""WaveGlow (Prenger et al., arXiv 1811.00002), as NVIDIA's DeepLearningExamples train it.

A signal is ``(batch, channels, 1, length)``.  The norm of each filter is a separate parameter (weight normalisation).
The kernels that apply it, and the determinants of the small matrices, are left out, because they do not depend on the
samples.
"""

from __future__ import annotations

from simulator.workload.operators import Conv2d, Elementwise
from simulator.workload.zoo.builder import NetworkBuilder, SizeError, Tensor, weights

_FLOWS, _LAYERS, _GROUP, _BANDS, _HOP, _WINDOW = 12, 8, 8, 80, 256, 1024
_EVERY, _EARLY = 4, 2  # every 4 flows, 2 channels are output


def waveglow(net: NetworkBuilder, batch: int, samples: int, channels: int) -> Tensor:
    """Return the noise ``(batch * samples / 8, 8)``; raises SizeError unless *samples* is a multiple of 8."""
    if samples % _GROUP:
        raise SizeError(f"samples go by {_GROUP}; got {samples}")
    length, frames = samples // _GROUP, samples // _HOP + 1
    # The spectrum, upsampled to the sample rate, with groups of 8 samples as channels.
    heard = net.input(batch, _BANDS, 1, frames).up("upsample", _BANDS, (1, _WINDOW), (1, _HOP))
    heard = heard.copy("upsample.groups", batch, _BANDS * _GROUP, 1, length, transposed=True)
    x = net.input(batch, _GROUP, 1, length)
    done: list[Tensor] = []
    for flow in range(_FLOWS):
        name = f"flows.{flow}"
        if flow and flow % _EVERY == 0:
            done.append(x.view(batch, _EARLY, 1, length))
            x = x.view(batch, x.shape[1] - _EARLY, 1, length)
        x = x.conv(f"{name}.mix", x.shape[1], 1)
        half = x.view(batch, x.shape[1] // 2, 1, length)
        y = _network(half, heard, name, channels)
        part = y.view(*half.shape)
        scale = _of_part(f"{name}.exp", "exp", part, y)
        moved = scale.apply(f"{name}.scale", "mul", half).add(part, f"{name}.shift")
        x = half.gather(f"{name}.join", x.shape, moved)
    return done[0].gather("join", (batch * samples // _GROUP, _GROUP), *done[1:], x)


def _network(x: Tensor, heard: Tensor, name: str, channels: int) -> Tensor:
    """Return the scales and shifts of one flow, with twice as many channels as *x*."""
    half = x.shape[1]
    x = _conv(x, f"{name}.start", channels)
    wide = x.shape[0], channels, 1, x.shape[3]
    total = x
    for i in range(_LAYERS):
        layer, is_last = f"{name}.{i}", i == _LAYERS - 1
        y = _conv(x, f"{layer}.in", 2 * channels, 3, 2**i)
        y = y.add(_conv(heard, f"{layer}.condition", 2 * channels), f"{layer}.add")
        tanh, gate = (_of_part(f"{layer}.{f}", f, y.view(*wide), y) for f in ("tanh", "sigmoid"))
        y = tanh.apply(f"{layer}.mul", "mul", gate)
        y = _conv(y, f"{layer}.out", channels if is_last else 2 * channels)
        part = y.view(*wide)
        if not is_last:
            residual = Elementwise("add", x.elements, 2, part_of=y.elements)
            x = x.layer(f"{layer}.residual", residual, None, (), part)
        skip = Elementwise("add", part.elements, 2, part_of=0 if is_last else y.elements)
        total = total.layer(f"{layer}.skip", skip, part.shape, (), part) if i else part
    return total.conv(f"{name}.end", 2 * half, 1, bias=True)


def _of_part(name: str, function: str, part: Tensor, whole: Tensor) -> Tensor:
    """Return *function* of *part*, a slice of *whole*."""
    return part.layer(name, Elementwise(function, part.elements, part_of=whole.elements))


def _conv(x: Tensor, name: str, width: int, kernel: int = 1, dilation: int = 1) -> Tensor:
    batch, channels, _, length = x.shape
    pad = (kernel - 1) // 2 * dilation
    operator = Conv2d(batch, channels, width, 1, length, 1, kernel, pad_w=pad, bias=True, dilation_w=dilation)
    parameters = weights(name, weight=operator.weight_elements, norm=width, bias=width)
    return x.layer(name, operator, (batch, width, 1, length), parameters)
