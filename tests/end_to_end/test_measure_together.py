"""Measure and compare the work of several ranks without a GPU or special rights: exchanges, and data-parallel steps."""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.console.run import run_app
from validate.cli import app

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
HOSTS = """\
schema_version: 1
name: hosts
description: Processes of one machine, joined by its loopback interface
source: "an example"
parts:
  loopback:
    kind: link
    of: ethernet
    bandwidth: 10 Gbit/s
    efficiency: 0.9
    latency: 5 us
    source: "an example"
cluster:
  node: linux-host
  nodes: 3
  fabric: loopback
"""


_ROUGHLY = ("--within", "50%")  # how well times are to be known; all ranks are busy until they are


def validate(*words: str) -> None:
    """Run ``validate``, in this process, which has torch already."""
    assert run_app(app, "validate", words) == 0


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_strategies_are_measured_between_processes_and_predicted_by_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts.yaml").write_text(HOSTS, encoding="utf-8")
    what = ["--workload", "bytes:64kB", "--strategy", "ring,parameter-server,gloo", "--out", "m", "--quiet"]
    what += _ROUGHLY
    validate("run", "--topology", "hosts.yaml", *what)
    found = rows(tmp_path / "m" / "collectives.csv")
    assert [row["strategy"] for row in found] == ["ring", "parameter-server", "gloo"]
    assert {(row["machine"], row["n_nodes"], row["n_gpus"], row["bytes"]) for row in found} == {
        ("hosts", "3", "3", "64000")
    }
    validate("compare", "m", "--quiet")
    assert "3 of 3 rows predicted" in capsys.readouterr().out
    before = (tmp_path / "m" / "collectives.csv").read_text(encoding="utf-8")
    validate("run", "--topology", "hosts.yaml", *what)
    assert (tmp_path / "m" / "collectives.csv").read_text(encoding="utf-8") == before  # nothing was measured again


def launched(folder: Path, *words: str, by_torchrun: bool) -> None:
    """Measure as *words* say over two nodes of one rank each, both processes of this machine.

    torchrun launches them, or what gives processes their ranks and the first one's address alone, as others do.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meet = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port]
    module = ["-m", "validate.measure", "--out", "m", "--device", "cpu", *_ROUGHLY, *words]
    common = os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    nodes = []
    for rank in range(2):
        own = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        launcher = ["-m", "torch.distributed.run", *meet, "--node-rank", str(rank)] if by_torchrun else []
        env = common if by_torchrun else common | own
        command = [sys.executable, *launcher, *module]
        nodes.append(subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True))
    said = [node.communicate(timeout=600)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said


def test_a_launcher_measures_a_step_over_the_ranks_of_several_nodes(tmp_path: Path) -> None:
    step = ["--workload", "lenet", "--batch", "4", "--gpus", "1,2", "--parallel", "dp,fsdp"]
    launched(tmp_path, *step, "--overlap", "bucket:1MB", by_torchrun=True)
    found = rows(tmp_path / "m" / "training.csv")
    assert [(row["n_nodes"], row["n_gpus"], row["sync"], row["overlap"]) for row in found] == [
        ("1", "0", "", ""),
        ("2", "2", "ddp", "1000000 B"),
        ("2", "2", "fsdp", ""),
    ]
    assert all(float(row["step_time_s"]) > 0 for row in found)


def test_a_launcher_measures_strategies_between_its_ranks_on_several_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts.yaml").write_text(HOSTS.replace("nodes: 3", "nodes: 2"), encoding="utf-8")
    what = ["--workload", "bytes:64kB", "--strategy", "ring,gpu0", "--out", "m", "--prepare", "--quiet"]
    validate("run", "--topology", "hosts.yaml", *what)
    launched(tmp_path, "--only", "strategies", "--machine", "hosts", by_torchrun=False)
    found = rows(tmp_path / "m" / "collectives.csv")
    assert [(row["strategy"], row["n_nodes"], row["note"]) for row in found] == [
        ("ring", "2", "gloo"),
        ("gpu0", "2", "gloo"),
    ]
    capsys.readouterr()
    validate("compare", "m", "--quiet")
    assert "2 of 2 rows predicted" in capsys.readouterr().out
