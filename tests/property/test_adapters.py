"""Machines with fewer adapters than GPUs: all adapters carry the same, and the bandwidth is that of the adapters."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.collectives.communicator import Communicator, Request, Strategy
from simulator.collectives.nccl.graph import channel_rings
from simulator.collectives.nccl.strategy import Nccl
from simulator.collectives.registry import find_strategy
from simulator.collectives.search.rings import find_rings
from simulator.engine.executor import execute
from simulator.engine.timeline import Timeline
from simulator.network.machine import Machine
from tests.machines import machine_from

_SIZE = 4e9


def with_adapters(switches: list[int], adapters: list[int], nodes: int) -> Machine:
    """Return *nodes* machines whose GPU i is at PCIe switch ``switches[i]``, and adapter i at ``adapters[i]``."""
    n = max(switches) + 1

    def named(name: str, numbers: list[int]) -> str:
        return f"{name}[{','.join(map(str, numbers))}]"

    gpus, nics = f"gpu[0-{len(switches) - 1}]", f"ib[0-{len(adapters) - 1}]"
    text = f"""
schema_version: 1
name: few adapters
devices:
  {gpus}: {{part: h100-sxm5-80gb}}
  nvswitch0: {{part: nvswitch3}}
  cpu[0-1]: {{part: xeon-platinum-8480c}}
  plx[0-{n - 1}]: {{part: broadcom-pex89000}}
  {nics}: {{part: connectx-7-ndr}}
links:
  - {{between: ["{gpus}", nvswitch0], part: nvlink4, count: 18}}
  - {{between: ["{gpus}", "{named("plx", switches)}"], part: pcie5-x16}}
  - {{between: ["{nics}", "{named("plx", adapters)}"], part: pcie5-x16}}
  - {{between: ["plx[0-{n - 1}]", "{named("cpu", [2 * i // n for i in range(n)])}"], part: pcie5-x16}}
  - {{between: [cpu0, cpu1], part: upi-16-x3}}
"""
    return machine_from(text, n_nodes=nodes)


def ran(machine: Machine, strategy: Strategy) -> Timeline:
    return execute(machine, strategy.plan(Request(Communicator(machine, machine.gpus), "all-reduce", _SIZE)))


def out_of_adapters(timeline: Timeline) -> dict[int, list[float]]:
    """Return the bytes that each adapter sends into the network, by host."""
    machine = timeline.machine
    sent: dict[int, list[float]] = {}
    for link in machine.links:
        if machine.nodes[link.src].kind == "nic" and machine.nodes[link.dst].kind == "network-switch":
            sent.setdefault(machine.nodes[link.src].host, []).append(timeline.link_bytes[link.index])
    return sent


ONE_EACH = [*range(8)]
SHAPES = {
    "8:4": (ONE_EACH, [0, 2, 4, 6]),
    "8:4 at one socket": (ONE_EACH, [0, 1, 2, 3]),
    "8:2": (ONE_EACH, [0, 4]),
    "8:1": (ONE_EACH, [0]),
    "8:3": (ONE_EACH, [0, 3, 5]),
    "8:6": (ONE_EACH, [0, 1, 2, 4, 5, 6]),
    "4:2": ([*range(4)], [0, 2]),
    "8:4, two GPUs a switch": ([0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 3]),
    "8:2, two GPUs a switch": ([0, 0, 1, 1, 2, 2, 3, 3], [0, 2]),
}
EIGHT_S = {a: ran(with_adapters(ONE_EACH, ONE_EACH, 4), Nccl(a)).end_s for a in ("ring", "tree", "nvls_tree")}


@pytest.mark.parametrize("algorithm", ["ring", "tree", "nvls_tree"])
@pytest.mark.parametrize("shape", SHAPES)
def test_bandwidth_is_that_of_the_adapters(shape: str, algorithm: str) -> None:
    """Half of the adapters give half of the bandwidth, within what latencies and NVLink leave."""
    switches, adapters = SHAPES[shape]
    if algorithm == "nvls_tree" and len(adapters) < 2:
        pytest.skip("NVLS needs two heads")
    timeline = ran(with_adapters(switches, adapters, 4), Nccl(algorithm))
    for sent in out_of_adapters(timeline).values():
        assert sent == pytest.approx([sent[0]] * len(adapters), rel=1e-9)
    assert timeline.end_s == pytest.approx(EIGHT_S[algorithm] * 8 / len(adapters), rel=0.08)


@pytest.mark.parametrize("name", ["ring", "bidirectional-ring"])
@pytest.mark.parametrize("shape", SHAPES)
def test_ideal_rings_use_all_adapters_alike(shape: str, name: str) -> None:
    switches, adapters = SHAPES[shape]
    timeline = ran(with_adapters(switches, adapters, 3), find_strategy(name))
    for sent in out_of_adapters(timeline).values():
        assert sent == pytest.approx([sent[0]] * len(adapters), rel=1e-9)


@given(
    adapters=st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True).map(sorted),
    nodes=st.integers(2, 3),
    shared=st.booleans(),
)
def test_any_places_of_adapters(adapters: list[int], nodes: int, shared: bool) -> None:
    """As many bytes leave by an adapter as enter by it, for every ring, wherever the adapters are."""
    switches = [gpu // 2 for gpu in range(8)] if shared else ONE_EACH
    places = sorted({at // 2 for at in adapters}) if shared else adapters
    machine = with_adapters(switches, places, nodes)
    group = Communicator(machine, machine.gpus)
    for rings in (find_rings(group, both_directions=False), channel_rings(group)):
        balance: dict[str, Fraction] = {}
        for ring in rings:
            for route in ring.routes:
                for index, share in route.links:
                    src, dst = (machine.nodes[end] for end in (machine.links[index].src, machine.links[index].dst))
                    if src.kind == "nic" and dst.kind == "network-switch":
                        balance[src.name] = balance.get(src.name, Fraction()) + Fraction(share)
                    elif dst.kind == "nic" and src.kind == "network-switch":
                        balance[dst.name] = balance.get(dst.name, Fraction()) - Fraction(share)
        assert len(balance) == nodes * len(places)
        assert not any(balance.values())


def test_before_pxn_the_last_gpu_sends_by_itself() -> None:
    machine = with_adapters(ONE_EACH, [0, 2, 4, 6], 2)
    group = Communicator(machine, machine.gpus)

    def crossed(version: tuple[int, int]) -> set[str]:
        last = channel_rings(group, version)[0].routes[7]
        return {machine.links[index].kind for index, _ in last.links}

    assert "nvlink" in crossed((2, 12))
    assert "nvlink" not in crossed((2, 11))
