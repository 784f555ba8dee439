"""Rings on the cube mesh of eight V100s and on parts of it, and the links they use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from simulator.collectives.communicator import Communicator, Request
from simulator.collectives.registry import find_strategy
from simulator.collectives.search import Budget, _grown, _listed, link_graph
from simulator.collectives.search.rings import FoundRing, find_rings, round_rates
from simulator.errors import SimulationError
from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.topology.load import load_topology
from tests.calls import at_most_calls
from tests.hostile import MESHES
from tests.machines import crossbar, machine_from, meshed, ring_machine

DOUBLE = (0, 3, 2, 1, 5, 6, 7, 4)  # each hop has two links
SINGLE = (0, 1, 3, 7, 5, 4, 6, 2)  # each hop has one


@pytest.fixture(scope="module")
def cube() -> Machine:
    return compile_machine(load_topology("p3.16xlarge"))


def rings_of(machine: Machine, gpus: tuple[int, ...], *, both: bool) -> list[FoundRing]:
    return find_rings(Communicator(machine, [machine.gpus[g] for g in gpus]), both_directions=both)


def directed(order: tuple[int, ...]) -> frozenset[tuple[int, int]]:
    """Return a ring as its directed hops, independent of its first rank."""
    return frozenset(pairwise((*order, order[0])))


def links_of(machine: Machine, rings: list[FoundRing]) -> Counter[str]:
    """Return the number of rings over each link."""
    return Counter({machine.links[i].name: 0 for i in range(len(machine.links))}) + Counter(
        machine.links[i].name for ring in rings for route in ring.routes for i, _ in route.links
    )


def nvlink_counts(machine: Machine) -> dict[str, int]:
    return {link.name: link.count for link in machine.links if link.kind == "nvlink"}


def test_a_ring_without_one_of_its_routes_is_an_error_with_its_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = compile_machine(load_topology("p3.16xlarge"))
    monkeypatch.setattr("simulator.network.routing.Router.direct", lambda *_: None)
    with pytest.raises(SimulationError, match=r"^a ring has no route from gpu\d to gpu\d$"):
        rings_of(machine, tuple(range(8)), both=True)


def test_the_six_directed_rings_of_the_cube_mesh(cube: Machine) -> None:
    rings = rings_of(cube, tuple(range(8)), both=True)
    assert Counter(directed(ring.order) for ring in rings) == {
        directed(DOUBLE): 2,
        directed(DOUBLE[::-1]): 2,
        directed(SINGLE): 1,
        directed(SINGLE[::-1]): 1,
    }
    # Every NVLink is used in both directions, and none more often than it has units.
    assert links_of(cube, rings) == nvlink_counts(cube)
    unit = next(link.unit_Bps for link in cube.links if link.kind == "nvlink")
    assert [ring.bandwidth_Bps for ring in rings] == pytest.approx([unit] * 6)
    assert {ring.kind for ring in rings} == {"nvlink"}


def test_one_way_takes_one_direction_of_each(cube: Machine) -> None:
    rings = rings_of(cube, tuple(range(8)), both=False)
    undirected = Counter(frozenset(frozenset(hop) for hop in directed(ring.order)) for ring in rings)
    assert undirected == {
        frozenset(frozenset(hop) for hop in directed(DOUBLE)): 2,
        frozenset(frozenset(hop) for hop in directed(SINGLE)): 1,
    }


@pytest.mark.parametrize(
    ("gpus", "n_directed", "kind"),
    [
        ((0, 1), 1, "nvlink"),
        ((0, 3), 2, "nvlink"),
        ((0, 4), 2, "nvlink"),
        ((0, 1, 2), 2, "nvlink"),
        ((0, 2, 3), 2, "nvlink"),
        ((0, 1, 2, 3), 4, "nvlink"),
        ((4, 5, 6, 7), 4, "nvlink"),
        ((0, 1, 2, 3, 4), 4, "nvlink-relay"),
        ((0, 1, 2, 3, 4, 5), 4, "nvlink"),
        ((0, 1, 2, 3, 4, 5, 6), 4, "nvlink"),
        ((0, 1, 2, 3, 4, 5, 6, 7), 6, "nvlink"),
    ],
)
def test_rings_of_parts_of_the_cube_mesh(cube: Machine, gpus: tuple[int, ...], n_directed: int, kind: str) -> None:
    rings = rings_of(cube, gpus, both=True)
    assert len(rings) == n_directed
    assert kind in {ring.kind for ring in rings}
    counts = nvlink_counts(cube)
    for name, used in links_of(cube, rings).items():
        assert used <= counts[name]
    for ring in rings:
        assert sorted(ring.order) == list(range(len(gpus)))
        for rank, following, found in zip(ring.order, ring.order[1:] + ring.order[:1], ring.routes, strict=True):
            assert (found.src, found.dst) == (cube.gpus[gpus[rank]], cube.gpus[gpus[following]])
            assert found.transport in ("nvlink", "nvlink-relay")


def test_renaming_ranks_changes_no_link(cube: Machine) -> None:
    straight = links_of(cube, rings_of(cube, (0, 1, 2, 3, 4, 5, 6, 7), both=True))
    turned = links_of(cube, rings_of(cube, (5, 2, 7, 0, 3, 6, 1, 4), both=True))
    assert straight == turned


def test_same_machine_same_rings(cube: Machine) -> None:
    gpus = tuple(range(8))
    assert rings_of(cube, gpus, both=True) == rings_of(compile_machine(load_topology("p3.16xlarge")), gpus, both=True)


def test_one_rank_has_no_ring(cube: Machine) -> None:
    assert rings_of(cube, (3,), both=True) == []


def test_on_a_crossbar_one_ring_has_all() -> None:
    machine = crossbar(8)
    [ring] = rings_of(machine, tuple(range(8)), both=False)
    assert (ring.kind, ring.order, ring.bandwidth_Bps) == ("crossbar", tuple(range(8)), 50e9)
    there, back = rings_of(machine, tuple(range(8)), both=True)
    assert directed(back.order) == {(b, a) for a, b in directed(there.order)}
    assert (there.bandwidth_Bps, back.bandwidth_Bps) == (25e9, 25e9)


def test_over_pcie_the_order_follows_the_tree() -> None:
    machine = machine_from("""
schema_version: 1
name: tree
devices:
  gpu[0-7]: {kind: gpu}
  cpu0: {kind: cpu}
  sw[0-1]: {kind: pcie-switch}
links:
  - {between: ["gpu[0-7]", "sw[0,1,0,1,0,1,0,1]"], kind: pcie, bandwidth: 12 GB/s}
  - {between: ["sw[0-1]", cpu0], kind: pcie, bandwidth: 12 GB/s}
transport: {peer_to_peer: sys}
""")
    [ring] = rings_of(machine, tuple(range(8)), both=False)
    assert (ring.kind, ring.bandwidth_Bps) == ("mixed", 12e9)
    changes = sum(a % 2 != b % 2 for a, b in directed(ring.order))
    assert changes == 2  # each switch is entered once and left once


def test_the_ring_that_is_faster_wins() -> None:
    """NVLink in a line of three spans no ring without a relay; the ring over PCIe is taken where it is faster."""
    text = """
schema_version: 1
name: line
devices:
  gpu[0-2]: {{kind: gpu}}
  cpu0: {{kind: cpu}}
links:
  - {{between: ["gpu[0-2]", cpu0], kind: pcie, bandwidth: {pcie}}}
  - {{between: ["gpu[0-1]", "gpu[1-2]"], kind: nvlink, bandwidth: 25 GB/s, count: 2}}
transport: {{peer_to_peer: sys}}
"""
    [slow] = rings_of(machine_from(text.format(pcie="10 GB/s")), (0, 1, 2), both=False)
    assert (slow.kind, slow.bandwidth_Bps) == ("nvlink-relay", 25e9)
    [fast] = rings_of(machine_from(text.format(pcie="60 GB/s")), (0, 1, 2), both=False)
    assert fast.kind == "mixed"
    assert fast.bandwidth_Bps == 50e9


def link(a: int, b: int, bandwidth: str, count: int = 1) -> str:
    return f"  - {{between: [gpu{a}, gpu{b}], kind: nvlink, bandwidth: {bandwidth}, count: {count}}}\n"


@pytest.mark.parametrize("slow", ["1 kB/s", "1 bit/s"])
def test_links_of_very_unlike_speeds_make_no_more_rings_than_can_run(slow: str) -> None:
    fast = "".join(link(a, (a + 1) % 4, "450 GB/s") for a in range(4))
    rings = rings_of(meshed(4, fast + link(0, 2, slow)), (0, 1, 2, 3), both=False)
    assert [ring.bandwidth_Bps for ring in rings] == [450e9]
    assert not rings[0].whole  # the slow link is left out, which is reported


def test_where_all_must_cross_a_slow_link_the_ring_has_its_speed() -> None:
    links = link(0, 1, "450 GB/s") + link(1, 2, "450 GB/s") + link(0, 2, "2 GB/s")
    assert [ring.bandwidth_Bps for ring in rings_of(meshed(3, links), (0, 1, 2), both=False)] == [2e9]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ring", "tree", "nccl"])
def test_a_dense_mesh_of_sixteen_is_searched_in_bounded_steps(strategy: str) -> None:
    links = "".join(link(a, b, f"{1 + (a * b) % 3} GB/s", 1 + (a + b) % 4) for a in range(16) for b in range(a))
    machine = meshed(16, links)
    group = Communicator(machine, machine.gpus)
    with at_most_calls(2_500_000):
        find_strategy(strategy).plan(Request(group, "all-reduce", 1e9))


def test_of_all_orders_the_one_that_no_rule_of_thumb_finds() -> None:
    """Four sockets in a square, 0-2-1-3: by number, by proximity and by tree, the ring would cross links twice."""
    machine = machine_from("""
schema_version: 1
name: square
devices:
  gpu[0-3]: {kind: gpu}
  cpu[0-3]: {kind: cpu}
links:
  - {between: ["gpu[0-3]", "cpu[0-3]"], kind: pcie, bandwidth: 30 GB/s}
  - {between: ["cpu[0,2,1,3]", "cpu[2,1,3,0]"], kind: socket, bandwidth: 10 GB/s, duplex: half}
transport: {peer_to_peer: sys}
""")
    [ring] = rings_of(machine, (0, 1, 2, 3), both=False)
    assert directed(ring.order) in (directed((0, 2, 1, 3)), directed((0, 3, 1, 2)))
    assert (ring.kind, ring.bandwidth_Bps, ring.whole) == ("mixed", 10e9, True)


@pytest.mark.parametrize("name", ["p3.16xlarge", "dgx-a100-80gb"])
def test_one_lap_through_equal_nodes_stands_for_all(name: str) -> None:
    machine = compile_machine(load_topology(name, n_nodes=3))
    group = Communicator(machine, machine.gpus)
    rings = find_rings(group, both_directions=True)
    assert {ring.kind for ring in rings} == {"network"}
    rates = round_rates(group, [ring.routes for ring in rings])
    assert [ring.bandwidth_Bps for ring in rings] == pytest.approx(rates, rel=1e-12)


def test_a_search_that_did_not_end_says_so() -> None:
    machine = machine_from(MESHES["two sides of 5 and 7"])
    rings = rings_of(machine, tuple(range(len(machine.gpus))), both=True)
    assert rings
    assert not any(ring.whole for ring in rings)


@pytest.mark.parametrize(
    ("name", "entering", "leaving"),
    [
        ("dgx-h100", range(8), [7, 0, 1, 2, 3, 4, 5, 6]),  # an adapter each: in at its own, out beside the last
        ("dgx-a100-80gb", [1, 0, 3, 2, 5, 4, 7, 6], [0, 1, 2, 3, 4, 5, 6, 7]),  # two GPUs take turns on two adapters
        ("p4d.24xlarge", [1, 3, 5, 7], [0, 2, 4, 6]),  # two GPUs share one adapter: in at the one, out at the other
        ("p3.16xlarge", [3], [0]),  # of eight GPUs, four are at the socket of the only adapter
    ],
)
def test_rings_enter_and_leave_each_node_near_an_adapter(
    name: str, entering: Sequence[int], leaving: Sequence[int]
) -> None:
    machine = compile_machine(load_topology(name, n_nodes=2))
    rings = find_rings(Communicator(machine, machine.gpus), both_directions=False)
    assert [ring.order[0] for ring in rings] == list(entering)
    assert [ring.order[7] for ring in rings] == list(leaving)
    for ring in rings:
        assert ring.kind == "network"
        assert sorted(ring.order[:8]) == list(range(8))
        assert [rank + 8 for rank in ring.order[:8]] == list(ring.order[8:])  # equal nodes are traversed alike


def test_nodes_that_take_part_with_other_gpus_are_gone_through_each_in_its_way() -> None:
    machine = compile_machine(load_topology("p4d.24xlarge", n_nodes=3))
    ranks = [*range(4), 8, *range(18, 22)]
    rings = find_rings(Communicator(machine, [machine.gpus[i] for i in ranks]), both_directions=False)
    assert len(rings) == 1  # the second node has one adapter near its GPU
    [ring] = rings
    assert sorted(ring.order[:4]) == [0, 1, 2, 3]
    assert ring.order[4] == 4
    assert sorted(ring.order[5:]) == [5, 6, 7, 8]
    whole = Communicator(machine, machine.gpus)
    assert ring.bandwidth_Bps == pytest.approx(round_rates(whole, [ring.routes])[0])
    [two] = find_rings(whole.part([*range(4), 8]), both_directions=False)
    assert two.bandwidth_Bps == pytest.approx(round_rates(whole, [two.routes])[0])


def test_two_gpus_that_only_a_third_joins() -> None:
    machine = machine_from("""
schema_version: 1
name: over a third
devices:
  gpu[0-3]: {kind: gpu}
  cpu0: {kind: cpu}
links:
  - {between: ["gpu[0-3]", cpu0], kind: pcie, bandwidth: 5 GB/s}
  - {between: [gpu0, gpu1], kind: nvlink, bandwidth: 20 GB/s}
  - {between: [gpu1, gpu2], kind: nvlink, bandwidth: 20 GB/s}
  - {between: [gpu2, gpu3], kind: nvlink, bandwidth: 20 GB/s}
""")
    [ring] = rings_of(machine, (0, 2), both=True)
    assert (ring.kind, ring.bandwidth_Bps, ring.order) == ("nvlink-relay", 20e9, (0, 1))
    assert [len(route.links) for route in ring.routes] == [2, 2]


def test_more_gpus_than_are_searched_go_round_in_their_order() -> None:
    there, back = rings_of(ring_machine(17), tuple(range(17)), both=True)
    assert (there.order, there.kind, there.bandwidth_Bps) == (tuple(range(17)), "nvlink", 54e9)
    assert back.order == (0, *range(16, 0, -1))
    turned = tuple((7 * i) % 17 for i in range(17))  # no two neighbours in rank are neighbours in the ring
    assert {ring.kind for ring in rings_of(ring_machine(17), turned, both=False)} == {"nvlink"}


def test_each_cycle_and_its_reverse_is_one() -> None:
    """Four fully linked GPUs: three cycles, one of which fits beside its reverse."""
    pairs = [f"  - {{between: [gpu{a}, gpu{b}], kind: nvlink, bandwidth: 10 GB/s}}" for a in range(4) for b in range(a)]
    text = "schema_version: 1\nname: all\ndevices:\n  gpu[0-3]: {kind: gpu}\nlinks:\n" + "\n".join(pairs) + "\n"
    machine = machine_from(text)
    graph = link_graph(machine, machine.gpus)
    assert graph is not None
    found = _listed(machine.gpus, graph, 0, Budget(1_000))
    assert len(found) == 3
    assert len({frozenset(frozenset(hop) for hop in cycle) for cycle in found}) == 3
    assert len(rings_of(machine, (0, 1, 2, 3), both=True)) == 2


@pytest.mark.parametrize(("links", "bound", "cycles"), [(2, 2, 2), (2, 1, 1), (1, 2, 1), (3, 9, 3)])
def test_cycles_grow_in_what_the_others_left(links: int, bound: int, cycles: int) -> None:
    machine = machine_from(f"""
schema_version: 1
name: ring
devices:
  gpu[0-4]: {{kind: gpu}}
links:
  - {{between: ["gpu[0-4]", "gpu[1-4,0]"], kind: nvlink, bandwidth: 10 GB/s, count: {links}}}
""")
    graph = link_graph(machine, machine.gpus)
    assert graph is not None
    before = {a: dict(row) for a, row in graph.units.items()}
    found = _grown(machine.gpus, graph, bound, Budget(10_000))
    assert [{frozenset(hop) for hop in cycle} for cycle in found] == [
        {frozenset((i, (i + 1) % 5)) for i in range(5)}
    ] * cycles
    assert graph.units == before
