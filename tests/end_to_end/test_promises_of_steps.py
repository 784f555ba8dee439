"""The project's promises about steps, checked through its commands; of operators: tests/unit/test_docs_errors.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.console.run import run_app
from tests.end_to_end.test_promises import run
from tests.remembered import ROOT, remember_steps
from validate.cli import app


def test_published_steps_of_shared_networks_on_hopper(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    remember_steps(monkeypatch)
    file = str(ROOT / "validate" / "measurements" / "published-steps" / "training.csv")
    assert run_app(app, "validate", ["score", file, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["tables"][0]
    groups = {json.dumps(group["by"]): group for group in table["groups"]}
    hopper = groups[json.dumps({"dataset": "llmfoundry_mpt_h100"})]
    assert hopper["n"] == 52
    assert hopper["median_ape"] <= 0.15
    assert hopper["median_ape"] < 0.5 * hopper["baselines"]["roofline"]["median_ape"]


def test_a_step_where_its_arithmetic_fits_on_paper(tmp_path: Path) -> None:
    """One product of 8192-cubed matrices: not faster than at the peak, and at most twice that time."""
    file = tmp_path / "product.yaml"
    file.write_text(
        "schema_version: 1\nname: product\ninput: {features: 8192}\n"
        "layers:\n  - {kind: linear, outputs: 8192, bias: false}\n"
    )
    arguments = ["--topology", "p3.2xlarge", "--workload", str(file), "--batch", "8192", "--mode", "forward"]
    document = json.loads(run(*arguments, "--json"))
    at_peak_s = 2 * 8192**3 / 15.7e12
    assert at_peak_s < document["step_time_s"] < 2 * at_peak_s
    assert document["model_flop"] == 2 * 8192**3
    assert document["parameter_count"] == 8192**2
