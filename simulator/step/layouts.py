"""Which layout images have in networks that TorchInductor compiles, by version of PyTorch.

From PyTorch 2.1 on (pull request 99773), Inductor lets all convolutions of a graph read images pixel by pixel, whatever
the number format.  It leaves the graph as it is where that would cost more:

* on AMD's GPUs, unless asked for (``torch/_inductor/config.py``, ``layout_optimization``);
* where a graph has :data:`NODES` nodes and more for each convolution, as vision transformers have;
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
from simulator.questions.where import TORCH_CAME
from simulator.workload.network import Network, once
from simulator.workload.operators import Conv2d

NODES = 300
NODES_EACH = 4
"""Nodes of the graph for a layer: its operations, views and parameters.  Networks between are rare: a ResNet has 14 for
each convolution, a vision transformer over a thousand."""
_WEIGHTS = {"grouped": 1.358, "small": 0.783, "narrowing": 0.725, "other": 0.823}
_SMALL = 64


def turns_images(device: Device, network: Network, options: StepOptions) -> bool:
    """Return whether a compiler makes the convolutions of *network* read images pixel by pixel on *device*."""
    if not options.compiled or options.framework in ("tensorflow", "caffe"):
        return False
    if not isinstance(device, Gpu) or device.vendor != "nvidia" or is_before(device, "2.1"):
        return False
    return _gains(network, by_work=not options.trains and not is_before(device, "2.2"))


def is_before(device: Device, torch: str) -> bool:
    """Return whether the software of *device* is older than this version of PyTorch; never that of CPUs."""
    month = device.libraries if isinstance(device, Gpu) else None
    return month is not None and month < TORCH_CAME[torch]


@once
def _gains(network: Network, *, by_work: bool) -> bool:
    """Return whether Inductor finds that *network* gains, in inference *by_work* of each kind of convolution."""
    shapes = [layer.operator for layer in network.layers if isinstance(layer.operator, Conv2d)]
    if not shapes or len(network.layers) * NODES_EACH >= NODES * len(shapes):
        return False
    if by_work:
        return sum(shape.flop * (_WEIGHTS[_kind(shape)] - 1.0) for shape in shapes) <= 0.0
    kinds = {_kind(shape) for shape in shapes}
    return not kinds & {"grouped", "narrowing"} and kinds != {"small"}


def _kind(shape: Conv2d) -> str:
    results, each = (shape.c_in, shape.c_out) if shape.transposed else (shape.c_out, shape.c_in)
    each //= shape.groups
    if shape.groups > 1 and each > 1:
        return "grouped"
    if results <= _SMALL and each <= _SMALL:
        return "small"
    return "narrowing" if results * 2 <= each and shape.kernel_h > 1 else "other"
