"""Convolutions of any shape: finite cost, never below the least possible, never cheaper for more work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.devices.gpu.convolution import convolution_cost
from simulator.workload.operators import Conv2d, Convolution
from tests.devices import find_gpu

DEVICES = ("k80-die", "m40", "p100-pcie-16gb", "t4", "v100-sxm2-16gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "vega-fe")
MOST_SAVED = 9.0  # the most by which FFT and Winograd reduce the arithmetic of the direct algorithm


@st.composite
def shapes(draw: st.DrawFn) -> Conv2d:
    kernel = draw(st.sampled_from((1, 3, 5, 7, 11)))
    groups = draw(st.sampled_from((1, 1, 1, 2, 32)))
    size = draw(st.integers(kernel, 128))
    stride = draw(st.integers(1, 3))
    return Conv2d(
        batch=draw(st.integers(1, 128)),
        c_in=groups * draw(st.integers(1, 512)),
        c_out=groups * draw(st.integers(1, 512)),
        h_in=size,
        w_in=draw(st.integers(kernel, 128)),
        kernel_h=kernel,
        kernel_w=kernel,
        stride_h=stride,
        stride_w=stride,
        pad_h=kernel // 2,
        pad_w=kernel // 2,
        groups=groups,
        dilation_h=1,
        dilation_w=1,
    )


kernels = st.builds(
    Convolution,
    shapes(),
    st.sampled_from(("fwd", "bwd_data", "bwd_weight")),
    st.sampled_from(("fp32", "fp16")),
)


@pytest.mark.parametrize("device", DEVICES)
@given(kernel=kernels)
def test_costs_are_finite_and_no_less_than_what_must_be_done(device: str, kernel: Convolution) -> None:
    this = find_gpu(device)
    if kernel.precision not in this.peak_flops_per_s:
        kernel = replace(kernel, precision="fp32")
    cost = convolution_cost(this, kernel)
    least_s = kernel.flop / (MOST_SAVED * max(this.peak("fp32"), this.peak(kernel.precision)))
    assert least_s / 1.2 < cost.time_s < 1e4  # 1.2: consumer boards run above the boost clock
    shape = kernel.shape
    if shape.kernel_h * shape.kernel_w > 1:  # a 1x1 kernel can skip rows of pixels
        assert cost.bytes >= kernel.bytes
    assert cost.bytes * shape.stride_h >= kernel.bytes
    assert cost.flop == kernel.flop
    assert cost.detail


@pytest.mark.parametrize("device", ["p100-pcie-16gb", "v100-sxm2-16gb", "vega-fe"])
@given(kernel=kernels)
def test_twice_the_images_cost_no_less(device: str, kernel: Convolution) -> None:
    this = find_gpu(device)
    if kernel.precision not in this.peak_flops_per_s:
        kernel = replace(kernel, precision="fp32")
    doubled = replace(kernel, shape=replace(kernel.shape, batch=2 * kernel.shape.batch))
    # More blocks on an SM hide each other's latencies, so that a few per cent may be gained.
    assert convolution_cost(this, doubled).time_s >= 0.95 * convolution_cost(this, kernel).time_s
