"""Fused attention kernels compared with the rates that their authors published."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from simulator.devices.gpu.attention import attention_cost, blocks_of
from simulator.errors import InputError
from simulator.workload.operators import FusedAttention
from simulator.workload.precision import Precision
from tests.devices import find_gpu


def attention(
    direction: str, length: int, head: int, *, causal: bool = False, precision: Precision = "fp16"
) -> FusedAttention:
    """Return attention over 16384 tokens with a hidden size of 2048, as in the papers."""
    heads = 2048 // head
    return FusedAttention(
        direction,  # type: ignore[arg-type]
        16384 // length,
        heads,
        heads,
        length,
        length,
        head,
        causal,
        precision,
    )


def rate(device: str, kernel: FusedAttention) -> float:
    """Return the rate in FLOP/s; with a causal mask, only the computed half counts."""
    return kernel.flop / attention_cost(find_gpu(device), kernel).time_s


@pytest.mark.parametrize(
    ("device", "direction", "head", "tflops"),
    [
        ("a100-sxm4-80gb", "fwd", 64, 180),
        ("a100-sxm4-80gb", "fwd", 128, 220),
        ("a100-sxm4-80gb", "bwd", 64, 165),
        ("a100-sxm4-80gb", "bwd", 128, 185),
        ("h100-sxm5-80gb", "fwd", 64, 320),
        ("h100-sxm5-80gb", "fwd", 128, 375),
        ("h100-sxm5-80gb", "bwd", 64, 285),
        ("h100-sxm5-80gb", "bwd", 128, 325),
    ],
)
def test_long_sequences_run_at_published_rates(device: str, direction: str, head: int, tflops: float) -> None:
    assert rate(device, attention(direction, 8192, head)) == pytest.approx(tflops * 1e12, rel=0.12)


def test_short_sequences_and_masks_waste_more() -> None:
    for direction in ("fwd", "bwd"):
        long, short = (rate("a100-sxm4-80gb", attention(direction, n, 128)) for n in (16384, 512))
        masked = rate("a100-sxm4-80gb", attention(direction, 512, 128, causal=True))
        assert masked < 0.85 * short < 0.85 * long


def test_a_mask_halves_the_time_of_a_long_sequence() -> None:
    kernels = (attention("fwd", 16384, 128, causal=causal) for causal in (False, True))
    whole, half = (attention_cost(find_gpu("a100-sxm4-80gb"), kernel).time_s for kernel in kernels)
    assert half == pytest.approx(whole / 2, rel=0.06)


def test_time_grows_with_the_square_of_the_length() -> None:
    one = replace(attention("fwd", 4096, 128), batch=4)
    two = replace(one, query_length=8192, key_length=8192)
    times = [attention_cost(find_gpu("h100-sxm5-80gb"), kernel).time_s for kernel in (one, two)]
    assert times[1] == pytest.approx(4 * times[0], rel=0.07)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [64, 128, 256])
@pytest.mark.parametrize("window", [1, 100, 128, 1000, 4096])
def test_a_window_visits_the_tiles_that_hold_a_seen_score(rows: int, window: int) -> None:
    length, columns = 2048, 64
    kernel = replace(attention("fwd", length, 128, causal=True), window=window, batch=1, heads=2, kv_heads=2)
    found: Counter[float] = Counter()
    for first in range(0, length, rows):
        seen = {k // columns for q in range(first, first + rows) for k in range(max(0, q + 1 - window), q + 1)}
        found[float(len(seen))] += 2
    assert dict(blocks_of(kernel, rows=rows).lengths) == found


def test_the_share_of_scores_in_a_window() -> None:
    length = 1024
    for window in (1, 128, 1000):
        kernel = replace(attention("fwd", length, 128, causal=True), window=window)
        seen = sum(min(q + 1, window) for q in range(length)) / length**2
        assert kernel.seen == pytest.approx(seen, abs=1 / length)  # of the diagonal, half
    assert attention("fwd", length, 128, causal=True).seen == 0.5


@pytest.mark.parametrize("device", ["a100-sxm4-80gb", "h100-sxm5-80gb"])
def test_in_a_window_time_grows_with_the_length_not_its_square(device: str) -> None:
    short, long = (replace(attention("fwd", n, 64, causal=True), batch=1, window=128) for n in (8192, 32768))
    times = [attention_cost(find_gpu(device), kernel).time_s for kernel in (short, long)]
    assert times[1] == pytest.approx(4 * times[0], rel=0.1)


def test_few_blocks_leave_sms_idle() -> None:
    kernel = replace(attention("fwd", 512, 128), batch=1, heads=1, kv_heads=1)  # four blocks
    assert rate("a100-sxm4-80gb", kernel) < 4 / 108 * 312e12


def test_one_query_is_a_matter_of_reading_keys() -> None:
    kernel = replace(attention("fwd", 4096, 64), batch=64, query_length=1)
    least_s = kernel.bytes / find_gpu("a100-sxm4-80gb").memory_bandwidth_Bps
    assert least_s < attention_cost(find_gpu("a100-sxm4-80gb"), kernel).time_s < 4 * least_s


def test_fp32_runs_on_lanes() -> None:
    kernel = attention("fwd", 4096, 64, precision="fp32")
    assert attention_cost(find_gpu("a100-sxm4-80gb"), kernel).detail == "memory-efficient"
    assert rate("a100-sxm4-80gb", kernel) < find_gpu("a100-sxm4-80gb").peak("fp32")


def test_gaming_boards_have_matrix_units_too() -> None:
    assert attention_cost(find_gpu("rtx-4090"), attention("fwd", 4096, 64)).detail == "flash"


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match="no peak rate for bf16"):
        attention_cost(find_gpu("v100-sxm2-16gb"), attention("fwd", 512, 64, precision="bf16"))


@pytest.mark.parametrize(
    ("device", "direction", "head", "tflops"),
    [("h100-sxm5-80gb", "fwd", 128, 640), ("h100-sxm5-80gb", "bwd", 128, 565), ("h100-sxm5-80gb", "fwd", 64, 490)],
)
def test_kernels_of_the_own_generation_run_at_published_rates(
    device: str, direction: str, head: int, tflops: float
) -> None:
    kernel = replace(attention(direction, 8192, head), library="native")
    assert rate(device, kernel) == pytest.approx(tflops * 1e12, rel=0.12)


def test_exponentials_of_tensorrt_are_hidden_by_no_products_before_blackwell() -> None:
    """570 of 661 TFLOP/s (Shah et al., FlashAttention-3, 2024, table 2: without pipelining of softmax and products)."""
    third, plain = (replace(attention("fwd", 16384, 128), library=library) for library in ("native", "fmha2"))
    assert rate("h100-sxm5-80gb", plain) / rate("h100-sxm5-80gb", third) == pytest.approx(570 / 661, rel=0.03)
    assert rate("b200", plain) == rate("b200", third)
    short = replace(attention("fwd", 16, 128, causal=True), batch=64, heads=32, kv_heads=4, library="fmha2")
    alone = replace(short, kv_heads=32)  # heads that share keys have blocks of their own
    times = [attention_cost(find_gpu("h200-sxm"), kernel).time_s for kernel in (short, alone)]
    assert times[0] > 0.9 * times[1]


@pytest.mark.parametrize(("device", "tflops"), [("b200", 1500), ("gb200", 1700)])
def test_the_fourth_overlaps_softmax_on_blackwell(device: str, tflops: float) -> None:
    """1,613 TFLOP/s at most on a B200 (arXiv 2603.05451, abstract); 1,600 to 1,780 on a GB200 (cudnn-frontend)."""
    third, fourth = (replace(attention("fwd", 16384, 128), library=library) for library in ("native", "flash4"))
    assert rate(device, fourth) == pytest.approx(tflops * 1e12, rel=0.1)
    assert rate(device, fourth) > 1.1 * rate(device, third)
    for other in ("h100-sxm5-80gb", "a100-sxm4-80gb"):
        assert rate(other, fourth) == rate(other, third)


def test_backward_blocks_of_blackwell_are_no_taller_than_those_before() -> None:
    """Few heads, whose masked blocks differ most, leave no SM waiting for blocks of 256 keys."""
    few, many = (
        replace(attention("bwd", 4096, 128, causal=True), batch=1, heads=n, kv_heads=n, library="native")
        for n in (8, 64)
    )
    times = [attention_cost(find_gpu("gb200"), kernel).time_s for kernel in (few, many)]
    assert times[0] < 1.25 * times[1] / 8


@pytest.mark.parametrize(
    ("device", "length", "milliseconds"),
    [("h200-sxm", 8192, 16.16), ("gb200", 8192, 5.73), ("gb200", 4096, 1.61), ("gb300", 4096, 1.54)],
)
def test_wide_heads_take_longer_backward_in_kernels_of_the_own_generation(
    device: str, length: int, milliseconds: float
) -> None:
    """DeepSeek-V3's heads of 192 and 128 by cuDNN 9.19 (NVIDIA/cudnn-frontend)."""
    kernel = FusedAttention("bwd", 1, 128, 128, length, length, 160, True, "bf16", "native")
    assert 1e3 * attention_cost(find_gpu(device), kernel).time_s == pytest.approx(milliseconds, rel=0.12)
    for library, direction, slower in (("native", "bwd", 1.1), ("native", "fwd", 1.0), ("flash2", "bwd", 1.0)):
        each = replace(kernel, direction=direction, library=library)  # type: ignore[arg-type]
        wide, narrow = (rate(device, replace(each, head_size=head)) for head in (130, 128))
        assert narrow / wide == pytest.approx(slower, abs=0.11)


def test_blackwell_ultra_takes_twice_the_exponentials() -> None:
    ultra = find_gpu("gb300")
    plain = replace(ultra, generation="blackwell")
    kernel = replace(attention("fwd", 16384, 128), library="native")
    saved = attention_cost(plain, kernel).time_s / attention_cost(ultra, kernel).time_s
    assert ultra.traits.exponentials == 2.0 == 2 * plain.traits.exponentials
    assert 1.1 < saved < 1.2  # of 1,331 clocks for products and 482 for exponentials of a step, 241 fall out


@pytest.mark.parametrize(("device", "times"), [("h100-sxm5-80gb", 1.8), ("b200", 2.9), ("a100-sxm4-80gb", 1.0)])
def test_what_a_kernel_of_the_own_generation_is_worth(device: str, times: float) -> None:
    older, native = (
        attention_cost(find_gpu(device), replace(attention("fwd", 8192, 128), library=library)).time_s
        for library in ("flash2", "native")
    )
    assert older / native == pytest.approx(times, rel=0.12)


def test_heads_that_share_keys_fill_tiles_of_short_sequences() -> None:
    kernel = replace(attention("fwd", 16, 128, causal=True), batch=64, heads=32, kv_heads=4)
    for device in ("h200-sxm", "a100-sxm4-80gb", "l40s"):
        native = attention_cost(find_gpu(device), replace(kernel, library="native")).time_s
        assert native < 0.6 * attention_cost(find_gpu(device), kernel).time_s
    native = attention_cost(find_gpu("h200-sxm"), replace(kernel, library="native")).time_s
    whole = replace(kernel, kv_heads=32, library="native")
    assert attention_cost(find_gpu("h200-sxm"), whole).time_s > 1.5 * native


def test_a_tiny_call_takes_a_few_microseconds() -> None:
    kernel = replace(attention("fwd", 16, 64), batch=1, heads=1, kv_heads=1)
    for device in ("a100-sxm4-80gb", "h100-sxm5-80gb", "b200"):
        assert 3e-6 < attention_cost(find_gpu(device), kernel).time_s < 9e-6


def test_gradients_of_short_sequences_cost_more_than_products_alone_say() -> None:
    """BERT and ViT train on 128 to 512 tokens, where starting and ending a block takes a noticeable share."""
    for length, least in ((128, 0.3), (512, 0.6)):
        rates = [rate("a100-sxm4-80gb", attention(way, length, 64)) for way in ("fwd", "bwd")]
        long = [rate("a100-sxm4-80gb", attention(way, 8192, 64)) for way in ("fwd", "bwd")]
        assert all(least < short / whole < 1.0 for short, whole in zip(rates, long, strict=True))


def test_the_first_version_takes_up_to_twice_as_long() -> None:
    """A factor of around 2 (Dao, "FlashAttention-2", 2023, abstract); short sequences are bound by common costs."""
    device = find_gpu("a100-sxm4-80gb")
    for length, least in ((128, 1.0), (16384, 1.9)):
        second = attention("fwd", length, 128, causal=True)
        first = replace(second, library="flash1")
        assert least < attention_cost(device, first).time_s / attention_cost(device, second).time_s < 2.0


@pytest.mark.parametrize(("device", "gain"), [("h100-sxm5-80gb", 2.0), ("b200", 1.0)])
def test_blackwell_keeps_twice_the_rows_in_a_block(device: str, gain: float) -> None:
    """With half as many heads, whose blocks of 128 rows filled all SMs in two waves, the time halves."""
    sms = find_gpu(device).sm_count
    kernel = FusedAttention("fwd", 1, sms, 1, 256, 65536, 128, causal=False, precision="bf16", library="native")
    half = replace(kernel, heads=sms // 2)
    whole_s, half_s = (attention_cost(find_gpu(device), k).time_s for k in (kernel, half))
    assert whole_s / half_s == pytest.approx(gain, rel=0.1)


def test_32_bits_run_in_full_and_heads_that_share_keys_as_products() -> None:
    """Forward, 4,096 tokens of 32 heads on an H200 take 12.3 ms in fp32 and 7.7 in tf32 with 4 heads of keys."""
    device = find_gpu("h200-sxm")
    own = FusedAttention("fwd", 128, 1, 1, 2048, 2048, 64, True, "fp32")
    assert attention_cost(device, own) == attention_cost(device, replace(own, precision="tf32"))
    shared = FusedAttention("fwd", 1, 32, 4, 4096, 4096, 128, True, "fp32")
    both: tuple[Precision, ...] = ("fp32", "tf32")
    wide, rounded = (attention_cost(device, replace(shared, precision=p)) for p in both)
    assert (wide.detail, rounded.detail) == ("not fused", "not fused")
    assert wide.time_s == pytest.approx(12.3e-3, rel=0.1)
    assert rounded.time_s == pytest.approx(7.7e-3, rel=0.15)
    assert attention_cost(device, replace(shared, causal=False)).time_s == wide.time_s  # masks shorten no pass
    assert attention_cost(device, replace(shared, kv_heads=32)).time_s < 0.5 * wide.time_s
