"""``validate run`` before it measures: machine, topology and folder must agree, or nothing is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from simulator.console.run import run_app
from simulator.topology.catalogue import builtin_topologies
from validate.cli import app

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = "schema_version: 1\nname: NAME\ndevices:\n  cpu0: {part: epyc-7302}\n"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest.fixture
def measured(monkeypatch):
    """Replace measuring by a function that records its settings and writes a row."""
    import validate.machine.measure.run as module

    asked = []

    def run(settings, say):
        asked.append((settings, (settings.out / "topology.yaml").is_file()))
        settings.out.mkdir(parents=True, exist_ok=True)
        machine = settings.machine or "amd-epyc"
        (settings.out / "run.json").write_text(json.dumps({"machine": machine, "environment": {}}))
        (settings.out / "copies.csv").write_text(f"machine,time_s\n{machine},1\n")
        return 0

    monkeypatch.setattr(module, "measure", run)
    return asked


def validate(capsys, *arguments):
    status = run_app(app, "validate", ["run", *map(str, arguments)])
    return status, capsys.readouterr().err


def topology(path, name, comment=""):
    path.write_text(TOPOLOGY.replace("NAME", name) + comment)
    return path


def test_a_topology_with_gpus_is_no_machine_without(tmp_path, capsys, measured):
    status, err = validate(capsys, "--topology", "dgx-h100", "--out", tmp_path / "m")
    assert status == 2
    assert "--topology dgx-h100: h100-sxm5-80gb is a GPU, and the CPU" in err
    assert not (tmp_path / "m").exists()
    assert measured == []


def test_the_device_to_measure_is_no_option_of_a_step(tmp_path, capsys, measured):
    status, err = validate(capsys, "--device", "cpu", "--out", tmp_path / "out")
    assert (status, "applies to your own step" in err) == (0, False)


def test_a_gpu_is_not_another(tmp_path, capsys, measured, monkeypatch):
    facts = SimpleNamespace(name="NVIDIA H100 80GB HBM3", multi_processor_count=132, total_memory=85_000_000_000)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    status, err = validate(capsys, "--topology", "1x-t4", "--out", tmp_path / "m")
    assert status == 2
    assert "t4 has 40 multiprocessors, and the NVIDIA H100 80GB HBM3 that is measured has 132" in err
    assert validate(capsys, "--topology", "dgx-h100", "--device", "cpu", "--out", tmp_path / "m")[0] == 2
    assert validate(capsys, "--topology", "dgx-h100", "--out", tmp_path / "m")[0] == 0
    assert len(measured) == 1


def test_the_topology_is_there_before_anything_is_measured(tmp_path, capsys, measured):
    out = tmp_path / "m"
    file = topology(tmp_path / "mine.yaml", "mine")
    assert validate(capsys, "--topology", file, "--out", out)[0] == 0
    ((settings, was_there),) = measured
    assert was_there
    assert settings.machine == "mine"
    assert (out / "topology.yaml").read_text() == file.read_text()
    assert sorted(p.name for p in out.iterdir()) == ["copies.csv", "run.json", "topology.yaml"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("lost"), OSError(28, "No space left on device")])
def test_what_ends_a_run_leaves_its_topology(tmp_path, capsys, monkeypatch, error):
    def fails(settings, say):
        raise error

    monkeypatch.setattr("validate.machine.measure.run.measure", fails)
    file = topology(tmp_path / "mine.yaml", "mine")
    status, _ = validate(capsys, "--topology", file, "--out", tmp_path / "m")
    assert status
    assert (tmp_path / "m" / "topology.yaml").read_text() == file.read_text()


def test_a_run_that_is_refused_leaves_all_as_it_was(tmp_path, capsys, monkeypatch):
    def refuses(settings, say):
        raise ValueError("holds measurements with torch 1")

    monkeypatch.setattr("validate.machine.measure.run.measure", refuses)
    assert validate(capsys, "--topology", topology(tmp_path / "a.yaml", "mine"), "--out", tmp_path / "x" / "m")[0] == 2
    assert not (tmp_path / "x").exists()
    held = tmp_path / "held"
    held.mkdir()
    before = topology(held / "topology.yaml", "mine").read_text()
    changed = topology(tmp_path / "b.yaml", "mine", "# corrected\n")
    assert validate(capsys, "--topology", changed, "--out", held)[0] == 2
    assert [p.name for p in held.iterdir()] == ["topology.yaml"]
    assert (held / "topology.yaml").read_text() == before


def test_rows_of_one_machine_stay_rows_of_one(tmp_path, capsys, measured):
    out = tmp_path / "m"
    mine = topology(tmp_path / "mine.yaml", "mine")
    other = topology(tmp_path / "other.yaml", "other")
    assert validate(capsys, "--topology", mine, "--out", out)[0] == 0
    for arguments, words in (
        (("--topology", other), "measured with the topology 'mine', and this one is 'other'"),
        (("--topology", other, "--machine", "mine"), "measured with the topology 'mine'"),
        (("--machine", "theirs"), "holds rows of the machine 'mine', and these would be of 'theirs'"),
    ):
        status, err = validate(capsys, *arguments, "--out", out)
        assert (status, err.count("\n")) == (2, 1)
        assert words in err
    assert (out / "topology.yaml").read_text() == mine.read_text()
    assert len(measured) == 1


def test_a_folder_goes_on_under_its_own_name_and_a_topology_may_be_corrected(tmp_path, capsys, measured):
    out = tmp_path / "m"
    assert validate(capsys, "--topology", topology(tmp_path / "a.yaml", "mine"), "--out", out)[0] == 0
    assert validate(capsys, "--out", out)[0] == 0
    changed = topology(tmp_path / "b.yaml", "mine", "# corrected\n")
    assert validate(capsys, "--topology", changed, "--out", out)[0] == 0
    assert [settings.machine for settings, _ in measured] == ["mine"] * 3
    assert (out / "topology.yaml").read_text() == changed.read_text()


def test_rows_without_a_topology_get_one_where_the_name_is_said(tmp_path, capsys, measured):
    out = tmp_path / "m"
    mine = topology(tmp_path / "mine.yaml", "mine")
    assert validate(capsys, "--out", out)[0] == 0
    status, err = validate(capsys, "--topology", mine, "--out", out)
    assert (status, "go on with --machine amd-epyc" in err) == (2, True)
    assert not (out / "topology.yaml").exists()
    assert validate(capsys, "--topology", mine, "--machine", "amd-epyc", "--out", out)[0] == 0
    assert (out / "topology.yaml").is_file()


def test_nothing_measured_is_not_to_be_compared(tmp_path, capsys, monkeypatch):
    def without_time(settings, say):
        settings.out.mkdir()
        (settings.out / "ops.csv").write_text("device,time_s\n")
        return 0

    monkeypatch.setattr("validate.machine.measure.run.measure", without_time)
    assert validate(capsys, "--out", tmp_path / "m") == (0, f"wrote {tmp_path / 'm'}, which holds no row\n")


def test_a_busy_machine_is_told_before_it_is_measured(tmp_path, capsys, measured, monkeypatch):
    assert "warning" not in validate(capsys, "--out", tmp_path / "a")[1]
    monkeypatch.setattr(os, "getloadavg", lambda: (50.0, 1.0, 1.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    err = validate(capsys, "--out", tmp_path / "b")[1]
    assert err.startswith("warning: in the last minute 50 processes wanted one of 8 cores")
    assert validate(capsys, "--quiet", "--out", tmp_path / "c")[1] == ""


def test_without_click_a_line_says_what_to_do(tmp_path):
    (tmp_path / "click.py").write_text('raise ModuleNotFoundError("No module named \'click\'", name="click")\n')
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "validate", "run"],
        env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (4, "")
    assert "click is needed" in done.stderr
    assert "python3 -m validate.measure --out measured" in done.stderr
    assert done.stderr.count("\n") == 1


def test_built_in_topologies_are_kept_as_they_are(tmp_path, capsys, measured):
    assert validate(capsys, "--topology", "cpu-i7-3820", "--out", tmp_path / "m")[0] == 0
    assert (tmp_path / "m" / "topology.yaml").read_text() == builtin_topologies()["cpu-i7-3820"].read_text()
