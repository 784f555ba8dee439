"""Matrix products: conditions that hold on any device, checked in limits with a closed form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.constants import DEFAULT
from simulator.devices.gpu.gemm import gemm_cost, product_time
from simulator.devices.gpu.product import tiles_for
from simulator.devices.gpu.rates import arithmetic_rate, sustained_clock
from simulator.errors import InputError
from simulator.questions.calibration import Calibration
from simulator.workload.kernels import Gemm
from tests.devices import find_gpu

GEMM = DEFAULT["gemm"]


@pytest.mark.parametrize(
    ("name", "precision", "least"),
    [
        ("v100-sxm2-16gb", "fp32", 0.80),
        ("v100-sxm2-16gb", "fp16", 0.70),
        ("a100-pcie-40gb", "fp32", 0.75),
        ("h100-sxm5-80gb", "bf16", 0.65),
        ("h100-sxm5-80gb", "tf32", 0.55),
        ("p100-pcie-16gb", "fp32", 0.65),
    ],
)
def test_a_large_square_product_nears_the_rate_at_the_sustained_clock(name: str, precision: str, least: float) -> None:
    device = find_gpu(name)
    cost = gemm_cost(device, Gemm(8192, 8192, 8192, precision))  # type: ignore[arg-type]
    share = cost.flop / cost.time_s / arithmetic_rate(device, precision)  # type: ignore[arg-type]
    clock = sustained_clock(device, precision) / device.boost_clock_Hz
    assert least < share < clock
    assert cost.bound == "compute"


def test_a_tiny_product_takes_the_time_of_a_start() -> None:
    cost = gemm_cost(find_gpu("a100-pcie-40gb"), Gemm(8, 8, 8, "fp32"))
    assert GEMM.start_s < cost.time_s < 2.0 * GEMM.start_s
    assert cost.bound == "latency"


def test_one_tile_more_than_a_wave_costs_its_share_of_another_and_some_of_what_that_leaves_idle() -> None:
    # fp32 batches on Ampere use tiles of 128 x 128 and never split k: 108 SMs run 108 tiles at once.
    device = find_gpu("a100-pcie-40gb")
    one, full, more, two = (
        product_time(device, Gemm(128, 128, 4096, "fp32", batch=b)).compute_s for b in (54, 540, 541, 648)
    )
    assert one < full
    assert two / full == pytest.approx(6 / 5)
    assert (more - full) / (two - full) == pytest.approx(1 / 108 + GEMM.idle_late * 107 / 108)


def test_fewer_tiles_than_sms_take_the_time_of_one_tile() -> None:
    device = find_gpu("a100-pcie-40gb")
    few, all_ = (product_time(device, Gemm(128, 128, 4096, "fp32", batch=b)).compute_s for b in (30, 108))
    assert few == all_


def test_on_tensor_cores_a_wave_that_is_hardly_filled_takes_as_long_as_a_full_one() -> None:
    device = find_gpu("v100-sxm2-16gb")
    product = product_time(device, Gemm(4096, 4096, 4096, "fp16"))
    tiles = 4096 // product.tile.rows * (4096 // product.tile.columns) * product.parts
    waves = -(-tiles // device.sm_count)
    alone_s = 2.0 * product.tile.rows * product.tile.columns * 4096 / product.parts / product.tile.sm_flops_per_s
    assert product.compute_s == pytest.approx(waves * (alone_s + product.tile.edge_s))


def test_a_batch_on_ampere_pays_for_the_whole_tile() -> None:
    device = find_gpu("a100-pcie-40gb")
    half = product_time(device, Gemm(1024, 64, 1024, "fp32", batch=512))
    whole = product_time(device, Gemm(1024, 128, 1024, "fp32", batch=512))
    assert half.compute_s == whole.compute_s
    assert (half.tile.rows, half.tile.columns) == (128, 128)


def test_few_tiles_split_k() -> None:
    product = product_time(find_gpu("v100-sxm2-16gb"), Gemm(128, 128, 65536, "fp32"))
    assert product.parts > 8
    alone = 2.0 * 128 * 128 * 65536 / product.tile.sm_flops_per_s
    assert product.time_s < 0.2 * alone


def test_a_thin_product_takes_the_time_of_its_bytes() -> None:
    device = find_gpu("h100-sxm5-80gb")
    cost = gemm_cost(device, Gemm(8, 16384, 16384, "bf16"))
    least_s = cost.bytes / device.memory_bandwidth_Bps
    assert least_s < cost.time_s < 1.6 * least_s
    assert cost.bound == "memory"


def test_rows_far_apart_miss_the_translation_of_addresses_on_pascal() -> None:
    device = find_gpu("p100-pcie-16gb")
    near, far = (product_time(device, Gemm(4096, 4096, k, "fp32", layout="NT")) for k in (4096, 65536))
    assert near.walk_s < 0.3 * near.compute_s
    assert far.walk_s > far.compute_s
    assert product_time(device, Gemm(4096, 4096, 65536, "fp32", layout="TN")).walk_s == 0.0


def test_rows_that_share_pages_share_translations() -> None:
    # 8192 elements per row: 64 rows fill one page of 2 MB.  With 6144 they begin in one page and end in the next.
    device = find_gpu("p100-pcie-16gb")
    less, whole, more = (product_time(device, Gemm(32768, 2048, k, "fp32", layout="NT")) for k in (6144, 8192, 10240))
    assert whole.walk_s == 0.0
    assert 0.1 < less.walk_s / less.compute_s < more.walk_s / more.compute_s


def test_it_is_the_left_operand_whose_translations_are_forgotten() -> None:
    device = find_gpu("p4")
    tall, wide = (product_time(device, Gemm(m, n, 32768, "fp32", layout="NT")) for m, n in ((8192, 1024), (1024, 8192)))
    assert tall.walk_s > 1.2 * wide.walk_s


def test_splitting_k_on_ampere_costs_part_of_the_rate() -> None:
    device = find_gpu("a100-pcie-40gb")
    product = product_time(device, Gemm(512, 1024, 32768, "fp32", layout="NT"))
    assert product.parts > 1
    assert gemm_cost(device, Gemm(512, 1024, 32768, "fp32", layout="NT")).flop / product.time_s < 0.8 * device.peak(
        "fp32"
    )


def test_turning_both_operands_costs_time_where_issue_slots_are_short() -> None:
    p100, t4 = find_gpu("p100-pcie-16gb"), find_gpu("t4")
    turned, straight = (product_time(p100, Gemm(4096, 4096, 1024, "fp32", layout=x)).time_s for x in ("NT", "NN"))
    assert turned > 1.1 * straight
    turned, straight = (product_time(t4, Gemm(4096, 4096, 1024, "fp32", layout=x)).time_s for x in ("NT", "NN"))
    assert turned < 1.05 * straight


def test_kernels_of_volta_are_written_for_operands_along_k() -> None:
    v100 = find_gpu("v100-pcie-32gb")
    turned, straight = (product_time(v100, Gemm(4096, 4096, 1024, "fp32", layout=x)).time_s for x in ("NT", "NN"))
    assert turned < straight < 1.1 * turned


def test_operands_beyond_the_reach_of_translations_cost_more_to_walk() -> None:
    device = find_gpu("p4")
    small, large = (product_time(device, Gemm(n, n, 32768, "fp32", layout="NT")) for n in (1024, 8192))
    assert small.walk_s / small.compute_s < 0.6 * large.walk_s / large.compute_s


def test_products_on_tensor_cores_of_a_board_above_its_boost_clock_reach_what_was_measured() -> None:
    """PyTorch 2.7 on an RTX 4090, 4096 cubed (zzc0721/torch-performance-test-data, issue 78): above the data sheet."""
    device = find_gpu("rtx-4090")
    assert sustained_clock(replace(device, board_power_W=1000.0), "fp32") > device.boost_clock_Hz
    cost = gemm_cost(device, Gemm(4096, 4096, 4096, "fp16"))
    assert cost.flop / cost.time_s == pytest.approx(168.4e12, rel=0.06)


def test_numbers_without_units_of_their_own_are_computed_in_fp32() -> None:
    assert arithmetic_rate(find_gpu("v100-sxm2-16gb"), "tf32") == find_gpu("v100-sxm2-16gb").peak("fp32")
    assert arithmetic_rate(find_gpu("m40"), "fp16") == find_gpu("m40").peak("fp32")
    assert arithmetic_rate(find_gpu("titan-xp"), "int8") == 4.0 * find_gpu("titan-xp").peak("fp32")
    assert arithmetic_rate(find_gpu("mi210"), "fp32") == 45.3e12
    with pytest.raises(InputError, match="no peak rate for fp8"):
        arithmetic_rate(find_gpu("v100-sxm2-16gb"), "fp8")


def test_calibration_scales_arithmetic_and_memory_apart() -> None:
    device = find_gpu("t4")
    slow = replace(device, calibration=Calibration(compute=0.5))
    product, halved = (product_time(g, Gemm(4096, 4096, 4096, "fp32")) for g in (device, slow))
    assert halved.compute_s == pytest.approx(2.0 * product.compute_s)
    assert halved.memory_s == product.memory_s


def test_there_is_a_tile_for_every_device_and_precision() -> None:
    for name in ("k80-die", "m40", "p4", "t4", "rtx-3090", "l4", "b200", "mi25", "mi300x", "mi355x"):
        for batched in (False, True):
            assert tiles_for(find_gpu(name), "fp32", "NN", batched)


@pytest.mark.parametrize("name", ["a100-sxm4-80gb", "h100-sxm5-80gb", "b200", "v100-sxm2-16gb"])
def test_long_rows_do_not_slow_tensor_cores(name: str) -> None:
    """Large products of equal FLOPs take the same time whichever side is long: all are bound by arithmetic."""
    gpu = find_gpu(name)
    wide = gemm_cost(gpu, Gemm(2048, 49152, 12288, "fp16", layout="NT"))
    deep = gemm_cost(gpu, Gemm(2048, 12288, 49152, "fp16", layout="NT"))
    assert deep.bound == wide.bound == "compute"
    assert 1 / 1.3 < deep.time_s / wide.time_s < 1.3


# STAS MAMF (stas00/ml-engineering@744d01e1 compute/accelerator/README.md): the fastest product of any shape, TFLOP/s.
FASTEST = [
    *[("a100-sxm4-80gb", "bf16", 271.2), ("h100-sxm5-80gb", "bf16", 794.5), ("b200", "bf16", 1745.0)],
    *[("h100-sxm5-80gb", "fp8", 1403.0), ("h200-sxm", "fp8", 1453.0), ("b200", "fp8", 3433.0)],
    *[("mi300x", "bf16", 668.4), ("mi325x", "bf16", 784.9), ("mi355x", "bf16", 1565.2)],
]


@pytest.mark.parametrize(("name", "precision", "best"), FASTEST)
def test_no_large_product_beats_the_fastest_that_was_ever_measured(name: str, precision: str, best: float) -> None:
    sides = ((8192, 8192, 8192), (4096, 12288, 4096), (16384, 8192, 4096))
    kernels = [Gemm(m, n, k, precision) for m, n, k in sides]  # type: ignore[arg-type]
    rates = [1e-12 * kernel.flop / gemm_cost(find_gpu(name), kernel).time_s for kernel in kernels]
    assert 0.85 * best < max(rates) < 1.1 * best


def test_a_small_product_is_not_held_to_the_power_of_a_large_one() -> None:
    """Since Hopper, low board power slows products that fill the chip, but not those that leave most of it idle."""
    board = find_gpu("h100-sxm5-80gb")
    weak = replace(board, board_power_W=0.6 * board.board_power_W)
    small, large = Gemm(512, 512, 512, "bf16"), Gemm(8192, 8192, 8192, "bf16")
    assert gemm_cost(weak, small).time_s == pytest.approx(gemm_cost(board, small).time_s, rel=1e-3)
    assert gemm_cost(weak, large).time_s > 1.5 * gemm_cost(board, large).time_s


def test_the_clock_follows_the_figures_of_a_part_and_not_its_name() -> None:
    kernel = Gemm(4096, 4096, 4096, "fp32")
    known = find_gpu("gtx-1080-ti")
    mine = replace(known, name="my-card")
    assert gemm_cost(mine, kernel).time_s == gemm_cost(known, kernel).time_s
    assert gemm_cost(replace(mine, above_boost=False), kernel).time_s > 1.05 * gemm_cost(mine, kernel).time_s


def test_kernels_of_lanes_since_ampere_hide_latency_in_one_small_tile() -> None:
    """An H200 takes 5 to 7 us for 1,024 rows and 256 x 128 weights in fp32, not 14."""
    device = find_gpu("h200-sxm")
    assert product_time(device, Gemm(1024, 128, 256, "fp32", layout="NT")).time_s < 11e-6
    alone = DEFAULT["tensor_product.copies"].alone
    assert {tile.alone * tile.columns * tile.rows for tile in tiles_for(device, "fp32", "NT", False)} == {alone}
