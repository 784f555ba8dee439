"""Equal nodes of a cluster: compiled, routed and simulated once, with the same results as each by itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from simulator.api import Session, load_machine
from simulator.collectives.communicator import Communicator
from simulator.collectives.search.rings import find_rings, round_rates
from simulator.errors import InputError
from simulator.network.compiling import compile_machine
from simulator.network.machine import Link, Machine
from simulator.network.routing import Router
from simulator.questions.where import Neighbour, SlowLink, Where
from simulator.topology import Device, Topology, Wire
from simulator.topology.load import load_topology, topology_from_text
from tests.asked import exchange_on
from tests.calls import at_most_calls

CLUSTERS = [("dgx-h100", None), ("p3.16xlarge", None), ("2x-v100-pcie", "ethernet-10g"), ("gcp-8xk80", "ethernet-10g")]


SLOW = (SlowLink("node2.nic0-network", 0.5),)


def written_out(cluster: Topology) -> Topology:
    """Return a single machine with all devices and wires of *cluster*, each under its own name."""

    def of(name: str, node: int) -> str:
        return name.replace("*", str(node))

    nodes = range(cluster.n_nodes)
    own, network = ([d for d in cluster.devices if (d.node < 0) is shared] for shared in (False, True))
    inside, uplinks = ([w for w in cluster.wires if ("network" in (w.a, w.b)) is up] for up in (False, True))
    return replace(
        cluster,
        n_nodes=1,
        devices=(
            *(Device(of(d.name, i), d.kind, d.part, d.part_name, 0) for i in nodes for d in own),
            *(replace(d, node=0) for d in network),
        ),
        wires=tuple(
            Wire(of(w.a, i), of(w.b, i), w.part, w.count) for wires in (inside, uplinks) for i in nodes for w in wires
        ),
    )


def figures(machine: Machine, link: Link) -> tuple[object, ...]:
    uses = machine.resource_names[link.resource], machine.capacity_Bps[link.resource]
    return replace(link, resource=0), uses, link.resource in machine.half_duplex


@pytest.mark.parametrize(("name", "fabric"), CLUSTERS)
def test_a_cluster_is_what_its_nodes_would_be_written_out(name: str, fabric: str | None) -> None:
    cluster = load_topology(name, n_nodes=3, fabric=fabric)
    machine, flat = compile_machine(cluster), compile_machine(written_out(cluster))
    assert [replace(node, host=0) for node in machine.nodes] == list(flat.nodes)
    assert [figures(machine, link) for link in machine.links] == [figures(flat, link) for link in flat.links]
    assert list(machine.link_names) == [link.name for link in flat.links]
    assert list(machine.outgoing) == [tuple(machine.links[link.index] for link in out) for out in flat.outgoing]
    assert machine.gpus == flat.gpus
    for here, there in ((machine.memory_bus, flat.memory_bus), (machine.fabric, flat.fabric)):
        named = {node: (machine.resource_names[r], machine.capacity_Bps[r]) for node, r in here.items()}
        assert named == {node: (flat.resource_names[r], flat.capacity_Bps[r]) for node, r in there.items()}


@pytest.mark.parametrize(("name", "fabric"), CLUSTERS)
def test_devices_and_links_are_found_by_name(name: str, fabric: str | None) -> None:
    machine = load_machine(name, n_nodes=3, fabric=fabric)
    assert [machine.find(node.name) for node in machine.nodes] == list(machine.nodes)
    assert [machine.link(link.name) for link in machine.links] == list(machine.links)
    assert [machine.find(name) for name in ("gpu0", "node*.gpu0", "node3.gpu0", "node00.gpu0", "node0.", "")] == 6 * [
        None
    ]
    assert machine.link("node0.gpu0->nothing") is machine.link("nothing") is None


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fabric"), CLUSTERS)
def test_routes_between_any_nodes_are_those_that_a_search_finds(name: str, fabric: str | None) -> None:
    machine = load_machine(name, n_nodes=4, fabric=fabric)
    router = Router(machine)
    ends = [node for node in machine.nodes if node.kind in ("gpu", "cpu")]
    for src, dst in product(ends, ends):
        assert router.route(src.index, dst.index) == router._find(src, dst)


@pytest.mark.slow
def test_routes_between_unlike_nodes_are_those_that_a_search_finds(tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    groups = "[{node: p3.16xlarge, nodes: 3}, {node: 2x-v100-pcie, nodes: 2}, {node: p3.16xlarge}]"
    text = f"schema_version: 1\nname: mixed\ncluster: {{fabric: ethernet-100g, groups: {groups}}}\n"
    path.write_text(text, encoding="utf-8")
    slow = (SlowLink("node1.nic0-network", 0.5), SlowLink("node2.gpu0-node2.gpu3", 0.0))
    busy = (Neighbour("node4.gpu0-node0.gpu1", 1e9),)
    there = Where(str(path))
    for machine in map(Session().machine, (there, replace(there, slow_links=slow, neighbours=busy))):
        assert [machine.find(node.name) for node in machine.nodes] == list(machine.nodes)
        assert [machine.link(link.name) for link in machine.links] == list(machine.links)
        assert [node.host for node in machine.nodes if node.kind == "cpu"] == sorted(
            node.host for node in machine.nodes if node.kind == "cpu"
        )
        for node, out in zip(machine.nodes, machine.outgoing, strict=True):
            assert set(out) == {link for link in machine.links if link.src == node.index}
        router = Router(machine)
        ends = [node for node in machine.nodes if node.kind in ("gpu", "cpu")]
        for src, dst in product(ends, ends):
            assert router.route(src.index, dst.index) == router._find(src, dst)


def test_a_slow_link_is_of_one_node_alone() -> None:
    whole, slow = (Session().machine(Where("p3.16xlarge", 4, slow_links=links)) for links in ((), SLOW))
    named = {link.name: link for link in whole.links}
    changed = [link.name for link in slow.links if link.bandwidth_Bps != named[link.name].bandwidth_Bps]
    assert sorted(changed) == ["network->node2.nic0", "node2.nic0->network"]
    assert {link.name for link in slow.links} == set(named)
    assert slow.gpus == whole.gpus
    assert [slow.like(host) for host in range(4)] == [0, 0, 2, 3]


def test_rings_over_equal_nodes_get_what_all_their_hops_would() -> None:
    text = "schema_version: 1\nname: x\ncluster: {node: dgx-a100-80gb, nodes: 5, oversubscription: 3}\n"
    for machine in (load_machine("p3.16xlarge", n_nodes=3), compile_machine(topology_from_text(text))):
        group = Communicator(machine, machine.gpus)
        for both in (False, True):
            found = find_rings(group, both_directions=both)
            rates = round_rates(group, [ring.routes for ring in found])
            assert [ring.bandwidth_Bps for ring in found] == pytest.approx(rates, rel=1e-12)


def test_nodes_of_which_nothing_is_asked_cost_nothing() -> None:
    load_machine("dgx-h100")  # so that parts are cached
    with at_most_calls(10_000):  # the same as for two nodes
        machine = load_machine("dgx-h100", n_nodes=4096)
    with at_most_calls(10_000):
        assert Router(machine).route(machine.gpus[7], machine.gpus[-1]).path_class == "net"


@pytest.mark.slow
def test_an_exchange_over_many_nodes_takes_few_events_and_calls() -> None:
    few = exchange_on(load_machine("dgx-h100", n_nodes=16), "nccl", 1e8)
    machine = load_machine("dgx-h100", n_nodes=256)
    with at_most_calls(1_700_000):  # 3,400 more for each node, for 47 flows
        many = exchange_on(machine, "nccl", 1e8)
    assert many.simulation_events == few.simulation_events < 50


@pytest.mark.parametrize(("name", "fabric"), CLUSTERS)
def test_of_equal_nodes_one_stands_for_all_of_its_place(name: str, fabric: str | None) -> None:
    machine = compile_machine(load_topology(name, n_nodes=3, fabric=fabric))
    first = [node for node in machine.nodes_of(0) if node.kind == "gpu"]
    assert machine.unlike(machine.gpus) == first
    assert machine.unlike([machine.gpus[-1], machine.gpus[0], machine.gpus[-2]])[:2] == [first[-1], first[0]]
    network = next(node for node in machine.nodes if node.host < 0)
    assert machine.unlike([machine.gpus[-1], network.index, machine.gpus[0]]) == [first[-1], network, first[0]]


def test_groups_may_be_counted_again_as_a_launch_line_does() -> None:
    groups = "[{node: p3.16xlarge, nodes: 3}, {node: dgx-1-v100-32gb}]"
    text = f"schema_version: 1\nname: mixed\ncluster: {{fabric: ethernet-100g, groups: {groups}}}\n"
    assert topology_from_text(text, n_nodes=4) == topology_from_text(text)
    with pytest.raises(InputError, match="the groups are 4 nodes"):
        topology_from_text(text, n_nodes=2)
