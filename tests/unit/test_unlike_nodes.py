"""Clusters of unlike nodes, and where their parameter servers run: scenarios B1 to B3, in closed form."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import simulate
from simulator.api import Session, load_machine
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from simulator.search.run import curve_of

S = 125e6
B = 1.25e9  # per NIC
EXACT = 1e-3
# A worker's own bus is a thousand times as fast as its NIC, so that only the network counts.
WORKER = """
schema_version: 1
name: worker
devices:
  gpu0: {kind: gpu}
  cpu0: {kind: cpu}
  nic0: {kind: nic, bandwidth: 1.25 GB/s}
links:
  - {between: [gpu0, cpu0], kind: pcie, bandwidth: 10000 GB/s}
  - {between: [cpu0, nic0], kind: pcie, bandwidth: 10000 GB/s}
"""
SERVER = """
schema_version: 1
name: server
parts:
  plain-cpu: {kind: cpu, source: a textbook's}
devices:
  cpu0: {part: plain-cpu}
  nic0: {kind: nic, bandwidth: 1.25 GB/s}
links:
  - {between: [cpu0, nic0], kind: pcie, bandwidth: 10000 GB/s}
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that writes a cluster of given workers and servers, and returns its location."""
    monkeypatch.chdir(tmp_path)
    Path("worker.yaml").write_text(WORKER, encoding="utf-8")
    Path("server.yaml").write_text(SERVER, encoding="utf-8")

    def write(workers: int, servers: int) -> Where:
        groups = f"    - {{node: worker.yaml, nodes: {workers}}}\n"
        groups += f"    - {{node: server.yaml, nodes: {servers}}}\n" if servers else ""
        name = f"c{workers}-{servers}.yaml"
        Path(name).write_text(f"schema_version: 1\nname: c\ncluster:\n  groups:\n{groups}", encoding="utf-8")
        return Where(name)

    return write


def time_s(where: Where, strategy: str, servers: tuple[str, ...] = ()) -> float:
    return Session().time_s(CollectiveQuestion(where=where, size_bytes=S, strategy=strategy, servers=servers))


@pytest.mark.parametrize("m", [2, 4, 8])
def test_b1_one_server_of_its_own_grows_with_the_workers(cluster, m: int) -> None:
    assert time_s(cluster(m, 1), "parameter-server") == pytest.approx(2 * m * S / B, rel=EXACT)


@pytest.mark.parametrize(("m", "n"), [(8, 2), (8, 4), (4, 4)])
def test_b2_several_servers_own_a_part_of_the_keys_each(cluster, m: int, n: int) -> None:
    for strategy in ("parameter-server-sharded", f"parameter-server-{n}"):
        assert time_s(cluster(m, n), strategy) == pytest.approx(2 * m / n * S / B, rel=EXACT)


@pytest.mark.parametrize("m", [2, 4, 8])
def test_b3_a_server_beside_each_worker_is_nearly_constant(cluster, m: int) -> None:
    expected = pytest.approx(2 * (m - 1) / m * S / B, rel=EXACT)
    assert time_s(cluster(m, 0), "parameter-server-sharded") == expected
    assert time_s(cluster(m, 2), "parameter-server-colocated") == expected
    assert time_s(cluster(m, 2), "parameter-server-sharded", ("workers",)) == expected


def test_servers_stand_where_they_are_told(cluster) -> None:
    where = cluster(4, 2)
    beside = time_s(where, "parameter-server", ("node1.cpu0",))
    assert beside == pytest.approx(2 * 3 * S / B, rel=EXACT)
    assert time_s(where, "parameter-server", ("node5.cpu0",)) == pytest.approx(2 * 4 * S / B, rel=EXACT)
    for servers, strategy, why in [
        (("node9.cpu0",), "parameter-server", "no CPU is called 'node9.cpu0'; did you mean 'node5.cpu0'"),
        ((), "parameter-server-3", "3 servers need a machine without GPUs each, and there are 2"),
    ]:
        with pytest.raises(InputError, match=f"{strategy} does not fit: {why}"):
            time_s(where, strategy, servers)
    with pytest.raises(InputError, match="every node has GPUs, so no server has a machine of its own"):
        time_s(cluster(4, 0), "parameter-server", ("own",))


def test_unlike_nodes_are_searched_each_for_itself(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "schema_version: 1\nname: mixed\ncluster:\n  fabric: ethernet-100g\n  groups:\n"
    Path("mixed.yaml").write_text(f"{text}    - {{node: p3.16xlarge}}\n    - {{node: p2.8xlarge}}\n", encoding="utf-8")
    machine = load_machine("mixed.yaml")
    assert [machine.nodes[gpu].part_name for gpu in machine.gpus] == ["v100-sxm2-16gb"] * 8 + ["k80-die"] * 8
    kinds: dict[int, set[str]] = {}
    session = Session()
    result = session.collective(CollectiveQuestion(where=Where("mixed.yaml"), size_bytes=S, strategy="hierarchical"))
    for task in result.timeline.plan.tasks:
        for flow in task.flows:
            src, dst = (machine.nodes[end].host for end in (flow.route.src, flow.route.dst))
            if src == dst:
                kinds.setdefault(src, set()).add(flow.route.path_class)
    assert "nvl" in kinds[0]
    assert "nvl" not in kinds[1]


def test_b4_gpus_add_up_over_nvlink_before_anything_leaves_the_node(capsys) -> None:
    where = Where("p3.16xlarge", 2)
    result = Session().collective(CollectiveQuestion(where=where, size_bytes=160e6, strategy="parameter-server"))
    spans = zip(result.timeline.plan.tasks, result.timeline.spans, strict=True)
    inside = [(task, span) for task, span in spans if task.label == "local aggregation" and task.flows]
    # Three links of 25 GB/s x 0.913 each way at every GPU, 7/8 of the bytes.
    expected = 7 / 8 * 160e6 / (3 * 25e9 * 0.913)
    assert max(span.end_s for _, span in inside) == pytest.approx(expected, rel=0.1)
    assert {flow.route.path_class for task, _ in inside for flow in task.flows} == {"nvl"}
    assert run(["--topology", "p3.16xlarge", "--nodes", "2", "--strategy", "parameter-server-sharded", "--quiet"]) == 0
    assert "bottleneck" in capsys.readouterr().out


def test_a_curve_over_unlike_gpus_names_the_slower_one(tmp_path: Path) -> None:
    """The kernels of a slower device take longer; no exchange beside them does that."""
    (tmp_path / "m.yaml").write_text(
        "schema_version: 1\nname: m\ndevices:\n  gpu0: {part: v100-pcie-16gb}\n  gpu1: {part: k80-die}\n"
        "  cpu0: {part: xeon-e5-2686-v4}\nlinks:\n  - {between: ['gpu[0-1]', cpu0], part: pcie3-x16}\n"
    )
    asked = {"topology": str(tmp_path / "m.yaml"), "workload": "resnet18", "batch": 8}
    first, both = simulate(**asked, gpus=1), simulate(**asked, gpus=2)
    knee = curve_of([first, both]).knee
    assert knee is not None
    assert knee.cause == "all wait for a slower device, k80-die"
