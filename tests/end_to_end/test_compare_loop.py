"""Measure this machine briefly, and compare the results with their prediction."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from simulator.console.run import run_app
from validate.cli import app

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
_ENOUGH = {"first": 20, "second": 5}  # rows of operators: the first calibrates, the second is compared with it


def validate(*arguments):
    """Run ``validate`` in this process, where it needs no torch of its own."""
    return run_app(app, "validate", arguments)


def validate_alone(*arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "validate", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loop")
    assert validate("describe", "--out", str(folder / "mine.yaml"), "--quiet") == 0
    common = ["--topology", "mine.yaml", "--device", "cpu", "--within", "30%"]
    for name, enough in _ENOUGH.items():
        for budget in ("3s", "9s", "30s", "60s"):  # a busy machine measures little in 3 s; what is there is kept
            done = validate_alone("run", *common, "--only", "launch,ops", "--budget", budget, "--out", name, cwd=folder)
            assert done.returncode == 0, done.stderr
            if len((folder / name / "ops.csv").read_text(encoding="utf-8").splitlines()) > enough:
                break
    return folder


@pytest.fixture(autouse=True)
def there(measured, monkeypatch):
    monkeypatch.chdir(measured)


def test_what_was_measured_is_predicted_and_reported(measured, capsys):
    assert validate("compare", "first", "--with", "second", "--report", "r.html", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows_scored"] > 0
    assert found["part"]
    assert found["drift"]["classes"]
    assert found["environment"]["torch"]
    page = (measured / "r.html").read_text()
    assert page.rstrip().endswith("</html>")
    assert "Error by class" in page


def test_text_through_a_pipe_fits_80_columns(measured):
    done = validate_alone("compare", "first", cwd=measured)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "error by class" in done.stdout


def test_a_calibration_of_it_is_read_by_simulate(measured, capsys):
    pytest.importorskip("scipy")
    assert validate("calibrate", "first", "--out", "mine.calibration.yaml") == 0
    capsys.readouterr()
    assert validate("compare", "second", "--calibration", "mine.calibration.yaml", "--json") == 0
    assert json.loads(capsys.readouterr().out)["method"].startswith("calibration of")
    step = subprocess.run(
        [sys.executable, "-c", "from simulator.cli import main; main()", "--topology", "mine.yaml", "--workload",
         "resnet18", "--batch", "1", "--calibration", "mine.calibration.yaml", "--json"],
        cwd=measured, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert step.returncode == 0, step.stderr
    ((_, factors),) = yaml.safe_load((measured / "mine.calibration.yaml").read_text())["devices"].items()
    found = any(factors.get(name) for name in ("by_class", "host", "by_data_sheet", "neighbours"))
    helps = found or {factors[name] for name in ("compute", "bandwidth", "dispatch")} != {1.0}
    assert json.loads(step.stdout)["calibrated"] is helps  # noise of a busy machine may leave nothing to fit
