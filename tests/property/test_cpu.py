"""CPU properties that hold for every size, working set and number of threads."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from simulator.devices.cpu import Cache, Cpu
from simulator.devices.cpu.memory import bandwidth
from simulator.devices.predict import kernel_cost, operator_costs
from simulator.questions.where import CPU_LIBRARIES
from simulator.workload.kernels import Gemm, Streaming
from simulator.workload.operators import Conv2d, Linear, Operator, Pool, Recurrent, Softmax

CPU = Cpu(
    name="any",
    vendor="other",
    generation="",
    cores_per_socket=8,
    threads_per_core=2,
    sockets=2,
    threads=16,
    clock_Hz=2.5e9,
    turbo_clock_Hz=3e9,
    vector_bits=512,
    flop_per_cycle={"fp64": 32, "fp32": 64},
    memory_bandwidth_Bps=90e9,
    core_bandwidth_Bps=12e9,
    memory_bytes=math.inf,
    caches=(Cache(32e3, 1), Cache(1e6, 1), Cache(24e6, 8)),
)
SIZES = st.integers(1, 4096)
THREADS = st.integers(1, 100)
OPERATORS: st.SearchStrategy[Operator] = st.one_of(
    st.builds(Linear, SIZES, SIZES, SIZES),
    st.builds(Softmax, SIZES, SIZES),
    st.builds(lambda c, h: Pool("avg", 8, c, 2 * h, 2 * h, h, h, 2, 2), SIZES, st.integers(1, 99)),
    st.builds(
        lambda b, i, o, h, k: Conv2d(b, i, o, h + k, h + k, k, k),
        st.integers(1, 64), SIZES, SIZES, st.integers(1, 99), st.integers(1, 7),
    ),
    st.builds(
        lambda c, b, t, h: Recurrent(c, b, t, h, h),
        st.sampled_from(["rnn", "lstm", "gru"]), st.integers(1, 256), st.integers(1, 64), SIZES,
    ),
)  # fmt: skip


@given(OPERATORS, THREADS, st.sampled_from(CPU_LIBRARIES), st.sampled_from(["fwd", "bwd_data", "bwd_weight"]))
def test_costs_are_positive_and_never_beat_the_peak(operator: Operator, threads: int, library: str, phase: str) -> None:
    cpu = replace(CPU, threads=threads, library=library)  # type: ignore[arg-type]
    for cost in operator_costs(cpu, operator, phase, "fp32"):  # type: ignore[arg-type]
        assert 0 < cost.time_s < math.inf
        # A few cores clock higher than all together; a small kernel may use fewer threads than available.
        assert cost.flop <= cost.time_s * 64 * 3e9 * min(threads, CPU.core_count)


@given(st.floats(1, 1e12), st.floats(1, 10), THREADS)
def test_a_larger_working_set_is_never_faster(size: float, factor: float, threads: int) -> None:
    assert bandwidth(CPU, size * factor, threads) <= bandwidth(CPU, size, threads) * (1 + 1e-9)


@given(st.floats(1, 1e12), st.integers(1, 15))
def test_a_further_core_never_takes_bandwidth_away(size: float, threads: int) -> None:
    fixed = replace(CPU, turbo_clock_Hz=CPU.clock_Hz)
    assert bandwidth(fixed, size, threads + 1) >= bandwidth(fixed, size, threads) * (1 - 1e-9)


@given(SIZES, SIZES, SIZES, st.sampled_from(["m", "n", "k"]))
def test_a_larger_product_takes_longer_on_one_core(m: int, n: int, k: int, side: str) -> None:
    one = replace(CPU, threads=1)
    small = Gemm(m, n, k, "fp32")
    assert kernel_cost(one, replace(small, **{side: getattr(small, side) + 1})).time_s >= kernel_cost(one, small).time_s


@given(SIZES, SIZES, SIZES, THREADS)
def test_twice_the_rows_take_longer_on_any_threads(m: int, n: int, k: int, threads: int) -> None:
    cpu = replace(CPU, threads=threads)
    assert kernel_cost(cpu, Gemm(2 * m, n, k, "fp32")).time_s >= kernel_cost(cpu, Gemm(m, n, k, "fp32")).time_s


@given(st.integers(1, 10**8), st.integers(1, 10**6), THREADS)
def test_a_longer_pass_takes_longer_but_for_the_threads_it_gains(n: int, more: int, threads: int) -> None:
    cpu = replace(CPU, threads=threads)
    longer, shorter = (kernel_cost(cpu, Streaming("relu", e, 4 * e, 4 * e)).time_s for e in (n + more, n))
    grains = math.ceil(n / 32768)
    if grains >= threads or math.ceil((n + more) / 32768) == grains:
        assert longer >= shorter
