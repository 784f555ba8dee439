"""Batch normalisation compared with kernel profiles of a whole network, and its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.constants import DEFAULT
from simulator.devices.gpu import Gpu, gpu_from_part
from simulator.devices.gpu.memory import achieved_bandwidth
from simulator.devices.gpu.rowwise import rowwise_cost
from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart
from simulator.workload.kernels import Rowwise
from simulator.workload.operators import BatchNorm
from simulator.workload.precision import Precision
from simulator.workload.zoo.registry import build_network

BATCH_NORM = DEFAULT["batch_norm"]


def gpu(name: str) -> Gpu:
    part = load_part(name)
    assert isinstance(part, GpuPart)
    return gpu_from_part(name, part)


def time_s(device: Gpu, channels: int, numbers: int, precision: Precision = "fp32", kind: str = "batch_norm") -> float:
    return rowwise_cost(device, Rowwise(kind, channels, numbers, precision)).time_s


@pytest.mark.parametrize(
    ("phase", "channels_last", "profiled_s"),
    [("fwd", False, 13.5e-3), ("bwd", False, 19.9e-3), ("fwd", True, 6.77e-3), ("bwd", True, 9.32e-3)],
)
def test_a_network_in_half_precision_takes_what_profiles_show(
    phase: str, channels_last: bool, profiled_s: float
) -> None:
    """ResNet-50 at batch 128 in fp16 on an A100: the total of all batch norm kernels."""
    a100 = gpu("a100-sxm4-40gb")
    total_s = 0.0
    for layer in build_network("resnet50", batch=128, training=True).layers:
        if isinstance(layer.operator, BatchNorm):
            for kernel in layer.operator.kernels(phase, "fp16"):  # type: ignore[arg-type]
                assert isinstance(kernel, Rowwise)
                total_s += rowwise_cost(a100, replace(kernel, channels_last=channels_last)).time_s
    assert total_s == pytest.approx(profiled_s, rel=0.2)


def test_few_channels_do_not_fill_the_machine() -> None:
    h100 = gpu("h100-sxm5-80gb")
    few, many = (time_s(h100, channels, (1 << 27) // channels) for channels in (64, 512))
    assert few > 1.5 * many


def test_a_channel_waits_for_its_own_block() -> None:
    a100 = gpu("a100-sxm4-40gb")
    one, hundred = (time_s(a100, channels, 12_544) for channels in (1, 100))  # kept in registers, one SM each
    assert hundred == pytest.approx(one, rel=0.1)


def test_half_precision_plane_by_plane_is_no_faster_than_its_threads() -> None:
    a100 = gpu("a100-sxm4-40gb")
    full, half = (time_s(a100, 512, 1 << 18, precision) for precision in ("fp32", "fp16"))
    assert half > 1.3 * (full / 2), "of half the bytes"
    by_pixels = rowwise_cost(a100, Rowwise("batch_norm", 512, 1 << 18, "fp16", channels_last=True)).time_s
    assert by_pixels < 0.65 * half


def test_channels_that_fit_registers_are_read_once() -> None:
    """One element more per channel turns two passes into three, backward three into five."""
    fits = int(BATCH_NORM.kept_bytes / 4)
    for kind, most, passes in (("batch_norm", fits, 3 / 2), ("batch_norm_bwd", fits // 2, 5 / 3)):
        kernels = (Rowwise(kind, 1024, numbers, "fp32") for numbers in (most, most + 1))
        once, twice = (rowwise_cost(gpu("a100-sxm4-40gb"), kernel).bytes for kernel in kernels)
        assert twice / once == pytest.approx(passes, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "channels", "numbers", "measured_s"),
    [
        ("h100-sxm5-80gb", 1024, 25_088, 116e-6),
        ("h200-sxm", 1024, 25_088, 80.9e-6),
        ("h200-sxm", 2048, 12_544, 90.3e-6),
    ],
)
def test_channels_that_are_kept_take_a_share_of_the_memory_not_of_the_clock(
    name: str, channels: int, numbers: int, measured_s: float
) -> None:
    """Two GPUs of one clock and two memories: a profile of PyTorch 2.1 and our rows of PyTorch 2.11."""
    assert time_s(gpu(name), channels, numbers) == pytest.approx(measured_s, rel=0.12)


def test_lanes_of_integers_alone_find_places_in_more_clocks() -> None:
    """KernelBench's batch norm of 16 images of 256 by 256 with 64 channels, on an A100."""
    assert time_s(gpu("a100-sxm4-40gb"), 64, 1 << 20) == pytest.approx(1.33e-3, rel=0.1)


def test_pixel_by_pixel_memory_is_the_bound() -> None:
    a100 = replace(gpu("a100-sxm4-40gb"), l2_bytes=0.0)
    cost = rowwise_cost(a100, Rowwise("batch_norm", 64, 1 << 22, "fp16", channels_last=True))
    passes = cost.time_s * achieved_bandwidth(a100, 1.0) / (64 * 2 * (1 << 22))
    assert passes == pytest.approx(3, rel=0.05)
    assert cost.bound == "memory"


def own_s(channels: int, numbers: int, kind: str, *, channels_last: bool) -> float:
    kernel = Rowwise(kind, channels, numbers, "bf16", channels_last, own=True)
    return rowwise_cost(gpu("h200-sxm"), kernel).time_s


@pytest.mark.parametrize(
    ("channels", "pixels", "forward_s", "backward_s"),
    [
        (256, 64 * 56 * 56, 225.9e-6, 182.4e-6),
        (512, 64 * 28 * 28, 126.1e-6, 110.9e-6),
        (1024, 64 * 14 * 14, 55.6e-6, 57.9e-6),
        (64, 64 * 56 * 56, 60.9e-6, 64.7e-6),
    ],
)
def test_instructions_bound_the_kernels_of_pytorch_by_pixels(
    channels: int, pixels: int, forward_s: float, backward_s: float
) -> None:
    """Kernels of ResNet-50 in bf16 on an H200, torch 2.11, with those that zero semaphores: our own measurement."""
    for kind, measured_s in (("batch_norm", forward_s), ("batch_norm_bwd", backward_s)):
        found_s = own_s(channels, pixels, kind, channels_last=True)
        assert found_s == pytest.approx(measured_s, rel=0.3)
        by_library = Rowwise(kind, channels, pixels, "bf16", channels_last=True)
        assert found_s > 1.4 * rowwise_cost(gpu("h200-sxm"), by_library).time_s


def test_pytorch_has_a_block_for_each_channel_by_planes() -> None:
    one, all_at_once = (own_s(channels, 1 << 20, "batch_norm_bwd", channels_last=False) for channels in (1, 132))
    assert all_at_once == pytest.approx(one, rel=0.1)
    assert own_s(32, 32 * 147 * 147, "batch_norm_bwd", channels_last=False) == pytest.approx(1190.7e-6, rel=0.2)


def test_only_bf16_that_runs_eagerly_goes_to_kernels_of_pytorch() -> None:
    norm = BatchNorm(64, 256, 56, 56)
    assert [norm.kernels("fwd", precision)[0].own for precision in ("bf16", "fp16", "fp32")] == [True, False, False]  # type: ignore[union-attr]
