"""Which layout images have in networks that TorchInductor compiles, by version of PyTorch.

From PyTorch 2.1 on (pull request 99773), Inductor lets all convolutions of a graph read images pixel by pixel, whatever
the number format.  It leaves the graph as it is where that would cost more:

* on AMD's GPUs, unless asked for (``torch/_inductor/config.py``, ``layout_optimization``);
* where a graph has :data:`NODES_PER_CONVOLUTION` nodes and more for each convolution, as vision transformers have;
* in training, if one convolution is grouped (and not depthwise) or has at most half as many results as inputs and more
  than one tap, or if all have at most 64 channels;
* in inference, from PyTorch 2.2 on (pull request 114600), if the FLOPs, each weighted by the time that its kind took on
  average in channels-last, sum up to more than the FLOPs; before, as in training.

``torch/_inductor/graph.py``, ``decide_layout_opt``, has the rules.  XLA has layouts of its own.
"""

from __future__ import annotations

from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions
from simulator.questions.where import TORCH_RELEASE_MONTHS
from simulator.workload.network import Network, once
from simulator.workload.operators import Conv2d

NODES_PER_CONVOLUTION = 300
"""Nodes of the graph for each convolution from which on Inductor keeps the layout (``decide_layout_opt``)."""

NODES_PER_LAYER = 4
"""Nodes of the graph for a layer: its operations, views and parameters.  An estimate that few networks depend on: a
ResNet has 14 nodes for each convolution, a vision transformer over a thousand."""

_WEIGHTS = {"grouped": 1.358, "small": 0.783, "narrowing": 0.725, "other": 0.823}
_SMALL = 64  # channels


def lays_out_channels_last(device: Device, network: Network, options: StepOptions) -> bool:
    """Return whether a compiler makes the convolutions of *network* read images pixel by pixel on *device*."""
    if not options.compiled or options.framework in ("tensorflow", "caffe"):
        return False
    if not isinstance(device, Gpu) or device.vendor != "nvidia" or is_before(device, "2.1"):
        return False
    return _gains(network, by_work=not options.trains and not is_before(device, "2.2"))


def is_before(device: Device, torch: str) -> bool:
    """Return whether the software of *device* is older than this version of PyTorch; never that of CPUs."""
    month = device.libraries if isinstance(device, Gpu) else None
    return month is not None and month < TORCH_RELEASE_MONTHS[torch]


@once
def _gains(network: Network, *, by_work: bool) -> bool:
    """Return whether Inductor finds that *network* gains, in inference *by_work* of each kind of convolution."""
    shapes = [layer.operator for layer in network.layers if isinstance(layer.operator, Conv2d)]
    if not shapes or len(network.layers) * NODES_PER_LAYER >= NODES_PER_CONVOLUTION * len(shapes):
        return False
    if by_work:
        return sum(shape.flop * (_WEIGHTS[_kind(shape)] - 1.0) for shape in shapes) <= 0.0
    kinds = [_kinds(shape) for shape in shapes]
    return not any({"grouped", "narrowing"} & each for each in kinds) and not all("small" in each for each in kinds)


def _kind(shape: Conv2d) -> str:
    """Return the first of the kinds of *shape*, by which its FLOPs are weighted."""
    return next((kind for kind in _WEIGHTS if kind in _kinds(shape)), "other")


def _kinds(shape: Conv2d) -> set[str]:
    results, each = (shape.c_in, shape.c_out) if shape.transposed else (shape.c_out, shape.c_in)
    each //= shape.groups
    found = {
        "grouped": shape.groups > 1 and each > 1,
        "small": results <= _SMALL and each <= _SMALL,
        "narrowing": results * 2 <= each and shape.kernel_h > 1,
    }
    return {kind for kind, is_of in found.items() if is_of}
