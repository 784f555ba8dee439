"""Staging in host memory: it is reported, and alternatives with a NIC per GPU are tried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.api.advice import better_machines
from simulator.cli import run
from simulator.topology.load import load_topology

OWN = """schema_version: 1
name: own
devices:
  gpu[0-1]: {part: h100-sxm5-80gb}
  cpu0: {kind: cpu, memory_bandwidth: 8 GB/s}
  nic0: {kind: nic, bandwidth: 25 GB/s}
links:
  - {between: ["gpu[0-1]", cpu0], part: pcie4-x16}
  - {between: [nic0, cpu0], part: pcie4-x16}
transport: {gpudirect_rdma: phb}
"""


@pytest.fixture
def step(tmp_path: Path, capsys):
    def asked(text: str, *more: str) -> str:
        path = tmp_path / "own.yaml"
        path.write_text(text, encoding="utf-8")
        words = ["--topology", str(path), "--nodes", "2", "--workload", "resnet18", "--batch", "4", "--quiet"]
        assert run([*words, *more]) == 0
        return capsys.readouterr().out

    return asked


@pytest.mark.slow
def test_a_step_says_that_bytes_are_staged_and_why(step) -> None:
    told = "bytes go to the NIC through host memory: the NIC has no GPUDirect"
    assert told in step(OWN)
    assert any(told in note for note in json.loads(step(OWN, "--json"))["results"][0]["notes"])
    assert "bytes go to the NIC" not in step(OWN.replace("25 GB/s}", "25 GB/s, gpudirect: true}"))
    far = OWN.replace("25 GB/s}", "25 GB/s, gpudirect: true}").replace("rdma: phb", "rdma: pix")
    assert "no GPUDirect over that distance" in step(far)


def test_gpudirect_under_devices_is_of_adapters_alone(tmp_path: Path, capsys) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN.replace("{kind: cpu,", "{kind: cpu, gpudirect: true,"), encoding="utf-8")
    assert run(["--topology", str(path)]) == 2
    assert "gpudirect does not apply to a cpu" in capsys.readouterr().err


@pytest.mark.slow
def test_what_binds_a_staged_exchange_is_among_what_is_tried(step) -> None:
    tried = json.loads(step(OWN, "--what-if", "--json"))["what_if"]
    gains = {each["change"]: each["gain"] for each in tried}
    assert gains["memory of hosts twice as fast"] > 1.3
    assert gains["GPUDirect between GPUs and adapters"] > 1.3


def test_what_is_changed_is_that_alone(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN, encoding="utf-8")
    two = load_topology(str(path), n_nodes=2)
    fabrics, gpudirect = "fabrics of switches twice as fast", "GPUDirect between GPUs and adapters"
    better = better_machines(two)
    assert better[fabrics] == two  # it has none
    assert better_machines(load_topology(str(path)))[gpudirect] == load_topology(str(path))
    assert better_machines(better[gpudirect])[gpudirect] == better[gpudirect] != two
    for old, new in zip(two.devices, better["memory of hosts twice as fast"].devices, strict=True):
        if old.kind == "cpu":
            assert new.part.memory_bandwidth == 2 * old.part.memory_bandwidth
        else:
            assert new == old
    over = tmp_path / "over.yaml"
    over.write_text("schema_version: 1\nname: o\ncluster: {node: own.yaml, nodes: 2, oversubscription: 2}\n")
    topology = load_topology(str(over))
    assert better_machines(topology)[fabrics].devices[-1].part.fabric_bandwidth == pytest.approx(50e9)
