"""Tensor-core products of any size: never faster than physics, never faster for more work."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.devices.gpu import Gpu
from simulator.devices.gpu.product import tensor_product_time
from simulator.devices.gpu.rates import arithmetic_rate
from simulator.devices.predict import cold_device
from simulator.step.lowering import padded
from simulator.workload.kernels import Gemm
from simulator.workload.precision import ELEMENT_BYTES
from tests.devices import find_gpu
from tests.examples import few

_NAMES = ("a100-sxm4-80gb", "a40", "l4", "l40s", "h100-pcie", "h100-sxm5-80gb", "h200-sxm", "b200")
GPUS = [find_gpu(name) for name in _NAMES]
sizes = st.integers(1, 30000)
whole = st.integers(1, 3750).map(lambda size: 8 * size)  # rows that are multiples of 16 bytes
gpus = st.sampled_from(GPUS)
precisions = st.sampled_from(("bf16", "fp16", "tf32"))


@given(gpus, precisions, sizes, sizes, sizes, st.integers(1, 300))
@settings(max_examples=few(300))
def test_no_product_beats_the_peak_at_the_highest_clock_or_the_memory(
    gpu: Gpu, precision: str, m: int, n: int, k: int, batch: int
) -> None:
    kernel = Gemm(m, n, k, precision, batch)  # type: ignore[arg-type]
    cold = cold_device(gpu)
    assert isinstance(cold, Gpu)
    found = tensor_product_time(cold, kernel)
    highest = max(gpu.max_clock_Hz, gpu.boost_clock_Hz) / gpu.boost_clock_Hz
    assert found.time_s > kernel.flop / (arithmetic_rate(gpu, kernel.precision) * highest)
    assert found.time_s > kernel.bytes / gpu.memory_bandwidth_Bps
    assert found.time_s > 1e-6
    assert 1 <= found.parts <= 64


@given(gpus, precisions, whole, whole, whole)
@settings(max_examples=few(200))
def test_more_work_takes_no_less(gpu: Gpu, precision: str, m: int, n: int, k: int) -> None:
    once = tensor_product_time(gpu, Gemm(m, n, k, precision)).time_s  # type: ignore[arg-type]
    for more in (Gemm(4 * m, n, k, precision), Gemm(m, 4 * n, k, precision), Gemm(m, n, 4 * k, precision)):  # type: ignore[arg-type]
        assert tensor_product_time(gpu, more).time_s >= 0.97 * once


@given(gpus, st.integers(1, 64), sizes, sizes)
@settings(max_examples=few(100))
def test_more_memory_bandwidth_never_slows(gpu: Gpu, m: int, n: int, k: int) -> None:
    faster = replace(gpu, memory_bandwidth_Bps=2.0 * gpu.memory_bandwidth_Bps)
    slow, fast = (tensor_product_time(g, Gemm(m, n, k, "bf16")).time_s for g in (gpu, faster))
    assert fast <= slow * (1.0 + 1e-9)


@given(gpus, sizes, sizes, sizes)
@settings(max_examples=few(100))
def test_operands_in_caches_never_slow(gpu: Gpu, m: int, n: int, k: int) -> None:
    cold = cold_device(gpu)
    assert isinstance(cold, Gpu)
    warm_s, cold_s = (tensor_product_time(g, Gemm(m, n, k, "fp16")).time_s for g in (gpu, cold))
    assert warm_s <= cold_s * (1.0 + 1e-9)


@given(gpus, st.sampled_from(("NN", "NT", "TN", "TT")), whole, whole, whole, st.integers(0, 7))
@settings(max_examples=few(200))
def test_smaller_pieces_never_bring_operands_faster(gpu: Gpu, layout: str, m: int, n: int, k: int, less: int) -> None:
    aligned = Gemm(m, n, k, "bf16", layout=layout)  # type: ignore[arg-type]
    unaligned = replace(aligned, n=n - less) if n > 64 else aligned
    whole_s, pieces_s = (tensor_product_time(gpu, kernel).time_s for kernel in (aligned, unaligned))
    assert pieces_s > 0.85 * whole_s
    work_s = aligned.flop / arithmetic_rate(gpu, "bf16")
    if unaligned != aligned and n - less > 512 and work_s > 1e-3:
        assert pieces_s > whole_s * (n - less) / n  # never faster than the work it saves


@given(gpus, precisions, st.sampled_from(("NN", "NT", "TN", "TT")), sizes, sizes, sizes, st.integers(1, 50))
@settings(max_examples=few(200))
def test_compilers_pad_rows_to_whole_16_bytes_and_never_to_their_loss(
    gpu: Gpu, precision: str, layout: str, m: int, n: int, k: int, batch: int
) -> None:
    kernel = Gemm(m, n, k, precision, batch, layout)  # type: ignore[arg-type]
    found = padded(gpu, kernel)
    assert isinstance(found, Gemm)
    assert padded(gpu, found) == found
    assert tensor_product_time(gpu, found).time_s <= tensor_product_time(gpu, kernel).time_s
    most = 16 // ELEMENT_BYTES[kernel.precision]
    assert all(0 <= after - before < most for before, after in zip((m, n, k), (found.m, found.n, found.k), strict=True))
    assert replace(found, m=m, n=n, k=k) == kernel
