"""Measure and compare the work of several ranks without a GPU or special rights: exchanges, and data-parallel steps."""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

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


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_strategies_are_measured_between_processes_and_predicted_by_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(HOSTS, encoding="utf-8")
    what = ["--workload", "bytes:64kB", "--strategy", "ring,parameter-server,gloo", "--out", "m", "--quiet"]
    what += _ROUGHLY
    done = run("validate", "run", "--topology", "hosts.yaml", *what, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "m" / "collectives.csv")
    assert [row["strategy"] for row in found] == ["ring", "parameter-server", "gloo"]
    assert {(row["machine"], row["n_nodes"], row["n_gpus"], row["bytes"]) for row in found} == {
        ("hosts", "3", "3", "64000")
    }
    compared = run("validate", "compare", "m", "--quiet", folder=tmp_path)
    assert compared.returncode == 0, compared.stderr
    assert "3 of 3 rows predicted" in compared.stdout
    before = (tmp_path / "m" / "collectives.csv").read_text(encoding="utf-8")
    assert run("validate", "run", "--topology", "hosts.yaml", *what, folder=tmp_path).returncode == 0
    assert (tmp_path / "m" / "collectives.csv").read_text(encoding="utf-8") == before  # nothing was measured again


def launched(folder: Path, *words: str) -> None:
    """Let torchrun measure as *words* say, over two nodes of one rank each, both processes of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meet = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    command = [sys.executable, "-m", "torch.distributed.run", *meet]
    asked = ["--out", "m", "--device", "cpu", *_ROUGHLY, *words]
    nodes = [
        subprocess.Popen(
            [*command, "--node-rank", str(rank), "-m", "validate.measure", *asked],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [node.communicate(timeout=600)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said


def test_a_launcher_measures_a_step_over_the_ranks_of_several_nodes(tmp_path: Path) -> None:
    step = ["--workload", "lenet", "--batch", "4", "--gpus", "1,2", "--parallel", "dp,fsdp"]
    launched(tmp_path, *step, "--overlap", "bucket:1MB")
    found = rows(tmp_path / "m" / "training.csv")
    assert [(row["n_nodes"], row["n_gpus"], row["sync"], row["overlap"]) for row in found] == [
        ("1", "0", "", ""),
        ("2", "2", "ddp", "1000000 B"),
        ("2", "2", "fsdp", ""),
    ]
    assert all(float(row["step_time_s"]) > 0 for row in found)


def test_a_launcher_measures_strategies_between_its_ranks_on_several_nodes(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(HOSTS.replace("nodes: 3", "nodes: 2"), encoding="utf-8")
    what = ["--workload", "bytes:64kB", "--strategy", "ring,gpu0", "--out", "m", "--prepare", "--quiet"]
    done = run("validate", "run", "--topology", "hosts.yaml", *what, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    launched(tmp_path, "--only", "strategies", "--machine", "hosts")
    found = rows(tmp_path / "m" / "collectives.csv")
    assert [(row["strategy"], row["n_nodes"], row["note"]) for row in found] == [
        ("ring", "2", "gloo"),
        ("gpu0", "2", "gloo"),
    ]
    compared = run("validate", "compare", "m", "--quiet", folder=tmp_path)
    assert "2 of 2 rows predicted" in compared.stdout, compared.stderr
