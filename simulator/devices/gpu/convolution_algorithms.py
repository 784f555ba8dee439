"""What convolution algorithms share: the shape as one direction sees it, and a candidate with its time."""

from __future__ import annotations

from math import ceil
from typing import Literal, NamedTuple

from simulator.devices.gpu.blocks import ConvolutionCosts
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.devices.gpu.rates import compute_rate
from simulator.records import dataclass
from simulator.workload.operators import Conv2d, Convolution

SPLITS = (1, 2, 4, 8, 16, 32, 64)


class ConvolutionAlgorithm(NamedTuple):
    """An algorithm and its time; ``compute_s`` and ``memory_s`` are parts of it that may overlap."""

    time_s: float
    name: str
    compute_s: float
    memory_s: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Problem:
    """One direction of a convolution on a device, with the figures that every algorithm needs.

    ``rows`` and ``reduction`` are channels of one group: of the result, and of the reduction; for ``bwd_weight``,
    those of the result's gradient and of the images.  ``height`` and ``width`` are those of the output
    (``bwd_weight``: of the result's gradient).  ``hot_rate_flops_per_s`` is the rate of kernels that draw as much power
    as a large product.  ``bytes`` counts each tensor once, without the pixels that a stride skips.
    """

    gpu: Gpu
    costs: ConvolutionCosts
    shape: Conv2d
    direction: Literal["fwd", "bwd_data", "bwd_weight"]
    element_bytes: int
    rate_flops_per_s: float
    hot_rate_flops_per_s: float
    bandwidth_Bps: float
    c_in: int
    c_out: int
    taps: int
    pixels_in: int
    pixels_out: int
    pixels_touched: int
    rows: int
    reduction: int
    height: int
    width: int
    bytes: int

    @property
    def unit_stride(self) -> bool:
        """Whether the stride is 1 in both directions."""
        return self.shape.stride_h == 1 and self.shape.stride_w == 1

    @property
    def taps_of_a_place(self) -> int:
        """Largest number of taps summed into one pixel of the images' gradient: those of its phase of the stride."""
        shape = self.shape
        return ceil(shape.kernel_h / shape.stride_h) * ceil(shape.kernel_w / shape.stride_w)


def at_least(compute_s: float, memory_s: float) -> float:
    """Return the time of overlapping computation and transfer: the longer, or somewhat more where both are close."""
    return float((compute_s**4 + memory_s**4) ** 0.25)


def lane_share(gpu: Gpu, costs: ConvolutionCosts, direction: str = "fwd") -> float:
    """Return the efficiency of the fp32 lanes relative to Pascal's; AMD's have constants of their own."""
    traits = gpu.traits
    if traits.cudnn == 5:
        share = costs.kepler if traits.unfed_lanes else 1.0
        return share if direction == "bwd_weight" else costs.early * share
    return costs.separate_integers if traits.integers == "own" else 1.0


def problem(gpu: Gpu, kernel: Convolution, element_bytes: int) -> Problem:
    """Return *kernel* as a problem for the fp32 lanes of *gpu*."""
    costs = gpu.constants(ConvolutionCosts)
    shape, direction = kernel.shape, kernel.direction
    share = lane_share(gpu, costs, direction)
    c_in, c_out = shape.c_in // shape.groups, shape.c_out // shape.groups
    backward = direction == "bwd_data"
    taps = shape.kernel_h * shape.kernel_w
    pixels_in, pixels_out = shape.batch * shape.h_in * shape.w_in, shape.batch * shape.h_out * shape.w_out
    touched = pixels_in
    if taps == 1 and not backward:  # whole rows, as sectors include the skipped pixels
        touched = min(pixels_in, pixels_out * shape.stride_w)
    return Problem(
        gpu=gpu,
        costs=costs,
        shape=shape,
        direction=direction,
        element_bytes=element_bytes,
        rate_flops_per_s=share * compute_rate(gpu, "fp32", costs.energy),
        hot_rate_flops_per_s=share * compute_rate(gpu, "fp32"),
        bandwidth_Bps=achieved_bandwidth(gpu),
        c_in=c_in,
        c_out=c_out,
        taps=taps,
        pixels_in=pixels_in,
        pixels_out=pixels_out,
        pixels_touched=touched,
        rows=c_in if backward else c_out,
        reduction=c_out if backward else c_in,
        height=shape.h_in if backward else shape.h_out,
        width=shape.w_in if backward else shape.w_out,
        bytes=element_bytes * (touched * shape.c_in + shape.weight_elements + shape.output_elements),
    )
