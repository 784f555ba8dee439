"""CPUs as compute devices: their figures, threads, caches, and the cost of each class of kernels."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from simulator.api import load_machine
from simulator.cli import run
from simulator.devices.cpu import Cache, Cpu, cpu_from_part, effective_cores, peak_rate, region_time
from simulator.devices.cpu.memory import bandwidth
from simulator.devices.dispatch import dispatch_time
from simulator.devices.predict import kernel_cost, operator_costs
from simulator.errors import InputError
from simulator.questions.calibration import Calibration
from simulator.questions.where import CPU_LIBRARIES, CpuLibrary
from simulator.topology import catalogue
from simulator.topology.parts import CpuPart
from simulator.workload.kernels import Gemm, Streaming
from simulator.workload.operators import (
    Attention,
    BatchNorm,
    Conv2d,
    Elementwise,
    Embedding,
    Gather,
    Linear,
    MatMul,
    Operator,
    Pool,
    Recurrent,
    Softmax,
)
from tests.asked import exchange_on

# 2 sockets of 4 cores at 2 GHz, with 32 FLOPs per cycle and 2 threads per core; 40 GB/s per socket, 10 GB/s per core.
PLAIN = Cpu(
    name="plain",
    vendor="other",
    generation="",
    cores_per_socket=4,
    threads_per_core=2,
    sockets=2,
    threads=8,
    clock_Hz=2e9,
    turbo_clock_Hz=3e9,
    vector_bits=256,
    flop_per_cycle={"fp64": 16, "fp32": 32},
    memory_bandwidth_Bps=40e9,
    core_bandwidth_Bps=10e9,
    memory_bytes=math.inf,
    caches=(Cache(32e3, 1), Cache(256e3, 1), Cache(8e6, 4)),
)
OPERATORS: list[Operator] = [
    Linear(64, 512, 256),
    MatMul(96, 80, 64, batch=12),
    Conv2d(4, 16, 32, 28, 28, 3, 3, pad_h=1, pad_w=1),
    Elementwise("gelu", 100_000),
    Softmax(128, 1000),
    Pool("max", 4, 16, 28, 28, 14, 14, 2, 2),
    Embedding(512, 64, vocabulary=1000),
    Recurrent("lstm", 16, 10, 64, 64),
    Attention(2, 4, 64, 64, 32),
]


def part(name: str) -> CpuPart:
    found = catalogue.load_part(name)
    assert isinstance(found, CpuPart)
    return found


def used(threads: int, cpu: Cpu = PLAIN) -> Cpu:
    return replace(cpu, threads=threads)


def seconds(cpu: Cpu, operator: Operator, phase: str = "fwd", precision: str = "fp32") -> float:
    costs = operator_costs(cpu, operator, phase, precision)  # type: ignore[arg-type]
    return sum(cost.time_s for cost in costs)


# -- figures -------------------------------------------------------------------------


@pytest.mark.parametrize("name", catalogue.part_names("cpu"))
@pytest.mark.parametrize("phase", ["fwd", "bwd"])
def test_every_cpu_of_the_catalogue_computes(name: str, phase: str) -> None:
    cpu = cpu_from_part(name, part(name))
    assert cpu.threads == part(name).core_count, "one thread for each physical core"
    for operator in OPERATORS:
        assert 0 < seconds(cpu, operator, phase) < 1


def test_peak_is_cores_times_flops_times_clock() -> None:
    both = cpu_from_part("e5", part("xeon-e5-2630-v3"), sockets=2)
    assert both.peak("fp32") == pytest.approx(16 * 32 * 2.6e9)
    assert both.peak_flops_per_s["fp64"] == pytest.approx(16 * 16 * 2.6e9)
    one = cpu_from_part("e5", part("xeon-e5-2630-v3"), sockets=2, threads=1)
    assert one.peak("fp32") == pytest.approx(32 * 3.2e9 * 2.1 / 2.4), "a core alone turns faster, less so with vectors"


def test_sockets_of_a_machine_add_their_memory() -> None:
    item = part("xeon-e5-2630-v3").model_copy(update={"memory_size": 32e9})
    assert cpu_from_part("e5", item, sockets=2).memory_bytes == 64e9
    assert cpu_from_part("e5", part("xeon-e5-2630-v3")).memory_bytes == math.inf


def test_missing_figures_are_named_together() -> None:
    bare = CpuPart(kind="cpu", core_count=4)
    with pytest.raises(InputError, match="x: the part has no clock, flop_per_cycle, memory_bandwidth;"):
        cpu_from_part("x", bare)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sockets": 0}, "at least one socket"),
        ({"threads": 0}, "at least one thread"),
        (
            {"library": "mkl"},
            "no such library of CPU kernels: mkl; there are onednn, blas, torch7, mshadow, cntk, eigen",
        ),
    ],
)
def test_odd_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        cpu_from_part("x", part("epyc-7742"), **options)  # type: ignore[arg-type]


def test_precisions_are_those_of_the_part() -> None:
    with pytest.raises(InputError, match="this CPU does not compute in bf16; the part has fp64, fp32"):
        seconds(PLAIN, Linear(64, 64, 64), precision="bf16")
    tiles = cpu_from_part("spr", part("xeon-platinum-8480c"))
    big = Linear(4096, 4096, 4096)
    assert seconds(tiles, big, precision="bf16") < seconds(tiles, big) / 8


# -- threads -------------------------------------------------------------------------


def test_threads_above_the_cores_wait_for_the_busiest() -> None:
    assert effective_cores(PLAIN, 8) == 8
    assert effective_cores(PLAIN, 9) == pytest.approx(4.5 * 0.8)
    assert effective_cores(PLAIN, 16) == pytest.approx(8 * 0.8)


def test_a_region_of_one_thread_is_free_and_too_many_wait_for_the_scheduler() -> None:
    assert region_time(PLAIN, 1) == 0
    assert 0 < region_time(PLAIN, 2) < region_time(PLAIN, 8) < region_time(PLAIN, 16) < 20e-6
    assert region_time(PLAIN, 32) > 1e-3


def test_compute_scales_with_cores_and_their_clock() -> None:
    assert peak_rate(PLAIN, "fp32", 1) == pytest.approx(32 * 3e9)
    assert peak_rate(PLAIN, "fp32", 8) == pytest.approx(8 * 32 * 2e9)


@pytest.mark.parametrize("library", CPU_LIBRARIES)
def test_the_best_number_of_threads_is_that_of_the_cores(library: str) -> None:
    cpu = replace(PLAIN, library=library)  # type: ignore[arg-type]
    conv = Conv2d(16, 64, 64, 56, 56, 3, 3, pad_h=1, pad_w=1)
    times = {n: seconds(used(n, cpu), conv) for n in (1, 2, 4, 8, 9, 16, 64)}
    assert min(times, key=times.__getitem__) == 8
    assert times[1] > times[2] > times[4] > times[8]
    assert times[64] >= times[16], "with 16 images, Torch7 leaves threads idle"


def test_small_operators_gain_nothing_from_threads() -> None:
    for operator in (MatMul(32, 32, 32), MatMul(8, 8, 8), Elementwise("relu", 1000), Softmax(8, 64)):
        assert seconds(used(8), operator) >= seconds(used(1), operator) * 0.999


@pytest.mark.parametrize("library", CPU_LIBRARIES)
def test_most_frameworks_of_2016_pass_over_memory_with_one_thread(library: CpuLibrary) -> None:
    relu, cpu = Elementwise("relu", 10_000_000), replace(PLAIN, library=library)
    if library in ("onednn", "eigen"):
        assert seconds(used(8, cpu), relu) < seconds(used(1, cpu), relu) / 2
    else:
        assert seconds(used(8, cpu), relu) == pytest.approx(seconds(used(1, cpu), relu))


def test_torch7_gives_whole_images_to_threads_and_keeps_what_it_unrolled() -> None:
    cpu = replace(PLAIN, library="torch7")
    images, few = (Conv2d(count, 64, 64, 56, 56, 3, 3, pad_h=1, pad_w=1) for count in (16, 4))
    for phase in ("fwd", "bwd_data"):
        alone_s, shared_s = seconds(used(1, cpu), images, phase), seconds(used(8, cpu), images, phase)
        assert alone_s / shared_s == pytest.approx(8 * 2.0 / 3.0, rel=0.03), "8 threads at 2 GHz instead of 1 at 3 GHz"
        assert seconds(used(8, cpu), few, phase) == pytest.approx(seconds(used(4, cpu), few, phase), rel=0.3)
    one = replace(used(1), library="blas")
    product = Gemm(64, 64 * 9, 56 * 56, "fp32", layout="NT")
    kept_s = seconds(used(1, cpu), images, "bwd_weight")
    assert kept_s == pytest.approx(16 * kernel_cost(used(1, cpu), product).time_s)
    assert kept_s < seconds(one, images, "bwd_weight")


def test_mshadow_unrolls_with_one_thread_and_divides_for_each_mean() -> None:
    cpu, caffe = (replace(PLAIN, library=library) for library in ("mshadow", "blas"))
    conv = Conv2d(16, 16, 16, 32, 32, 3, 3, pad_h=1, pad_w=1)
    assert seconds(used(8, cpu), conv) > 0.8 * seconds(used(1, cpu), conv)
    norm = BatchNorm(16, 64, 56, 56)
    assert seconds(cpu, norm) > 5 * seconds(caffe, norm)


def test_tensorflow_has_vectors_of_128_bits_and_nothing_fused() -> None:
    wide, narrow = (cpu_from_part("e5", part("xeon-e5-2630-v3"), library=library) for library in ("blas", "eigen"))
    assert (wide.flop_per_cycle["fp32"], narrow.flop_per_cycle["fp32"]) == (32, 8)
    assert (wide.flop_per_cycle["fp64"], narrow.flop_per_cycle["fp64"]) == (16, 4)
    assert narrow.turbo_clock_Hz == 3.2e9 > wide.turbo_clock_Hz, "SSE keeps the turbo"
    without = part("xeon-e5-2630-v3").model_copy(update={"vector_bits": 128, "flop_per_cycle": {"fp32": 8}})
    assert cpu_from_part("x", without, library="eigen").flop_per_cycle == {"fp32": 8}


# -- memory --------------------------------------------------------------------------


def test_bandwidth_is_a_staircase_over_the_working_set() -> None:
    one = [bandwidth(PLAIN, size, 1) for size in (10e3, 100e3, 2e6, 1e9)]
    assert one == pytest.approx([48 * 3e9, 24 * 3e9, 16 * 3e9, 10e9])


def test_a_few_cores_saturate_a_socket_and_the_second_one_adds_less_than_its_own() -> None:
    many = [bandwidth(PLAIN, 1e9, threads) / 1e9 for threads in (1, 2, 4, 8, 16)]
    assert many == pytest.approx([10, 20, 40, 80 * 75 / 97.5, 80 * 75 / 97.5])


def test_a_cache_with_a_bandwidth_of_its_own_is_shared() -> None:
    cpu = replace(PLAIN, sockets=1, caches=(Cache(16e9, 4, 50e9),), core_bandwidth_Bps=20e9)
    assert bandwidth(cpu, 1e9, 4) == pytest.approx(50e9)


def test_long_streams_run_at_the_bandwidth_of_memory() -> None:
    n = 100_000_000
    cost = kernel_cost(used(4), Streaming("add", n, 8 * n, 4 * n))
    assert cost.bound == "memory"
    assert cost.time_s == pytest.approx(
        16 * n / 40e9, rel=1e-3
    )  # the result's lines are fetched before they are written
    in_place = kernel_cost(used(4), Streaming("add_inplace", n, 8 * n, 4 * n))
    assert in_place.time_s == pytest.approx(12 * n / 40e9, rel=1e-3)


def test_functions_that_cost_more_than_their_bytes_are_bound_by_instructions() -> None:
    n = 1_000_000
    tanh, relu = (kernel_cost(PLAIN, Streaming(name, n, 4 * n, 4 * n)) for name in ("tanh", "relu"))
    assert tanh.bound == "compute"
    assert tanh.time_s > 3 * relu.time_s


# -- products ------------------------------------------------------------------------


def test_large_products_reach_the_efficiency_of_the_inner_kernel() -> None:
    cost = kernel_cost(PLAIN, Gemm(8192, 8192, 8192, "fp32"))
    assert cost.bound == "compute"
    assert cost.flop / cost.time_s == pytest.approx(0.88 * PLAIN.peak("fp32"), rel=0.05)
    assert kernel_cost(PLAIN, Gemm(8192, 8192, 8192, "fp64")).time_s == pytest.approx(2 * cost.time_s, rel=0.05)


def test_a_product_with_one_row_is_a_pass_over_the_matrix() -> None:
    cost = kernel_cost(PLAIN, Gemm(1, 8192, 8192, "fp32"))
    assert cost.bound == "memory"
    assert cost.time_s == pytest.approx(4 * 8192**2 / bandwidth(PLAIN, 4 * 8192**2, 8), rel=0.05)


def test_few_rows_are_packed_for_longer_than_multiplied() -> None:
    few, many = (kernel_cost(used(1), Gemm(rows, 4096, 4096, "fp32")) for rows in (8, 512))
    assert few.bound == "memory"
    assert many.bound == "compute"
    assert few.flop / few.time_s < many.flop / many.time_s / 2


def test_a_batch_of_small_products_splits_over_the_threads() -> None:
    cpu = replace(PLAIN, turbo_clock_Hz=PLAIN.clock_Hz)
    one, batch = Gemm(64, 64, 64, "fp32"), Gemm(64, 64, 64, "fp32", batch=80)
    assert kernel_cost(used(8, cpu), batch).time_s < 80 * kernel_cost(used(1, cpu), one).time_s / 6
    odd = replace(batch, batch=81)
    assert kernel_cost(used(8, cpu), odd).time_s == pytest.approx(
        11 / 10 * kernel_cost(used(8, cpu), batch).time_s, rel=0.1
    )


def test_numbers_drawn_alone_run_at_the_turbo_of_a_core_without_vectors() -> None:
    without = replace(PLAIN, turbo_clock_Hz=2.6e9)
    cpus = [used(1, cpu) for cpu in (without, replace(without, scalar_turbo_clock_Hz=3e9))]
    drawn, added = (Streaming(name, 10**6, 0, 4 * 10**6) for name in ("normal", "add"))
    slow_s, fast_s = (kernel_cost(cpu, drawn).time_s for cpu in cpus)
    assert slow_s / fast_s == pytest.approx(3.0 / 2.6, rel=1e-2)
    assert kernel_cost(cpus[0], added).time_s == kernel_cost(cpus[1], added).time_s


def test_convolutions_directly_beat_unrolled_ones() -> None:
    for shape in (Conv2d(8, 64, 64, 56, 56, 3, 3, pad_h=1, pad_w=1), Conv2d(8, 3, 64, 224, 224, 7, 7, 2, 2, 3, 3)):
        for phase in ("fwd", "bwd_data", "bwd_weight"):
            assert seconds(PLAIN, shape, phase) < seconds(replace(PLAIN, library="blas"), shape, phase)


def test_pointwise_convolutions_are_not_unrolled() -> None:
    cpu = replace(used(1), library="blas")
    plain = operator_costs(cpu, Conv2d(1, 64, 64, 56, 56, 1, 1), "fwd", "fp32")[0].time_s
    assert plain == pytest.approx(kernel_cost(cpu, Gemm(64, 56 * 56, 64, "fp32")).time_s)


def test_steps_of_a_recurrent_layer_follow_each_other() -> None:
    ten, twenty = (seconds(PLAIN, Recurrent("lstm", 4, steps, 128, 128)) for steps in (10, 20))
    assert twenty == pytest.approx(2 * ten, rel=0.15)
    assert seconds(PLAIN, Recurrent("lstm", 4, 10, 128, 128), "bwd_weight") < ten


def test_masked_attention_is_half_the_work() -> None:
    whole, half = (seconds(PLAIN, Attention(4, 16, 1024, 1024, 64, causal=causal)) for causal in (False, True))
    assert half == pytest.approx(whole / 2, rel=0.02)


# -- around --------------------------------------------------------------------------


def test_calibration_scales_what_it_names() -> None:
    product, stream = Gemm(2048, 2048, 2048, "fp32"), Streaming("add", 10**8, 8 * 10**8, 4 * 10**8)
    faster = replace(PLAIN, calibration=Calibration(compute=2.0, bandwidth=0.5, dispatch=3.0, by_class={"gemm": 10.0}))
    assert kernel_cost(faster, product).time_s == pytest.approx(10 / 2 * kernel_cost(PLAIN, product).time_s, rel=0.1)
    assert kernel_cost(faster, stream).time_s == pytest.approx(2 * kernel_cost(PLAIN, stream).time_s, rel=1e-3)
    linear = Linear(1, 2, 3)
    assert dispatch_time(faster, linear, "fwd") == pytest.approx(3 * dispatch_time(PLAIN, linear, "fwd"))


def test_a_machine_without_gpus_loads_and_exchanges_nothing() -> None:
    machine = load_machine("cpu-2xe5-2630v3")
    assert machine.gpus == ()
    with pytest.raises(InputError, match="no GPU takes part"):
        exchange_on(machine, "ring", 1e6)


def test_the_command_says_what_a_machine_without_gpus_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", "cpu-i7-3820", "--strategy", "ring"]) == 2
    assert (
        "cpu-i7-3820 has no GPU, so nothing is exchanged; --batch 32 runs a step on its CPU" in capsys.readouterr().err
    )
    assert run(["--topology", "cpu-i7-3820", "--workload", "lenet", "--batch", "32", "--threads", "2"]) == 0
    assert "training step of lenet" in capsys.readouterr().out


def test_rows_picked_from_a_table_beyond_the_caches_await_their_first_lines() -> None:
    def time_s(rows: int, cols: int, table: int, **changes: float) -> float:
        return kernel_cost(replace(PLAIN, **changes), Gather("fwd", rows, cols, table, "fp32")).time_s

    near, far = (time_s(100_000, 16, table, memory_latency_s=400e-9) for table in (1000, 10_000_000))
    assert far > 3 * near
    later = time_s(100_000, 16, 10_000_000, memory_latency_s=500e-9)
    waits = 100_000 * 100e-9 / (4 * 8) * (1 - 2 * 8e6 / 640e6)  # four rows in flight on each of eight cores
    assert later - far == pytest.approx(waits, rel=1e-3)
    assert time_s(100, 16_000, 10_000, memory_latency_s=400e-9) < 1.02 * time_s(100, 16_000, 10_000)
