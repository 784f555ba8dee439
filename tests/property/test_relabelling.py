"""A relabelling of GPUs that is a symmetry of the machine changes no time.

networkx is the oracle: it finds a symmetry of the graph of devices and links that takes one GPU to another.
"""

from __future__ import annotations

from functools import cache

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api.context import load_machine
from simulator.collectives.registry import strategy_names
from simulator.errors import InputError
from simulator.network.machine import Machine
from tests.asked import exchange_on

pytestmark = pytest.mark.slow

BY_NUMBER = {"naive-ring", "gpu0"}  # passes on in the order of the GPUs' numbers, gathers on the first: by definition
MACHINES = ("p3.16xlarge", "8gpu-pcie-dual-root", "4x-v100-sxm2-pcie", "dgx-a100-80gb", "dgx-h100", "p4d.24xlarge")


@cache
def machine_of(name: str) -> Machine:
    return load_machine(name)


def graph_of(machine: Machine, marked: int) -> networkx.DiGraph:
    """Return the devices and links of *machine*; GPU *marked* is told apart."""
    graph = networkx.DiGraph()
    for node in machine.nodes:
        graph.add_node(node.index, is_a=(node.kind, node.part_name, node.index == machine.gpus[marked]))
    for link in machine.links:
        graph.add_edge(link.src, link.dst, is_a=(link.kind, link.bandwidth_Bps, link.latency_s, link.count))
    return graph


@cache
def symmetry(name: str, first: int, second: int) -> tuple[int, ...] | None:
    """Return the GPU that each GPU becomes under a symmetry that takes *first* to *second*; None if there is none."""
    machine = machine_of(name)

    def same(a: dict, b: dict) -> bool:
        return a["is_a"] == b["is_a"]

    graphs = graph_of(machine, first), graph_of(machine, second)
    matcher = networkx.isomorphism.DiGraphMatcher(*graphs, node_match=same, edge_match=same)
    found = next(matcher.isomorphisms_iter(), None)
    return None if found is None else tuple(machine.gpus.index(found[node]) for node in machine.gpus)


@pytest.mark.parametrize("strategy", sorted({*strategy_names()} - BY_NUMBER))
@given(st.data())
@settings(max_examples=8)
def test_a_symmetry_of_the_machine_changes_no_time(strategy: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(MACHINES))
    machine = machine_of(name)
    gpu = st.integers(0, len(machine.gpus) - 1)
    gpus = data.draw(st.lists(gpu, min_size=2, max_size=len(machine.gpus), unique=True))
    to = symmetry(name, gpus[0], data.draw(gpu))
    if to is None:
        return
    size_bytes = data.draw(st.sampled_from((8.0, 1e5, 1e8)))
    moved = [to[number] for number in gpus]
    try:
        expected = exchange_on(machine, strategy, size_bytes, gpus=gpus)
    except InputError:
        with pytest.raises(InputError):
            exchange_on(machine, strategy, size_bytes, gpus=moved)
        return
    found = exchange_on(machine, strategy, size_bytes, gpus=moved)
    assert found.sync_time_s == pytest.approx(expected.sync_time_s, rel=1e-9)
