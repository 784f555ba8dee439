"""Every accepted topology is simulated, in a number of events bounded by its size."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.collectives.communicator import Communicator, Request, Unsuitable
from simulator.collectives.registry import find_strategy
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.network.compiling import compile_machine
from simulator.topology.load import topology_from_text
from tests.calls import at_most_calls
from tests.examples import few

STRATEGIES = ("gpu0", "sharded", "naive-ring", "ring", "multi-ring", "tree", "double-tree", "halving-doubling", "nccl")
_MOST_CALLS = 2_000_000  # about a second


@st.composite
def topologies(draw: st.DrawFn) -> str:
    """Draw up to 16 GPUs under switches and CPUs, linked at random, with values up to the ends of their ranges."""
    n = draw(st.integers(2, 16))
    n_switches, n_cpus = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    bandwidth = st.sampled_from(["1 bit/s", "1 kB/s", "3 GB/s", "16 GB/s", "450 GB/s", "1000 PB/s"])
    latency = st.sampled_from(["0 s", "1 ps", "5 us", "1 s", "1e9 s"])
    efficiency = st.sampled_from([0.001, 0.5, 1.0])
    near = [f"sw{i}" for i in range(n_switches)] + [f"cpu{i}" for i in range(n_cpus)]
    ends = [(f"gpu{i}", draw(st.sampled_from(near or [f"gpu{j}" for j in range(n) if j != i]))) for i in range(n)]
    ends += list(pairwise(near))
    extra = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    lines = [
        f"  - {{between: [{a}, {b}], kind: pcie, bandwidth: {draw(bandwidth)}, latency: {draw(latency)}, "
        f"efficiency: {draw(efficiency)}, duplex: {draw(st.sampled_from(['full', 'half']))}}}\n"
        for a, b in ends
    ]
    lines += [
        f"  - {{between: [gpu{a}, gpu{b}], kind: nvlink, bandwidth: {draw(bandwidth)}, "
        f"count: {draw(st.integers(1, 4))}}}\n"
        for a, b in draw(st.lists(extra, max_size=40))
    ]
    devices = f"  gpu[0-{n - 1}]: {{kind: gpu}}\n"
    devices += "".join(f"  sw{i}: {{kind: pcie-switch, latency: {draw(latency)}}}\n" for i in range(n_switches))
    devices += "".join(f"  cpu{i}: {{kind: cpu, memory_bandwidth: {draw(bandwidth)}}}\n" for i in range(n_cpus))
    return f"schema_version: 1\nname: t\ndevices:\n{devices}links:\n{''.join(lines)}"


@settings(max_examples=few(60))
@given(topologies(), st.sampled_from(STRATEGIES), st.sampled_from([0.0, 1.0, 4096.0, 1e9, 1e15]))
def test_what_is_accepted_is_simulated_in_bounded_steps(text: str, strategy: str, size: float) -> None:
    try:
        machine = compile_machine(topology_from_text(text))
    except InputError:
        return  # GPUs that no link connects
    group = Communicator(machine, machine.gpus)
    with at_most_calls(_MOST_CALLS):
        try:
            plan = find_strategy(strategy).plan(Request(group, "all-reduce", size))
        except (Unsuitable, InputError):
            return
        timeline = execute(machine, plan)
    n = len(machine.gpus)
    assert 0 <= timeline.end_s < float("inf")
    assert timeline.simulation_events <= 2_000 * n * n
    assert timeline.end_s >= (size > 0) * size / n / max(machine.capacity_Bps)
