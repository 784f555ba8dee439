"""Memory-bound streams: bytes, arithmetic, and the shortest kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.constants import DEFAULT
from simulator.devices.gpu.memory import StreamingCosts, achieved_bandwidth, gather_cost, pooling_cost, streaming_cost
from simulator.devices.optimizer import optimizer_kernels
from simulator.questions.calibration import Calibration
from simulator.workload.kernels import Streaming
from simulator.workload.operators import Gather, Pooling
from tests.devices import find_gpu

MEMORY = DEFAULT["memory"]
GATHER = DEFAULT["gather"]
STREAMING = DEFAULT(StreamingCosts)

N = 1 << 28


def unary(function: str, n: int = N) -> Streaming:
    return Streaming(function, n, 4 * n, 4 * n)


def test_a_long_pass_takes_its_bytes_at_the_achieved_bandwidth() -> None:
    v100 = find_gpu("v100-pcie-32gb")
    cost = streaming_cost(v100, unary("relu"))
    assert cost.bound == "memory"
    assert cost.time_s == pytest.approx(MEMORY.start_s + 8 * N / achieved_bandwidth(v100), rel=1e-6)


def test_the_shortest_kernel_is_all_start() -> None:
    cost = streaming_cost(find_gpu("a100-pcie-40gb"), unary("relu", 1))
    assert cost.bound == "latency"
    assert cost.time_s == pytest.approx(MEMORY.start_s, rel=1e-3)


def test_powers_are_bound_by_lanes_where_they_do_the_integer_work_too_and_are_few() -> None:
    power = unary("pow_scalar")
    assert streaming_cost(find_gpu("p100-pcie-16gb"), power).bound == "compute"
    assert streaming_cost(find_gpu("v100-pcie-32gb"), power).bound == "memory"
    assert streaming_cost(find_gpu("p4"), power).bound == "memory"  # twice the lanes for a quarter of the bandwidth


def test_arithmetic_follows_the_clock_and_bytes_do_not() -> None:
    p100 = find_gpu("p100-pcie-16gb")
    slower = replace(p100, calibration=Calibration(compute=0.5))
    assert streaming_cost(slower, unary("pow_scalar")).time_s > 1.9 * streaming_cost(p100, unary("pow_scalar")).time_s
    assert streaming_cost(slower, unary("relu")).time_s == streaming_cost(p100, unary("relu")).time_s


def test_a_function_with_a_number_costs_what_it_costs_with_a_tensor() -> None:
    slow = replace(find_gpu("p100-pcie-16gb"), calibration=Calibration(compute=0.01))
    one, two = (Streaming(function, N, 8 * N, 4 * N) for function in ("div_scalar", "div"))
    assert streaming_cost(slow, one).time_s == streaming_cost(slow, two).time_s
    assert streaming_cost(slow, two).time_s > streaming_cost(slow, replace(two, function="add")).time_s


# Kernels of steps of torch 2.11 on one H200, in us: of a BERT, a GPT-2 and a U-Net in autocast, by their traces.
@pytest.mark.parametrize(
    ("kernel", "measured_us"),
    [
        (Streaming("copy", 525_336_576, 2 * 525_336_576, 4 * 525_336_576, "casts"), 1508.4),
        (Streaming("copy", 100_663_296, 2 * 100_663_296, 4 * 100_663_296, "casts"), 288.0),
        (Streaming("copy", 525_336_576, 4 * 525_336_576, 2 * 525_336_576), 718.8),
        (Streaming("mul", 25_165_824, 6 * 25_165_824, 4 * 25_165_824, "casts"), 100.4),
        (Streaming("where", 100_663_296, 2 * 100_663_296, 2 * 100_663_296), 253.9),
        (Streaming("add", 33_554_432, 2 * 33_554_432, 2 * 33_554_432), 84.8),
        (Streaming("add", 33_554_432, 4 * 33_554_432, 2 * 33_554_432), 46.6),
        (Streaming("copy", 12_845_056, 2 * 12_845_056, 2 * 12_845_056, "transposed"), 82.5),
        (replace(optimizer_kernels("adam", 320 * 65_536, fused=True)[0], form="tensors"), 181.4),
        (Streaming("dropout", 100_663_296, 4 * 100_663_296, 5 * 100_663_296), 276.6),
        (Streaming("gelu_bwd", 16_777_216, 4 * 16_777_216, 2 * 16_777_216), 32.8),
        (Streaming("silu_bwd", 29_360_128, 4 * 29_360_128, 2 * 29_360_128), 47.5),
    ],
    ids=[
        "weights to fp32",
        "scores to fp32",
        "to bf16",
        "mixed",
        "mask",
        "broadcast",
        "whole",
        "transposed",
        "adam",
        "dropout",
        "gelu'",
        "silu'",
    ],
)
def test_the_form_of_a_pass_bounds_it_where_memory_is_fast(kernel: Streaming, measured_us: float) -> None:
    h200 = find_gpu("h200-sxm")
    assert streaming_cost(h200, kernel.by_index()).time_s * 1e6 == pytest.approx(measured_us, rel=0.07)


def test_memory_bounds_every_form_where_it_is_slow() -> None:
    t4 = find_gpu("t4")
    for form in ("casts", "strided", "tensors"):
        kernel = unary("copy")
        assert streaming_cost(t4, replace(kernel, form=form)).time_s == streaming_cost(t4, kernel).time_s


def test_a_transposition_looks_up_a_line_for_each_element() -> None:
    a100 = find_gpu("a100-sxm4-80gb")
    lines_s = N / (a100.sm_count * a100.boost_clock_Hz)
    assert streaming_cost(a100, replace(unary("copy"), form="transposed")).time_s > lines_s


def test_in_place_stays_in_the_cache_twice_as_long() -> None:
    h100 = find_gpu("h100-sxm5-80gb")
    n = int(0.6 * h100.l2_bytes) // 4
    assert streaming_cost(h100, unary("relu_inplace", n)).time_s < 0.8 * streaming_cost(h100, unary("relu", n)).time_s


def test_todays_lookups_copy_whole_rows() -> None:
    """On an H200, torch 2.11 looks up 32,768 rows of 512 bytes in 21.1 us, and 9,494 of 2 KiB in 7.3 us."""
    h200 = find_gpu("h200-sxm")
    short, wide = Gather("fwd", 32768, 128, 0, "fp32"), Gather("fwd", 9494, 1024, 0, "bf16")
    assert gather_cost(h200, short).time_s == pytest.approx(21.1e-6, rel=0.15)
    assert gather_cost(h200, wide).time_s == pytest.approx(7.3e-6, rel=0.3)
    blocks_s = 32768 / MEMORY.blocks_per_clock / h200.light_clock_Hz
    assert gather_cost(h200, short).time_s == pytest.approx(MEMORY.start_s + blocks_s)
    assert gather_cost(h200, replace(short, cols=64)).time_s == gather_cost(h200, short).time_s
    taken = [replace(wide, whole_rows=False), replace(wide, cols=1023)]  # rows at no multiple of 16 bytes
    assert all(gather_cost(h200, kernel).time_s > 2 * gather_cost(h200, wide).time_s for kernel in taken)
    of_2024 = replace(h200, libraries=(2024, 7))
    assert gather_cost(of_2024, wide).time_s == gather_cost(h200, taken[0]).time_s


def test_few_lookups_add_their_gradients_in_one_kernel_and_many_are_sorted() -> None:
    v100 = find_gpu("v100-pcie-32gb")
    few, many = (gather_cost(v100, Gather("bwd", rows, 1024, 0, "fp32")) for rows in (3072, 3073))
    assert (few.detail, many.detail) == ("rows", "sort")
    assert many.time_s - few.time_s == pytest.approx(GATHER.sort_s - GATHER.few_s, rel=0.01)


def test_the_gradient_of_a_table_is_written_whole() -> None:
    v100 = find_gpu("v100-pcie-32gb")
    small, large = (gather_cost(v100, Gather("bwd", 1024, 1024, n, "fp32")).time_s for n in (0, 50_000))
    assert large - small == pytest.approx(50_000 * 4096 / achieved_bandwidth(v100, 0.0), rel=0.01)


def test_pooling_backward_writes_the_image() -> None:
    v100 = find_gpu("v100-pcie-32gb")
    forward = pooling_cost(v100, Pooling("avg", "fwd", 1 << 26, 1 << 24, 9, "fp32"))
    backward = pooling_cost(v100, Pooling("avg", "bwd", 1 << 26, 1 << 24, 9, "fp32"))
    least_s = ((4 << 26) + (4 << 24)) / v100.memory_bandwidth_Bps
    assert least_s < forward.time_s <= backward.time_s < 3 * least_s


def test_a_maximum_takes_what_profiles_show() -> None:
    """ResNet-50's in fp16 at batch 128 on an A100: 0.65 and 0.77 ms forward, 2.3 and 1.5 ms backward."""
    a100, written = find_gpu("a100-sxm4-40gb"), 128 * 64 * 56 * 56
    for direction, least_s, most_s in (("fwd", 0.5e-3, 0.8e-3), ("bwd", 1.4e-3, 2.3e-3)):
        kernel = Pooling("max", direction, 4 * written, written, 9, "fp16")  # type: ignore[arg-type]
        assert least_s < pooling_cost(a100, kernel).time_s < most_s


def test_an_optimiser_in_steps_moves_more_than_a_fused_one() -> None:
    def passes(*, fused: bool) -> float:
        return sum(kernel.bytes for kernel in optimizer_kernels("adam", 1000, fused=fused)) / 4000

    assert passes(fused=True) == 7  # reads parameter, gradient and two moments; writes all but the gradient
    assert passes(fused=False) == 18


def test_dropout_waits_for_each_load() -> None:
    v100 = find_gpu("v100-pcie-32gb")
    kernel = Streaming("dropout", N, 4 * N, 5 * N)
    loads = N / (v100.sm_count * 4 * 1024)  # four elements of each of 1,024 threads
    cost, known_s = streaming_cost(v100, kernel), streaming_cost(v100, replace(kernel, function="relu")).time_s
    assert cost.time_s == pytest.approx(known_s + loads * MEMORY.load_clocks / v100.light_clock_Hz, rel=1e-9)
    assert streaming_cost(v100, replace(kernel, function="dropout_bwd")).time_s == known_s  # the mask already exists
    joined = Streaming("dropout_add", N, 8 * N, 5 * N)
    apart_s = cost.time_s + streaming_cost(v100, Streaming("add", N, 8 * N, 4 * N)).time_s
    assert cost.time_s <= streaming_cost(v100, joined).time_s < apart_s


def test_products_of_32_bits_take_amd_longer() -> None:
    assert STREAMING.amd_product_slots > 4 * STREAMING.product_slots
    mi250 = find_gpu("mi250-gcd")
    plain_s = streaming_cost(mi250, Streaming("relu", N, 4 * N, 5 * N)).time_s
    assert streaming_cost(mi250, Streaming("dropout", N, 4 * N, 5 * N)).time_s > 1.3 * plain_s


@pytest.mark.parametrize(
    ("device", "direction", "shape", "window", "measured_s"),
    [
        ("h200-sxm", "fwd", (64, 64, 112, 56), 9, 215e-6),
        ("h200-sxm", "bwd", (64, 64, 112, 56), 9, 456e-6),
        ("a100-sxm4-40gb", "fwd", (128, 64, 112, 56), 9, 0.77e-3),
        ("a100-sxm4-40gb", "bwd", (128, 64, 112, 56), 9, 1.5e-3),
    ],
)
def test_a_maximum_waits_for_the_instructions_that_find_its_windows(
    device: str, direction: str, shape: tuple[int, int, int, int], window: int, measured_s: float
) -> None:
    """The first pooling of ResNet-50, pixel by pixel: bf16 on an H200 (our own), fp16 on an A100 (a profile)."""
    images, channels, side, less = shape
    sizes = images * channels * side**2, images * channels * less**2, window
    kernel = Pooling("max", direction, *sizes, "fp16")  # type: ignore[arg-type]
    assert pooling_cost(find_gpu(device), kernel).time_s == pytest.approx(measured_s, rel=0.1)
