"""Machines of any size to measure with."""

from __future__ import annotations

import random

from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.topology.load import topology_from_text

SIZE = 160e6


def ring(n: int, *, equal: bool) -> Machine:
    """Return n GPUs joined to a ring by equal links, or by links of random bandwidths and latencies."""
    draw = random.Random(1)
    head = f"schema_version: 1\nname: ring\ndevices:\n  gpu[0-{n - 1}]: {{kind: gpu}}\nlinks:\n"
    if equal:
        ends = f'["gpu[0-{n - 1}]", "gpu[1-{n - 1},0]"]'
        links = f"  - {{between: {ends}, kind: nvlink, bandwidth: 54 GB/s, latency: 1 us}}\n"
    else:
        links = "".join(
            f"  - {{between: [gpu{i}, gpu{(i + 1) % n}], kind: nvlink, bandwidth: {draw.randint(20_000, 60_000)} MB/s,"
            f" latency: {draw.randint(500, 2_000)} ns}}\n"
            for i in range(n)
        )
    return compile_machine(topology_from_text(head + links))
