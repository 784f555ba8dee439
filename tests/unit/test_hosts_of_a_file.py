"""Computers in one file: devices that only cables between NICs join are separate hosts, with a network between them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reports.layout import lay_out_view
from reports.view import make_view
from simulator.cli import run
from simulator.errors import InputError
from simulator.network.compiling import compile_machine
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.topology.load import load_topology, topology_from_text
from tests.asked import exchange_on
from tests.machines import machine_from

_S = 1e9


def _blocks(spines: int, uplink: str = "12.5 GB/s", nic: str = "100 Gbit/s", turns: bool = False) -> Machine:
    """Return eight hosts of a GPU, a CPU and a NIC, below two leaves, listed leaf by leaf or by turns."""
    leaves = "0,1,0,1,0,1,0,1" if turns else "0,0,0,0,1,1,1,1"
    ups = "\n".join(
        f'  - {{between: ["leaf[0-1]", spine{i}], kind: ethernet, bandwidth: {uplink}}}' for i in range(spines)
    )
    return machine_from(f"""
schema_version: 1
name: blocks
devices:
  gpu[0-7]: {{part: h100-sxm5-80gb}}
  cpu[0-7]: {{part: xeon-platinum-8480c}}
  nic[0-7]: {{kind: nic, bandwidth: {nic}, gpudirect: true}}
  leaf[0-1]: {{kind: network-switch}}
  spine[0-{spines - 1}]: {{kind: network-switch}}
links:
  - {{between: ["gpu[0-7]", "cpu[0-7]"], part: pcie5-x16}}
  - {{between: ["nic[0-7]", "cpu[0-7]"], part: pcie5-x16}}
  - {{between: ["nic[0-7]", "leaf[{leaves}]"], kind: ethernet, bandwidth: 12.5 GB/s}}
{ups}
transport: {{peer_to_peer: phb, gpudirect_rdma: phb}}
""")


def test_hosts_are_told_apart_and_numbered_in_the_order_of_the_file() -> None:
    machine = _blocks(2)
    assert machine.n_hosts == 8
    assert [machine.nodes[gpu].host for gpu in machine.gpus] == list(range(8))
    assert {node.host for node in machine.nodes if node.kind == "network-switch"} == {-1}
    assert machine.nodes[machine.gpus[3]].host == machine.node("nic3").host


def test_gpus_keep_the_order_of_the_file() -> None:
    machine = machine_from("""
schema_version: 1
name: by turns
devices:
  gpu[0-3]: {part: t4}
  cpu[0-1]: {part: xeon-gold-6230}
  nic[0-1]: {kind: nic, bandwidth: 10 Gbit/s}
links:
  - {between: ["gpu[0-3]", "cpu[0,1,0,1]"], part: pcie3-x16}
  - {between: ["nic[0-1]", "cpu[0-1]"], part: pcie3-x16}
  - {between: [nic0, nic1], kind: ethernet, bandwidth: 10 Gbit/s}
""")
    assert [machine.nodes[gpu].name for gpu in machine.gpus] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert [machine.nodes[gpu].host for gpu in machine.gpus] == [0, 1, 0, 1]
    assert exchange_on(machine, "nccl", _S).sync_time_s > 2 * _S * 0.5 / 1.25e9  # half of it at least, over 10 Gbit/s


@pytest.mark.parametrize(("spines", "uplinks_Bps"), [(1, 12.5e9), (4, 50e9)])
def test_all_spines_carry_what_leaves_a_leaf(spines: int, uplinks_Bps: float) -> None:
    """Each leaf sends 2 x 4 x 4 / 8 GB; each NIC 2 x 7 / 8 GB at 12.5 GB/s."""
    found = exchange_on(_blocks(spines), "sharded", _S).sync_time_s
    assert found == pytest.approx(max(4 * _S / uplinks_Bps, 1.75 * _S / 12.5e9), rel=0.01)


@pytest.mark.parametrize("strategy", ["ring", "sharded"])
def test_an_adapter_is_no_faster_than_it_says(strategy: str) -> None:
    found = exchange_on(_blocks(4, nic="10 Gbit/s"), strategy, _S).sync_time_s
    assert found == pytest.approx(1.75 * _S / 1.25e9, rel=0.01)


def test_bands_and_words_are_those_between_nodes(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("""
schema_version: 1
name: two
devices:
  gpu[0-1]: {part: t4}
  cpu[0-1]: {part: xeon-gold-6230}
  nic[0-1]: {kind: nic, bandwidth: 10 Gbit/s}
links:
  - {between: ["gpu[0-1]", "cpu[0-1]"], part: pcie3-x16}
  - {between: ["nic[0-1]", "cpu[0-1]"], part: pcie3-x16}
  - {between: [nic0, nic1], kind: ethernet, bandwidth: 10 Gbit/s}
""")
    assert run(["--topology", str(file), "--workload", "bytes:1MB", "--collective", "reduce"]) == 0
    assert "not validated: no measured reduce between nodes" in capsys.readouterr().out
    assert run(["--topology", str(file), "--nodes", "2", "--workload", "bytes:1MB"]) == 2
    assert "is a cluster of 2 nodes already" in capsys.readouterr().err
    slow = ["--slow-link", "nic0-nic1:0.5x"]
    times = []
    for more in ([], slow):
        assert run(["--topology", str(file), "--workload", "bytes:1GB", "--strategy", "ring", "--json", *more]) == 0
        times.append(json.loads(capsys.readouterr().out)["results"][0]["sync_time_s"])
    assert times[1] == pytest.approx(2 * times[0], rel=0.01)


def test_a_ring_passes_through_all_hosts_of_a_leaf_whatever_their_order() -> None:
    """One host of each leaf sends over its uplink, so a spine at the rate of a host is enough."""
    listed, by_turns = (exchange_on(_blocks(1, turns=turns), "ring", _S) for turns in (False, True))
    assert by_turns.sync_time_s == pytest.approx(listed.sync_time_s, rel=1e-9)
    nccl = exchange_on(_blocks(1, turns=True), "nccl", _S)  # goes from machine to machine in the order of ranks
    assert nccl.sync_time_s > 3 * exchange_on(_blocks(1), "nccl", _S).sync_time_s
    order = by_turns.rings[0]
    assert sum(a % 2 != b % 2 for a, b in zip(order, (*order[1:], order[0]), strict=True)) == 2


def test_switches_are_drawn_apart_by_level() -> None:
    view = make_view(exchange_on(_blocks(2), "ring", _S))
    assert sum(symbol.kind == "gpu" for symbol in view.symbols) == 8
    positions = lay_out_view(view).positions
    assert len(set(positions)) == len(positions)
    heights = {symbol.label: y for symbol, (_, y) in zip(view.symbols, positions, strict=True)}
    assert heights["nic0"] < heights["leaf0"] == heights["leaf1"] < heights["spine0"] == heights["spine1"]


def test_a_large_cluster_is_drawn_as_one_node_and_its_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.view._MAX_NETWORK", 10)
    view = make_view(exchange_on(_blocks(8), "ring", _S))
    assert [symbol.label for symbol in view.symbols if symbol.kind == "network-switch"] == ["leaf0"]
    assert view.more == "and 7 more nodes like this one"


def test_nodes_that_are_not_drawn_are_named_by_sort(tmp_path: Path) -> None:
    text = "schema_version: 1\nname: c\ncluster:\n  groups:\n    - {node: p3.8xlarge, nodes: 8}\n"
    with_servers = text + "    - {node: xeon-gold-6230, nodes: 4}\n  fabric: 10Gbit/s\n"
    mixed = text + "    - {node: p3.16xlarge, nodes: 1}\n"
    for said, more in (
        (with_servers, "and 7 more nodes like this one and 4 without GPUs"),
        (mixed, "and 7 more nodes like this one and 1 unlike it"),
    ):
        machine = compile_machine(topology_from_text(said))
        assert make_view(exchange_on(machine, "ring", _S)).more == more


def test_a_fabric_faster_than_the_adapters_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    question = ["--nodes", "2", "--workload", "bytes:1MB", "--strategy", "ring", "--topology"]
    assert run([*question, "dgx-h100", "--fabric", "800Gbit/s"]) == 0
    assert "--fabric: adapters are simulated at its rate, 100 GB/s instead of 50 GB/s" in capsys.readouterr().err
    assert run([*question, "dgx-h100", "--fabric", "200Gbit/s"]) == 0
    assert not capsys.readouterr().err


def _two_rails(cables: str, memory: str = "", cpus: str = "cpu[0,0,1,1]") -> Machine:
    """Return two hosts of two NICs, all on the CPU, and two switches; *cables* says where each NIC's cable ends."""
    return machine_from(f"""
schema_version: 1
name: rails
devices:
  gpu[0-1]: {{kind: gpu}}
  cpu[0-1]: {{kind: cpu{memory}}}
  nic[0-3]: {{kind: nic, bandwidth: 10 GB/s}}
  rail[0-1]: {{kind: network-switch}}
links:
  - {{between: ["gpu[0-1]", "cpu[0-1]"], kind: pcie, bandwidth: 40 GB/s}}
  - {{between: ["nic[0-3]", "{cpus}"], kind: pcie, bandwidth: 40 GB/s}}
  - {{between: ["nic[0-3]", "rail[{cables}]"], kind: infiniband, bandwidth: 10 GB/s}}
""")


@pytest.mark.parametrize(("memory", "expected_s"), [("", 0.05), (", memory_bandwidth: 8 GB/s", 0.5)])
@pytest.mark.parametrize("cables", ["0,1,0,1", "0,1,1,0"])
def test_crossed_cables_are_only_a_renaming(cables: str, memory: str, expected_s: float) -> None:
    """Half of 1 GB over each of two cables of 10 GB/s; or 1 GB out and in, written and read, at 8 GB/s."""
    assert exchange_on(_two_rails(cables, memory), "ring", _S).sync_time_s == pytest.approx(expected_s, rel=1e-3)


def test_between_rails_a_farther_adapter_takes_part() -> None:
    """Bytes still go through the hosts' memory where the transport says so."""
    machine = machine_from("""
schema_version: 1
name: two GPUs on rails of their own
devices:
  gpu[0-3]: {kind: gpu}
  cpu[0-1]: {kind: cpu, memory_bandwidth: 1 GB/s}
  plx[0-3]: {kind: pcie-switch}
  nic[0-3]: {kind: nic, bandwidth: 10 GB/s, gpudirect: true}
  rail[0-1]: {kind: network-switch}
links:
  - {between: ["gpu[0-3]", "plx[0-3]"], kind: pcie, bandwidth: 40 GB/s}
  - {between: ["nic[0-3]", "plx[0-3]"], kind: pcie, bandwidth: 40 GB/s}
  - {between: ["plx[0-3]", "cpu[0,0,1,1]"], kind: pcie, bandwidth: 40 GB/s}
  - {between: ["nic[0-3]", "rail[0,1,0,1]"], kind: infiniband, bandwidth: 10 GB/s}
transport: {gpudirect_rdma: none}
""")
    route = Router(machine).route(machine.gpus[0], machine.gpus[3])
    assert route.transport == "network-staged"
    assert {machine.resource_names[n] for n, share in route.loads if share == 2} == {"cpu0:memory", "cpu1:memory"}


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_switches_spread_flows_evenly_over_unequal_paths(factor: float) -> None:
    """A spine at 0.9 of the rate takes its half and so sets the pace; one at 1.1 changes nothing."""
    plain = exchange_on(_spines(1.0), "sharded", _S).sync_time_s
    assert exchange_on(_spines(factor), "sharded", _S).sync_time_s == pytest.approx(plain / min(1.0, factor), rel=1e-3)


def _spines(factor: float) -> Machine:
    return machine_from(f"""
schema_version: 1
name: two spines
devices:
  gpu[0-3]: {{kind: gpu}}
  cpu[0-3]: {{kind: cpu}}
  nic[0-3]: {{kind: nic, bandwidth: 10 GB/s}}
  leaf[0-1]: {{kind: network-switch}}
  spine[0-1]: {{kind: network-switch}}
links:
  - {{between: ["gpu[0-3]", "cpu[0-3]"], kind: pcie, bandwidth: 40 GB/s}}
  - {{between: ["nic[0-3]", "cpu[0-3]"], kind: pcie, bandwidth: 40 GB/s}}
  - {{between: ["nic[0-3]", "leaf[0,0,1,1]"], kind: ethernet, bandwidth: 10 GB/s}}
  - {{between: ["leaf[0-1]", spine0], kind: ethernet, bandwidth: 4 GB/s}}
  - {{between: ["leaf[0-1]", spine1], kind: ethernet, bandwidth: {4 * factor} GB/s}}
""")


def test_nccl_fills_a_trunk_between_switches() -> None:
    """The share of an adapter that NCCL reaches is not that of a trunk, which the flows of four hosts fill."""
    machine = _blocks(1, uplink="2 GB/s", turns=True)
    trunk_s = 4 * 1.75 * _S / 2e9  # every other hop of the ring goes to the other leaf
    assert exchange_on(machine, "nccl", _S).sync_time_s == pytest.approx(trunk_s, rel=0.01)


@pytest.mark.parametrize(
    ("cable", "rate_Bps"),
    [
        ("bandwidth: 400 Gbit/s", 8e9),
        ("bandwidth: 400 Gbit/s, efficiency: 0.1", 5e9),
        ("bandwidth: 5 GB/s", 5e9),
        ("bandwidth: 12 GB/s, duplex: half", 6e9),  # both ways at once
        ("bandwidth: 400 Gbit/s, duplex: half", 8e9),
    ],
)
def test_a_cable_is_as_fast_as_the_slower_of_itself_and_its_adapters(cable: str, rate_Bps: float) -> None:
    machine = machine_from(f"""
schema_version: 1
name: pair
parts:
  own-nic: {{kind: nic, network: infiniband, bandwidth: 10 GB/s, efficiency: 0.8}}
devices:
  gpu[0-1]: {{kind: gpu}}
  cpu[0-1]: {{kind: cpu}}
  nic[0-1]: {{part: own-nic}}
links:
  - {{between: ["gpu[0-1]", "cpu[0-1]"], kind: pcie, bandwidth: 60 GB/s}}
  - {{between: ["nic[0-1]", "cpu[0-1]"], kind: pcie, bandwidth: 60 GB/s}}
  - {{between: [nic0, nic1], kind: infiniband, {cable}}}
""")
    assert exchange_on(machine, "ring", _S).sync_time_s == pytest.approx(_S / rate_Bps, rel=1e-3)


def test_an_adapter_with_faster_cables_is_noted() -> None:
    machine = _two_rails("0,1,0,1", cpus="cpu[0,0,1,1]")
    assert not machine.notes
    more = machine_from("""
schema_version: 1
name: two ports
devices:
  gpu[0-1]: {kind: gpu}
  cpu[0-1]: {kind: cpu}
  nic[0-1]: {kind: nic, bandwidth: 10 GB/s}
  sw[0-1]: {kind: network-switch}
links:
  - {between: ["gpu[0-1]", "cpu[0-1]"], kind: pcie, bandwidth: 40 GB/s}
  - {between: ["nic[0-1]", "cpu[0-1]"], kind: pcie, bandwidth: 40 GB/s}
  - {between: ["nic[0-1]", sw0], kind: ethernet, bandwidth: 10 GB/s}
  - {between: ["nic[0-1]", sw1], kind: ethernet, bandwidth: 10 GB/s}
""")
    text = "<text>:7:3: nic0: its cables together reach 20 GB/s, the adapter 10 GB/s; each is simulated by itself"
    assert more.notes == (text,)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        ("25Gbps", "'25Gbps' is not a rate; did you mean 25Gbit/s?"),
        ("2.5 gbps", "'2.5 gbps' is not a rate; did you mean 2.5 Gbit/s?"),
        ("0Gbit/s", "bandwidth must be more than zero; got '0Gbit/s'"),
        ("1e30Gbit/s", "bandwidth must be from 1 bit/s to 1000 PB/s; got '1e30Gbit/s'"),
        ("-5Gbit/s", "bandwidth must be more than zero; got '-5Gbit/s'"),
    ],
)
def test_a_fabric_that_is_no_rate_says_why(rate: str, words: str) -> None:
    text = f"schema_version: 1\nname: c\ncluster: {{node: dgx-h100, nodes: 2, fabric: {rate}}}\n"
    with pytest.raises(InputError) as caught:
        topology_from_text(text)
    assert caught.value.spelt("command") == f"<text>:3:45: {words}"
    with pytest.raises(InputError) as caught:
        load_topology("dgx-h100", n_nodes=2, fabric=rate)
    assert caught.value.spelt("command") == f"--fabric: {words}"
