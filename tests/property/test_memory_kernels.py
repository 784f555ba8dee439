"""Memory-bound kernels of any size on any GPU: never above the peak bandwidth, never slower for less data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.devices.gpu import Gpu
from simulator.devices.predict import kernel_cost
from simulator.questions.calibration import Calibration
from simulator.workload.kernels import Kernel, PassForm, Rowwise, Streaming
from simulator.workload.operators import Gather, Pooling
from simulator.workload.precision import ELEMENT_BYTES, Precision
from tests.devices import find_gpu

KINDS = ("softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm")
NAMES = (
    "k80-die",
    "m40",
    "p4",
    "p100-sxm2-16gb",
    "v100-sxm2-16gb",
    "t4",
    "rtx-3090",
    "l4",
    "h100-sxm5-80gb",
    "b200",
    "mi300x",
)
gpus = st.sampled_from([find_gpu(name) for name in NAMES])
precisions = st.sampled_from(["fp32", "fp16", "bf16"])
rows = st.integers(1, 1 << 20)
cols = st.integers(1, 1 << 15)
kinds = st.sampled_from([f"{kind}{end}" for kind in KINDS for end in ("", "_bwd")] + ["sum", "layer_norm_weight_bwd"])


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    precision: Precision = draw(precisions)
    n = draw(st.integers(1, 1 << 30))
    size = ELEMENT_BYTES[precision]
    made = draw(st.sampled_from(["streaming", "rowwise", "pooling", "gather"]))
    if made == "streaming":
        function = draw(
            st.sampled_from(["add", "relu", "gelu", "dropout", "pow_scalar", "copy", "adam_step", "relu_inplace"])
        )
        form = draw(st.sampled_from(get_args(PassForm)))
        return Streaming(function, n, n * size, n * size, form)
    if made == "rowwise":
        return Rowwise(draw(kinds), draw(rows), draw(cols), precision)
    if made == "pooling":
        kind, direction = draw(st.sampled_from(["max", "avg"])), draw(st.sampled_from(["fwd", "bwd"]))
        return Pooling(kind, direction, n, max(1, n // 4), 9, precision)
    return Gather(
        draw(st.sampled_from(["fwd", "bwd"])), draw(rows), draw(cols), draw(st.integers(0, 100_000)), precision
    )


@given(gpus, kernels())
def test_times_are_finite_and_no_shorter_than_a_start(gpu: Gpu, kernel: Kernel) -> None:
    cost = kernel_cost(gpu, kernel)
    assert math.isfinite(cost.time_s)
    assert cost.time_s >= 1e-6


@given(gpus, kernels())
def test_without_a_cache_nothing_beats_the_memory_of_the_data_sheet(gpu: Gpu, kernel: Kernel) -> None:
    bare = replace(gpu, l2_bytes=0.0)
    assert kernel_cost(bare, kernel).time_s >= kernel.bytes / gpu.memory_bandwidth_Bps


@given(gpus, kinds, rows, cols, precisions, st.integers(2, 8))
def test_more_rows_take_no_less_time(gpu: Gpu, kind: str, n: int, width: int, precision: Precision, more: int) -> None:
    # More channels of batch normalisation fill the machine better, but never take less time.  A sum over everything
    # waits for one block's loads, which sums of rows are not known to do.
    assume(kind != "sum" or n > 1)
    fewer, many = (kernel_cost(gpu, Rowwise(kind, count, width, precision)).time_s for count in (n, n * more))
    assert many >= fewer * (1 - 1e-9)


@given(gpus, st.integers(1, 1 << 28), st.integers(2, 8))
def test_longer_passes_take_no_less_time(gpu: Gpu, n: int, more: int) -> None:
    short, long = (kernel_cost(gpu, Streaming("add", m, 8 * m, 4 * m)).time_s for m in (n, n * more))
    assert long >= short


@given(gpus, kernels(), st.floats(1.0, 3.0))
def test_more_bandwidth_never_slows(gpu: Gpu, kernel: Kernel, factor: float) -> None:
    faster = replace(gpu, calibration=Calibration(bandwidth=factor))
    assert kernel_cost(faster, kernel).time_s <= kernel_cost(gpu, kernel).time_s * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_every_generation_is_among_the_devices(name: str) -> None:
    assert find_gpu(name) is not None
