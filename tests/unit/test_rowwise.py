"""Reductions over rows: the number of passes over memory, and when a row is still cached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.constants import DEFAULT
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.devices.gpu.rowwise import _held_slots, _softmax_threads, rowwise_cost
from simulator.workload.kernels import Rowwise, column_sum
from simulator.workload.precision import Precision
from tests.devices import find_gpu

ROWWISE, MEMORY = DEFAULT["rowwise"], DEFAULT["memory"]


def passes(device: Gpu, kind: str, cols: int, elements: int = 1 << 29) -> float:
    """Return the time in units of one long pass over the rows."""
    cost = rowwise_cost(device, Rowwise(kind, elements // cols, cols, "fp32"))
    return cost.time_s * achieved_bandwidth(device) / (elements // cols * cols * 4)


def test_short_rows_are_read_once_and_long_ones_three_times() -> None:
    p4 = find_gpu("p4")
    assert passes(p4, "softmax", 1024) == pytest.approx(2, rel=0.02)
    assert passes(p4, "softmax", 16384) == pytest.approx(4, rel=0.04)


def test_rows_that_fit_the_cache_together_are_found_again() -> None:
    small, large = find_gpu("p4"), replace(find_gpu("p4"), l2_bytes=1e9)
    assert passes(large, "softmax", 16384) < 0.6 * passes(small, "softmax", 16384)
    assert passes(replace(small, l2_bytes=0.0), "layer_norm", 2048) == pytest.approx(3, rel=0.1)


def test_layer_norm_of_long_rows_reads_twice_and_writes_once() -> None:
    assert passes(find_gpu("v100-pcie-32gb"), "layer_norm", 8192) == pytest.approx(3, rel=0.05)
    assert passes(find_gpu("v100-pcie-32gb"), "layer_norm_bwd", 8192) == pytest.approx(5, rel=0.05)


def test_a_cache_in_halves_keeps_less_than_a_smaller_whole_one() -> None:
    halves = find_gpu("a100-pcie-40gb")
    whole = replace(halves, l2_bytes=31e6)
    vars(whole)["traits"] = replace(whole.traits, split_l2=False)
    assert halves.l2_bytes > whole.l2_bytes
    assert passes(halves, "softmax", 12288) > 1.1 * passes(whole, "softmax", 12288)


@pytest.mark.parametrize(
    ("vectors", "threads"), [(1, 32), (320, 256), (512, 256), (640, 512), (1024, 512), (9999, 512)]
)
def test_threads_of_a_block_leave_half_of_the_row_to_whole_vectors(vectors: int, threads: int) -> None:
    assert _softmax_threads(vectors) == threads


def test_sums_read_once() -> None:
    assert passes(find_gpu("quadro-rtx-8000"), "sum", 4096) == pytest.approx(1 / ROWWISE.column_share, rel=0.05)


@pytest.mark.parametrize("part", ["a100-sxm4-40gb", "h100-pcie", "l4", "l40s"])
def test_few_long_rows_wait_for_their_loads_while_other_sms_idle(part: str) -> None:
    """KernelBench, layer norm of 16 x 4 M: 1,700 to 2,000 clocks for each 512 elements, on any chip."""
    device = find_gpu(part)
    few, many = (rowwise_cost(device, Rowwise("layer_norm", rows, 1 << 22, "fp32")).time_s for rows in (16, 160))
    assert few * device.light_clock_Hz / (1 << 13) == pytest.approx(1900, rel=0.15)
    assert many < 6 * few
    normed, rms = (
        rowwise_cost(device, Rowwise(kind, 16, 1 << 22, "fp32")).time_s for kind in ("layer_norm", "rms_norm")
    )
    assert rms < 0.8 * normed  # no mean, and no division for each element


def test_half_the_bytes_take_half_the_time() -> None:
    v100 = find_gpu("v100-pcie-32gb")
    full, half = (rowwise_cost(v100, Rowwise("softmax", 1 << 18, 1024, p)).time_s for p in ("fp32", "fp16"))  # type: ignore[arg-type]
    assert half == pytest.approx(full / 2, rel=0.1)


def test_few_rows_take_a_part_of_a_block_among_many() -> None:
    """LLMCompass, A100: softmax of 64 x 4096 in fp16 takes 15.7 us of the host's clock, of which the kernel has 5."""
    a100 = find_gpu("a100-sxm4-80gb")

    def time_s(rows: int) -> float:
        return rowwise_cost(a100, Rowwise("softmax", rows, 4096, "fp16")).time_s

    assert time_s(64) == pytest.approx(5.2e-6, rel=0.25)
    assert time_s(8) > 0.8 * time_s(64)  # each on an SM of its own; less memory is read
    one = rowwise_cost(a100, Rowwise("layer_norm", 1, 1024, "fp32"))
    assert one.time_s - MEMORY.start_s > ROWWISE.norm_row_s / 5
    full = rowwise_cost(a100, Rowwise("layer_norm", 108 * 16, 1024, "fp32"))
    assert full.time_s > ROWWISE.norm_row_s


def test_masked_rows_are_held_in_registers_whatever_their_length() -> None:
    a100 = find_gpu("a100-sxm4-80gb")
    for cols in (1024, 4096, 16384):
        assert passes(a100, "masked_softmax", cols) == pytest.approx(2, rel=0.06)
        assert passes(a100, "masked_softmax_bwd", cols) == pytest.approx(3, rel=0.06)


def test_a_causal_softmax_reads_what_the_mask_leaves() -> None:
    a100 = find_gpu("a100-sxm4-80gb")
    assert passes(a100, "causal_softmax", 2048) == pytest.approx(1.5, rel=0.06)
    assert passes(a100, "causal_softmax_bwd", 2048) == pytest.approx(2, rel=0.06)


@pytest.mark.parametrize(
    ("rows", "cols", "precision", "known_s"),
    [
        (65536, 1024, "fp16", 113.8e-6),
        (128, 1024, "bf16", 4.6e-6),
        (262144, 2048, "fp32", 1082e-6),
        (4776, 4096, "fp32", 64.6e-6),
        (256, 4096, "bf16", 4.4e-6),
        (32768, 12288, "fp16", 772e-6),
    ],
)
def test_softmax_of_todays_pytorch_holds_its_rows(rows: int, cols: int, precision: Precision, known_s: float) -> None:
    """In a warp, in a block's registers or in shared memory: torch 2.11 on an H200."""
    device, kernel = find_gpu("h200-sxm"), Rowwise("softmax", rows, cols, precision, in_warps=True)
    assert rowwise_cost(device, kernel).time_s == pytest.approx(known_s, rel=0.25)
    before = rowwise_cost(device, replace(kernel, in_warps=False)).time_s
    assert rowwise_cost(replace(device, libraries=(2025, 4)), kernel).time_s == before != known_s


def test_a_row_too_long_for_shared_memory_is_not_held() -> None:
    row = Rowwise("softmax", 4096, 12284, "fp32", in_warps=True)
    assert _held_slots(find_gpu("h200-sxm"), row) == 12284 * ROWWISE.shared_slots
    for cols in (12288, 12289):  # 48 KiB, and no multiple of 16 bytes
        assert not _held_slots(find_gpu("h200-sxm"), replace(row, cols=cols))
    assert rowwise_cost(find_gpu("h200-sxm"), row).bytes == 2 * 4096 * 12284 * 4


def test_layer_norm_waits_less_for_rows_in_the_cache() -> None:
    """As torch 2.11 on an H200, in bf16: 24 loads one after the other, twice."""
    device, kernel = find_gpu("h200-sxm"), Rowwise("layer_norm", 248, 12288, "bf16")
    time_s = rowwise_cost(device, kernel).time_s
    assert time_s == pytest.approx(15.8e-6, rel=0.2)
    waits_s = 48 * (MEMORY.load_clocks - MEMORY.cached_load_clocks) / device.light_clock_Hz
    without = rowwise_cost(replace(device, l2_bytes=0.0), kernel).time_s
    assert without - time_s == pytest.approx(waits_s, rel=0.15)


@pytest.mark.parametrize(
    ("columns", "rows", "precision", "measured_s"),
    [
        (128, 4 * 282 * 282, "bf16", 161.8e-6),
        (64, 4 * 388 * 388, "bf16", 88.9e-6),
        (256, 4 * 100 * 100, "bf16", 47.9e-6),
        (1024, 4096, "bf16", 12.5e-6),
        (3072, 8192, "bf16", 27.7e-6),
        (30522, 4096, "bf16", 76.1e-6),
        (128, 32768, "fp32", 39.4e-6),
    ],
)
def test_the_last_block_of_a_sum_down_columns_adds_up_what_the_others_left(
    columns: int, rows: int, precision: Precision, measured_s: float
) -> None:
    """Gradients of biases on an H200, torch 2.11: our own measurement."""
    kernel = column_sum(columns, rows, precision)
    found_s = rowwise_cost(find_gpu("h200-sxm"), kernel).time_s
    assert found_s == pytest.approx(measured_s, rel=0.15)
    assert found_s >= rowwise_cost(find_gpu("h200-sxm"), replace(kernel, own=False)).time_s


def test_a_sum_of_few_rows_needs_no_other_block() -> None:
    kernel = column_sum(4096, 256, "fp32")  # 64 values for each thread
    few, by_library = (rowwise_cost(find_gpu("h200-sxm"), each).time_s for each in (kernel, replace(kernel, own=False)))
    assert few == by_library


def test_blocks_of_32_columns_sum_the_gradients_of_a_norms_weights() -> None:
    """On an H200, 4,096 rows of 1,024 take 22 us in fp32, 8,192 of 768 take 42 and 2,048 of 4,096 take 21."""
    device, kernel = find_gpu("h200-sxm"), Rowwise("layer_norm_weight_bwd", 4096, 1024, "fp32", own=True)
    block_Bps = ROWWISE.column_clock_bytes * device.light_clock_Hz
    few_s, more_s = (rowwise_cost(device, replace(kernel, rows=n)).time_s for n in (1 << 15, 1 << 16))
    assert more_s - few_s == pytest.approx(2 * (1 << 15) * 4096 / (32 * block_Bps), rel=0.1)
    for rows, cols, known_s in ((4096, 1024, 22e-6), (8192, 768, 42.4e-6), (2048, 4096, 21.4e-6)):
        time_s = rowwise_cost(device, replace(kernel, rows=rows, cols=cols)).time_s
        assert time_s == pytest.approx(known_s, rel=0.2)
    assert rowwise_cost(device, replace(kernel, own=False)).time_s < 0.8 * rowwise_cost(device, kernel).time_s


def test_many_rows_of_few_columns_are_divided_among_blocks() -> None:
    """PyTorch's layer_norm_kernel.cu: above 65,536 rows, where columns give blocks to less than half of the SMs."""
    device, kernel = find_gpu("h200-sxm"), Rowwise("rms_norm_weight_bwd", 1 << 16, 128, "bf16", own=True)
    whole_s, divided_s = (rowwise_cost(device, replace(kernel, rows=n)).time_s for n in (1 << 16, (1 << 16) + 1))
    assert divided_s < whole_s / 8
