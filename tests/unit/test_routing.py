"""Routes on machines given here, and compared with networkx on random ones."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.network.route import Route
from simulator.network.routing import Router
from tests.machines import machine_from, machines, ring_machine

# Two sockets; under the first a tree of switches (gpu0 to gpu3) and one switch (gpu4, gpu5), under
# the second two GPUs without a switch.  Each kind of link has its own bandwidth.
BOX = """
schema_version: 1
name: box
devices:
  gpu[0-7]: {{kind: gpu}}
  cpu[0-1]: {{kind: cpu, memory_bandwidth: 16 GB/s}}
  sw[0-3]: {{kind: pcie-switch, latency: 0.1 us}}
links:
  - {{between: ["gpu[0-5]", "sw[0,0,1,1,3,3]"], kind: pcie, bandwidth: 10 GB/s, latency: 1 us}}
  - {{between: ["sw[0-1]", sw2], kind: pcie, bandwidth: 12 GB/s, latency: 1 us}}
  - {{between: [sw2, cpu0], kind: pcie, bandwidth: 14 GB/s, latency: 1 us, duplex: {duplex}}}
  - {{between: [sw3, cpu0], kind: pcie, bandwidth: 14 GB/s, latency: 1 us}}
  - {{between: ["gpu[6-7]", cpu1], kind: pcie, bandwidth: 10 GB/s, latency: 1 us}}
  - {{between: [cpu0, cpu1], kind: socket, bandwidth: 9 GB/s, latency: 2 us}}
transport: {{peer_to_peer: {level}, gpudirect_rdma: {level}}}
"""


def box(level: str, duplex: str = "full") -> Machine:
    return machine_from(BOX.format(level=level, duplex=duplex))


def route(machine: Machine, a: str, b: str) -> Route:
    return Router(machine).route(machine.node(a).index, machine.node(b).index)


def shares(machine: Machine, found: Route) -> dict[str, float]:
    """Return the share of each link, by name."""
    return {machine.links[index].name: share for index, share in found.links}


def loads(machine: Machine, found: Route, *, memory: bool = True) -> dict[str, float]:
    """Return the load of each resource, by name; by default only memories and fabrics."""
    named = {machine.resource_names[r]: share for r, share in found.loads}
    return {name: share for name, share in named.items() if not memory or ":" in name}


def way(*names: str) -> dict[str, float]:
    """Return each link between consecutive *names*, crossed once."""
    return {f"{a}->{b}": 1.0 for a, b in pairwise(names)}


# Pair, class, path between, latency in us, bandwidth in GB/s.
PEERS = [
    ("gpu0", "gpu1", "pix", ["sw0"], 2.1, 10),
    ("gpu4", "gpu5", "pix", ["sw3"], 2.1, 10),
    ("gpu0", "gpu2", "pxb", ["sw0", "sw2", "sw1"], 4.3, 10),
    ("gpu0", "gpu4", "phb", ["sw0", "sw2", "cpu0", "sw3"], 5.3, 10),
    ("gpu6", "gpu7", "phb", ["cpu1"], 2.0, 10),
    ("gpu0", "gpu6", "sys", ["sw0", "sw2", "cpu0", "cpu1"], 6.2, 9),
    ("gpu7", "gpu5", "sys", ["cpu1", "cpu0", "sw3"], 5.1, 9),
]
LEVELS = ["none", "pix", "pxb", "phb", "sys"]


@pytest.mark.parametrize(("a", "b", "path_class", "between", "latency_us", "bandwidth_GBps"), PEERS)
@pytest.mark.parametrize("level", LEVELS)
def test_peer_to_peer_as_far_as_allowed(
    level: str, a: str, b: str, path_class: str, between: list[str], latency_us: float, bandwidth_GBps: float
) -> None:
    machine = box(level)
    found = route(machine, a, b)
    if LEVELS.index(path_class) <= LEVELS.index(level):
        assert (found.path_class, found.transport) == (path_class, "peer-to-peer")
        assert shares(machine, found) == way(a, *between, b)
        assert found.latency_s == pytest.approx(latency_us * 1e-6, rel=1e-12)
        assert found.bandwidth_Bps == bandwidth_GBps * 1e9
        assert loads(machine, found) == {}
    else:
        assert found.transport == "host-staged"
        assert found.path_class == ("sys" if path_class == "sys" else "phb")


@pytest.mark.parametrize(
    ("a", "b", "path_class", "links", "memory", "bandwidth_GBps"),
    [
        # Up to memory and down again, both over the path between switch and CPU.
        ("gpu0", "gpu1", "phb", way("gpu0", "sw0", "sw2", "cpu0", "sw2", "sw0", "gpu1"), "cpu0", 8),
        ("gpu0", "gpu4", "phb", way("gpu0", "sw0", "sw2", "cpu0", "sw3", "gpu4"), "cpu0", 8),
        ("gpu6", "gpu7", "phb", way("gpu6", "cpu1", "gpu7"), "cpu1", 8),
        # Through the memory of the sender's socket.
        ("gpu0", "gpu6", "sys", way("gpu0", "sw0", "sw2", "cpu0", "cpu1", "gpu6"), "cpu0", 8),
        ("gpu6", "gpu0", "sys", way("gpu6", "cpu1", "cpu0", "sw2", "sw0", "gpu0"), "cpu1", 8),
    ],
)
def test_without_it_through_the_memory_of_the_host_twice(
    a: str, b: str, path_class: str, links: dict[str, float], memory: str, bandwidth_GBps: float
) -> None:
    machine = box("none")
    found = route(machine, a, b)
    assert (found.path_class, found.transport) == (path_class, "host-staged")
    assert shares(machine, found) == links
    assert loads(machine, found) == {f"{memory}:memory": 2.0}  # written and read
    assert found.bandwidth_Bps == bandwidth_GBps * 1e9
    assert (found.src, found.dst) == (machine.node(a).index, machine.node(b).index)


def test_a_link_of_half_duplex_is_loaded_both_ways() -> None:
    machine = box("none", duplex="half")
    found = route(machine, "gpu0", "gpu1")
    assert loads(machine, found, memory=False)["sw2<->cpu0"] == 2.0
    assert found.bandwidth_Bps == 7e9
    assert loads(machine, route(machine, "gpu0", "gpu4"), memory=False)["sw2<->cpu0"] == 1.0
    up, down = (link for link in machine.links if link.name in ("sw2->cpu0", "cpu0->sw2"))
    assert up.resource == down.resource


@pytest.mark.parametrize(
    ("a", "b", "path_class", "links", "memory"),
    [
        ("gpu0", "cpu0", "phb", way("gpu0", "sw0", "sw2", "cpu0"), {"cpu0:memory": 1.0}),
        ("cpu0", "gpu0", "phb", way("cpu0", "sw2", "sw0", "gpu0"), {"cpu0:memory": 1.0}),
        ("gpu6", "cpu1", "phb", way("gpu6", "cpu1"), {"cpu1:memory": 1.0}),
        ("gpu0", "cpu1", "sys", way("gpu0", "sw0", "sw2", "cpu0", "cpu1"), {"cpu1:memory": 1.0}),
        ("cpu1", "gpu0", "sys", way("cpu1", "cpu0", "sw2", "sw0", "gpu0"), {"cpu1:memory": 1.0}),
        ("cpu0", "cpu1", "sys", way("cpu0", "cpu1"), {"cpu0:memory": 1.0, "cpu1:memory": 1.0}),
    ],
)
def test_between_a_gpu_and_a_host(
    a: str, b: str, path_class: str, links: dict[str, float], memory: dict[str, float]
) -> None:
    machine = box("pix")
    found = route(machine, a, b)
    assert (found.path_class, found.transport) == (path_class, "host")
    assert shares(machine, found) == links
    assert loads(machine, found) == memory


def test_nearest_cpu() -> None:
    machine = box("pix")
    router = Router(machine)
    near = {gpu: router.nearest_cpu(machine.node(gpu).index) for gpu in ("gpu0", "gpu5", "gpu6", "cpu0", "cpu1")}
    zero, one = machine.node("cpu0").index, machine.node("cpu1").index
    assert near == {"gpu0": zero, "gpu5": zero, "gpu6": one, "cpu0": zero, "cpu1": one}


# -- NVLink --------------------------------------------------------------------------


def nvlinks(links: str, switches: str = "") -> Machine:
    return machine_from(f"""
schema_version: 1
name: nvlinks
devices:
  gpu[0-3]: {{kind: gpu}}
  cpu0: {{kind: cpu}}
{switches}
links:
  - {{between: ["gpu[0-3]", cpu0], kind: pcie, bandwidth: 10 GB/s, latency: 1 us}}
{links}
transport: {{peer_to_peer: sys}}
""")


def test_nvlink_comes_before_pcie_and_a_relay_is_never_taken_unasked() -> None:
    machine = nvlinks("""
  - {between: [gpu0, gpu1], kind: nvlink, bandwidth: 20 GB/s, latency: 0.5 us, count: 2}
  - {between: [gpu1, gpu2], kind: nvlink, bandwidth: 20 GB/s, latency: 0.7 us}
""")
    found = route(machine, "gpu0", "gpu1")
    assert (found.path_class, found.transport, found.bandwidth_Bps, found.latency_s) == ("nvl", "nvlink", 40e9, 5e-7)
    assert shares(machine, found) == {"gpu0->gpu1": 1.0}
    over = route(machine, "gpu0", "gpu2")
    assert (over.path_class, over.transport) == ("phb", "peer-to-peer")
    router = Router(machine)
    zero, one, two, three = machine.gpus
    relayed = router.relay(zero, one, two)
    assert relayed is not None
    assert (relayed.path_class, relayed.transport, relayed.bandwidth_Bps) == ("nvb", "nvlink-relay", 20e9)
    assert relayed.latency_s == pytest.approx(1.2e-6)
    assert shares(machine, relayed) == way("gpu0", "gpu1", "gpu2")
    assert router.relay(zero, one, three) is None
    assert router.direct(zero, two) is None


def test_links_of_two_speeds_share_in_proportion() -> None:
    machine = nvlinks("""
  - {between: [gpu0, gpu1], kind: nvlink, bandwidth: 30 GB/s, latency: 0.5 us}
  - {between: [gpu1, gpu0], kind: nvlink, bandwidth: 10 GB/s, latency: 0.9 us}
""")
    found = route(machine, "gpu0", "gpu1")
    assert shares(machine, found) == {"gpu0->gpu1": 0.75, "gpu0->gpu1#2": 0.25}
    assert found.bandwidth_Bps == pytest.approx(40e9)
    assert found.latency_s == 9e-7  # complete when the last part is


def test_equal_wires_are_one_link() -> None:
    machine = nvlinks("  - {between: [gpu0, gpu1], kind: nvlink, bandwidth: 30 GB/s}\n" * 3)
    [link] = [x for x in machine.links if x.name.startswith("gpu0->gpu1")]
    assert (link.count, link.bandwidth_Bps, link.unit_Bps) == (3, 90e9, 30e9)


def test_bytes_are_striped_over_all_switches() -> None:
    machine = nvlinks(
        "\n".join(
            f'  - {{between: ["gpu[0-3]", nvs{i}], kind: nvlink, bandwidth: 25 GB/s, latency: 0.2 us, count: {count}}}'
            for i, count in enumerate([2, 1, 1])
        ),
        "  nvs[0-2]: {kind: nvlink-switch, latency: 0.1 us}",
    )
    found = route(machine, "gpu0", "gpu3")
    assert (found.path_class, found.transport) == ("nvl", "nvlink")
    expected = {}
    for i, share in enumerate([0.5, 0.25, 0.25]):
        expected |= {f"gpu0->nvs{i}": share, f"nvs{i}->gpu3": share}
    assert shares(machine, found) == pytest.approx(expected)
    assert found.bandwidth_Bps == pytest.approx(100e9)
    assert found.latency_s == pytest.approx(0.5e-6)


def test_a_switch_that_carries_less_than_its_ports() -> None:
    machine = machine_from("""
schema_version: 1
name: narrow
parts:
  slow: {kind: switch, of: nvlink, latency: 0 s, fabric_bandwidth: 15 GB/s}
devices:
  gpu[0-1]: {kind: gpu}
  nvs0: {part: slow}
links:
  - {between: ["gpu[0-1]", nvs0], kind: nvlink, bandwidth: 25 GB/s}
""")
    found = route(machine, "gpu0", "gpu1")
    assert loads(machine, found) == {"nvs0:fabric": 1.0}
    assert found.bandwidth_Bps == 15e9


def test_a_switch_that_stores_and_forwards_waits_for_its_packet() -> None:
    machine = machine_from("""
schema_version: 1
name: store
parts:
  saf: {kind: switch, of: pcie, latency: 1 us, forwarding: store-and-forward, packet: 1500 B}
devices:
  gpu[0-1]: {kind: gpu}
  sw0: {part: saf}
links:
  - {between: ["gpu[0-1]", sw0], kind: pcie, bandwidth: 1 GB/s, latency: 2 us}
""")
    assert route(machine, "gpu0", "gpu1").latency_s == pytest.approx(2e-6 + 1.5e-6 + 1e-6 + 2e-6)


def test_where_no_rule_applies_any_links_do() -> None:
    machine = ring_machine(5)
    found = route(machine, "gpu0", "gpu2")
    assert (found.path_class, found.transport) == ("any", "direct")
    assert shares(machine, found) == way("gpu0", "gpu1", "gpu2")


def test_a_rank_and_itself_share_nothing() -> None:
    machine = ring_machine(3)
    found = route(machine, "gpu1", "gpu1")
    assert (found.path_class, found.links, found.loads, found.latency_s) == ("loc", (), (), 0.0)
    assert found.bandwidth_Bps == float("inf")


def test_nodes_that_nothing_joins() -> None:
    machine = machine_from("""
schema_version: 1
name: apart
devices: {gpu0: {kind: gpu}, cpu0: {kind: cpu}}
""")
    with pytest.raises(InputError, match=r"^apart: no links lead from gpu0 to cpu0$"):
        route(machine, "gpu0", "cpu0")


# -- several machines ----------------------------------------------------------------


def cluster(nics: str, *, gpudirect: str = "true", level: str = "pxb", cpus: int = 1) -> Machine:
    """Return two nodes of four GPUs on two switches; NICs run at 5 GB/s."""
    return machine_from(
        f"""
schema_version: 1
name: node
parts:
  card: {{kind: nic, network: infiniband, bandwidth: 5 GB/s, latency: 1.5 us, gpudirect: {gpudirect}}}
devices:
  gpu[0-3]: {{kind: gpu}}
  cpu[0-{cpus - 1}]: {{kind: cpu, memory_bandwidth: 16 GB/s}}
  sw[0-1]: {{kind: pcie-switch, latency: 0.1 us}}
  nic[0-1]: {{part: card}}
links:
  - {{between: ["gpu[0-3]", "sw[0,0,1,1]"], kind: pcie, bandwidth: 10 GB/s, latency: 1 us}}
  - {{between: ["sw[0-1]", "cpu[0,{cpus - 1}]"], kind: pcie, bandwidth: 12 GB/s, latency: 1 us}}
  - {{between: ["nic[0-1]", "{nics}"], kind: pcie, bandwidth: 11 GB/s, latency: 1 us}}
{"  - {between: [cpu0, cpu1], kind: socket, bandwidth: 9 GB/s, latency: 2 us}" if cpus == 2 else ""}
transport: {{peer_to_peer: pix, gpudirect_rdma: {level}}}
""",
        n_nodes=2,
    )


def across(gpu: list[str], other: list[str]) -> dict[str, float]:
    """Return the links over *gpu* ... NIC of node 0, the network, and NIC ... *other* of node 1."""
    return way(*(f"node0.{n}" for n in gpu), "network", *(f"node1.{n}" for n in other))


def test_with_gpudirect_each_rail_has_its_nic() -> None:
    machine = cluster("sw[0-1]")
    found = route(machine, "node0.gpu0", "node1.gpu3")
    assert (found.path_class, found.transport, found.bandwidth_Bps) == ("net", "network", 5e9)
    assert shares(machine, found) == across(["gpu0", "sw0", "nic0"], ["nic1", "sw1", "gpu3"])
    assert loads(machine, found) == {}
    # Four PCIe links, two switches, two adapters; the network itself has no latency here.
    assert found.latency_s == pytest.approx(4e-6 + 2 * 0.1e-6 + 2 * 1.5e-6)
    same = route(machine, "node0.gpu1", "node1.gpu0")
    assert shares(machine, same) == across(["gpu1", "sw0", "nic0"], ["nic0", "sw0", "gpu0"])


@pytest.mark.parametrize(("gpudirect", "level"), [("false", "pxb"), ("true", "none")])
def test_without_it_both_ends_go_through_memory(gpudirect: str, level: str) -> None:
    machine = cluster("sw[0-1]", gpudirect=gpudirect, level=level)
    found = route(machine, "node0.gpu0", "node1.gpu3")
    assert (found.path_class, found.transport) == ("net", "network-staged")
    assert shares(machine, found) == across(
        ["gpu0", "sw0", "cpu0", "sw0", "nic0"], ["nic1", "sw1", "cpu0", "sw1", "gpu3"]
    )
    assert loads(machine, found) == {"node0.cpu0:memory": 2.0, "node1.cpu0:memory": 2.0}


def test_nics_at_equal_distance_share_the_bytes() -> None:
    machine = cluster("sw[0,0]")
    found = route(machine, "node0.gpu0", "node1.gpu1")
    expected = {"node0.gpu0->node0.sw0": 1.0, "node1.sw0->node1.gpu1": 1.0}
    for nic in ("nic0", "nic1"):
        half = across(["sw0", nic], [nic, "sw0"])
        expected |= dict.fromkeys(half, 0.5)
    assert shares(machine, found) == pytest.approx(expected)
    assert found.bandwidth_Bps == pytest.approx(10e9)


def test_where_one_end_has_fewer_nics_near_they_serve_all_of_the_other() -> None:
    machine = cluster("sw[0,0]")
    found = route(machine, "node0.gpu0", "node1.gpu2")  # gpu2 has no NIC at its switch; both NICs are behind the CPU
    into = {name: share for name, share in shares(machine, found).items() if name.startswith("network->")}
    assert into == {"network->node1.nic0": 1.0}
    out = {name: share for name, share in shares(machine, found).items() if name.endswith("->network")}
    assert out == {"node0.nic0->network": 0.5, "node0.nic1->network": 0.5}
    assert found.bandwidth_Bps == pytest.approx(5e9)
    # Direct at one end and through memory at the other is not a direct path.
    for one, other, memory in (("node0.gpu0", "node1.gpu2", "node1"), ("node0.gpu2", "node1.gpu0", "node0")):
        mixed = route(machine, one, other)
        assert mixed.transport == "network-staged"
        assert loads(machine, mixed) == pytest.approx({f"{memory}.cpu0:memory": 2.0})


SWITCHES = """
schema_version: 1
name: switches
parts:
  card: {kind: nic, network: infiniband, bandwidth: 5 GB/s, gpudirect: true}
devices:
  gpu[0-1]: {kind: gpu}
  cpu0: {kind: cpu}
  sw[0-3]: {kind: pcie-switch}
  nic[0-2]: {part: card}
links:
  - {between: ["gpu[0-1]", sw0], kind: pcie, bandwidth: 10 GB/s}
  - {between: ["sw[0-2]", "sw[1-3]"], kind: pcie, bandwidth: 10 GB/s}
  - {between: ["nic[0-2]", "sw[2,2,3]"], kind: pcie, bandwidth: 10 GB/s}
  - {between: [sw3, cpu0], kind: pcie, bandwidth: 10 GB/s}
transport: {peer_to_peer: pxb, gpudirect_rdma: pxb}
"""


def test_of_nics_behind_several_switches_the_nearest_serve_every_gpu() -> None:
    """Two behind three switches, one behind four: the two near ones serve all GPUs, without taking turns."""
    machine = machine_from(SWITCHES)
    router = Router(machine)
    for gpu in machine.gpus:
        assert router.nics_near(gpu) == [machine.node("nic0").index, machine.node("nic1").index]


def test_a_gpu_without_a_way_to_a_host_is_reached_over_what_there_is() -> None:
    """gpu2 is attached only to gpu1: no rule applies, so the existing links are used, in both directions."""
    machine = machine_from("""
schema_version: 1
name: tail
devices:
  gpu[0-2]: {kind: gpu}
  cpu0: {kind: cpu, memory_bandwidth: 16 GB/s}
links:
  - {between: ["gpu[0-1]", cpu0], kind: pcie, bandwidth: 10 GB/s}
  - {between: [gpu1, gpu2], kind: nvlink, bandwidth: 20 GB/s}
""")
    for a, b in (("gpu0", "gpu2"), ("gpu2", "gpu0")):
        found = route(machine, a, b)
        assert (found.path_class, found.transport) == ("any", "direct")
        assert sorted(shares(machine, found)) == sorted(
            way("gpu0", "cpu0", "gpu1", "gpu2") if a == "gpu0" else way("gpu2", "gpu1", "cpu0", "gpu0")
        )


def test_nics_behind_the_cpu_are_taken_in_turn() -> None:
    machine = cluster("cpu[0,0]")
    router = Router(machine)
    near = [router.nics_near(gpu) for gpu in machine.gpus_of(0)]
    nics = [machine.node(f"node0.nic{i}").index for i in range(2)]
    assert near == [[nics[0]], [nics[1]], [nics[0]], [nics[1]]]
    assert router.nics_near(machine.node("node0.cpu0").index) == nics


def test_a_host_takes_the_nics_of_its_own_socket() -> None:
    machine = cluster("cpu[0,1]", cpus=2)
    router = Router(machine)
    for i in range(2):
        near = router.nics_near(machine.node(f"node0.cpu{i}").index)
        assert near == [machine.node(f"node0.nic{i}").index]
    found = route(machine, "node0.cpu1", "node1.cpu0")
    assert shares(machine, found) == across(["cpu1", "nic1"], ["nic0", "cpu0"])
    assert loads(machine, found) == {"node0.cpu1:memory": 1.0, "node1.cpu0:memory": 1.0}


# -- random machines -----------------------------------------------------------------


def host_graph(machine: Machine) -> nx.DiGraph:
    """Return the PCIe and socket links between all nodes except GPUs."""
    graph = nx.DiGraph()
    for link in machine.links:
        if link.kind in ("pcie", "socket"):
            graph.add_edge(link.src, link.dst)
    return graph


def walk(machine: Machine, found: Route) -> list[int]:
    """Return the nodes along *found*, which crosses each of its links once."""
    left = {machine.links[i].src: machine.links[i] for i, _ in found.links}
    nodes = [found.src]
    while nodes[-1] in left:
        nodes.append(left.pop(nodes[-1]).dst)
    assert not left
    return nodes


@pytest.mark.slow
@given(st.data())
def test_ways_are_the_shortest_that_the_rules_allow(data: st.DataObject) -> None:
    machine = data.draw(machines())
    router = Router(machine)
    graph = host_graph(machine)
    nvlinks = {(link.src, link.dst) for link in machine.links if link.kind == "nvlink"}
    cpus = [node.index for node in machine.nodes if node.kind == "cpu"]
    inner = [node.index for node in machine.nodes if node.kind != "gpu"]
    src = data.draw(st.sampled_from(machine.gpus))
    dst = data.draw(st.sampled_from([gpu for gpu in machine.gpus if gpu != src]))
    found = router.route(src, dst)
    assert found.bandwidth_Bps == min(machine.capacity_Bps[r] / share for r, share in found.loads)
    if (src, dst) in nvlinks:
        assert (found.path_class, len(found.links)) == ("nvl", 1)
        return
    between = graph.subgraph([src, dst, *inner])
    path = nx.shortest_path(between, src, dst)
    n_cpus = sum(node in cpus for node in path)
    n_switches = len(path) - 2 - n_cpus
    expected = ["pix" if n_switches <= 1 else "pxb", "phb", "sys"][n_cpus]
    if machine.transport.peer_to_peer in LEVELS[LEVELS.index(expected) :]:
        assert (found.path_class, found.transport) == (expected, "peer-to-peer")
        assert walk(machine, found) == path  # in a tree there is one shortest path
        assert found.latency_s == pytest.approx(
            sum(next(x for x in machine.outgoing[a] if x.dst == b).latency_s for a, b in pairwise(path))
            + sum(machine.nodes[v].latency_s for v in path[1:-1])
        )
        return
    assert found.transport == "host-staged"
    lengths = {cpu: nx.shortest_path_length(graph.subgraph([src, *inner]), src, cpu) for cpu in cpus}
    cpu = min(cpus, key=lambda cpu: (lengths[cpu], cpu))
    down = nx.shortest_path_length(graph.subgraph([dst, *inner]), cpu, dst)
    assert sum(share for _, share in found.links) == lengths[cpu] + down
    memory = {machine.memory_bus[cpu]: 2.0} if machine.memory_bus else {}
    assert {r: share for r, share in found.loads if r in machine.memory_bus.values()} == memory


def test_words_of_nvidia_smi_for_levels() -> None:
    from simulator.topology.schema import TransportSpec

    spec = TransportSpec.model_validate({"peer_to_peer": "NODE", "gpudirect_rdma": "SOC"})
    assert (spec.peer_to_peer, spec.gpudirect_rdma) == ("phb", "sys")


def test_of_equally_long_ways_those_as_wide_as_the_widest_are_taken() -> None:
    """10 GB/s throughout over sw2, 12 and then 2 over sw3: a path is as wide as its narrowest link."""
    machine = machine_from("""
schema_version: 1
name: two ways
devices:
  gpu[0-1]: {kind: gpu}
  sw[0-4]: {kind: pcie-switch}
links:
  - {between: ["gpu[0-1]", "sw[0-1]"], kind: pcie, bandwidth: 30 GB/s}
  - {between: ["sw[0-1]", sw2], kind: pcie, bandwidth: 10 GB/s}
  - {between: [sw0, sw3], kind: pcie, bandwidth: 12 GB/s}
  - {between: [sw1, sw3], kind: pcie, bandwidth: 2 GB/s}
  - {between: ["sw[0-1]", sw4], kind: pcie, bandwidth: 10 GB/s}
transport: {peer_to_peer: sys}
""")
    found = route(machine, "gpu0", "gpu1")
    ends = {"gpu0->sw0": 1.0, "sw1->gpu1": 1.0}
    half = dict.fromkeys(("sw0->sw2", "sw2->sw1", "sw0->sw4", "sw4->sw1"), 0.5)
    assert shares(machine, found) == pytest.approx(ends | half)
    assert found.bandwidth_Bps == pytest.approx(20e9)


def test_between_sockets_one_of_several_ways_is_taken() -> None:
    machine = machine_from("""
schema_version: 1
name: square of sockets
devices:
  gpu[0-1]: {kind: gpu}
  cpu[0-3]: {kind: cpu}
links:
  - {between: ["gpu[0-1]", "cpu[0,3]"], kind: pcie, bandwidth: 30 GB/s}
  - {between: ["cpu[0,0,1,2]", "cpu[1,2,3,3]"], kind: socket, bandwidth: 10 GB/s}
transport: {peer_to_peer: sys}
""")
    found = route(machine, "gpu0", "gpu1")
    assert shares(machine, found) == way("gpu0", "cpu0", "cpu1", "cpu3", "gpu1")
    assert found.bandwidth_Bps == 10e9


def test_adapters_at_switches_of_their_own_meet_above_them() -> None:
    machine = machine_from("""
schema_version: 1
name: rails
devices:
  gpu[0-1]: {kind: gpu}
  nic[0-1]: {kind: nic, bandwidth: 5 GB/s}
  rail[0-1]: {kind: network-switch}
  spine: {kind: network-switch}
links:
  - {between: ["gpu[0-1]", "nic[0-1]"], kind: pcie, bandwidth: 30 GB/s}
  - {between: ["nic[0-1]", "rail[0-1]"], kind: infiniband, bandwidth: 5 GB/s}
  - {between: ["rail[0-1]", spine], kind: infiniband, bandwidth: 5 GB/s}
""")
    [found] = Router(machine)._network_paths(machine.node("nic0").index, machine.node("nic1").index)
    assert [machine.links[link.index].name for link in found] == [*way("nic0", "rail0", "spine", "rail1", "nic1")]
