"""The user's own step: measured with ``simulate``'s options, and compared with its answer to the same options."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.api import Session
from simulator.cli.written import DEFAULTS, CommandOptions
from simulator.console.run import run_app
from simulator.errors import InputError
from simulator.workload.described import network_document, network_of, read_described
from simulator.workload.find import find_network
from validate.cli import app
from validate.cli.asking import NOT_MEASURED, as_run, asked_steps
from validate.compare.comparison import ComparisonOptions, compared
from validate.compare.folder import read_folder
from validate.compare.report import comparison_text

ROOT = Path(__file__).resolve().parents[2]
NET = """
schema_version: 1
name: small
input: {features: 12}
layers:
  - {kind: linear, outputs: 8}
  - {kind: relu}
  - {kind: linear, outputs: 4}
"""
OWN_CODE = """
import torch
from torch import nn


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        for i in range(200_000):
            i = i + 1
        return self.fc(x)


def build(batch):
    return Slow(), torch.randn(batch, 8), lambda y: y.square().mean()
"""
# Options of simulate that concern the run itself: output, and the machine.
OF_THE_RUN = {"topology", "device", "quiet"}


def options_of_run() -> set[str]:
    return {str(parameter.name) for parameter in app.commands["run"].params}


def test_every_option_of_simulate_can_be_measured_or_says_why_not() -> None:
    offered = options_of_run()
    every = set(DEFAULTS)
    assert every - offered - set(NOT_MEASURED) == set()
    assert set(NOT_MEASURED) & offered == set()
    assert set(NOT_MEASURED) <= every
    assert {"workload", "batch", "precision", "mode", "recompute", "channels_last"} <= offered
    assert all(why for why in NOT_MEASURED.values())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"workload": "resnet50"}, "--batch"),
        ({"batch": "4", "precision": "master-bf16"}, "Apex"),
        ({"batch": "4", "precision": "graph-fp16"}, "TensorFlow"),
        ({"batch": "4", "precision": "int8", "mode": "inference"}, "--precision int8"),
        ({"batch": "4", "gpus": "4"}, "--gpus 1"),
        ({"batch": "4", "topology": "p3.16xlarge,dgx-h100", "gpus": "1"}, "--topology"),
        ({"batch": "4", "strategy": "ring"}, "--strategy: a step uses torch's own exchanges"),
        ({"batch": "0"}, "--batch 0"),
        ({"batch": "4", "precision": "fp23"}, "--precision fp23"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(options: dict[str, Any], word: str) -> None:
    written = CommandOptions(topology="p3.16xlarge", gpus="1").but(**options)
    with pytest.raises(InputError) as caught:
        asked_steps(written, 1)
    assert word in caught.value.spelt("command")
    assert "\n" not in caught.value.spelt("command")


# -- networks that are written out -----------------------------------------------------


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "lstm-shi2016", "mixtral-8x7b"])
def test_a_network_that_is_written_out_is_the_same_when_it_is_read(name: str) -> None:
    network = find_network(name).build(2)
    again = network_of(json.loads(json.dumps(network_document(network))))
    for field in ("name", "layers", "elements", "samples", "sample"):
        assert getattr(again, field) == getattr(network, field)


def test_simulate_predicts_of_what_is_written_out_what_it_predicts_of_its_source(tmp_path: Path) -> None:
    written = CommandOptions(
        topology="dgx-h100", workload="gpt2", seq_len="256", batch="4", gpus="1", precision="amp-bf16"
    )
    (asked,) = asked_steps(written, 1)
    file = tmp_path / "gpt2.network.json"
    file.write_text(json.dumps(network_document(asked.network)), encoding="utf-8")
    session = Session()
    again = replace(asked.question, workload=str(file), sizes=())
    assert session.time_s(again) == session.time_s(asked.question)
    assert session.step(again).memory == session.step(asked.question).memory


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(schema_version=2), "schema_version"),
        (lambda d: d["layers"][0].update(operator="Lineal"), "did you mean 'Linear'"),
        (lambda d: d["layers"][0]["sizes"].update(outputs="8"), "whole numbers"),
        (lambda d: d["layers"][0]["sizes"].update(width=8), "no 'width'"),
        (lambda d: d["layers"][0]["sizes"].pop("rows"), "needs 'rows'"),
        (lambda d: d["layers"][0].update(inputs=[99]), "no tensor 99"),
        (lambda d: d["layers"][0].update(output=d["layers"][1]["output"]), "twice"),
        (lambda d: d["layers"][0].update(parameters=[["w", -1, True]]), "whole numbers"),
        (lambda d: d.update(layers=[]), "no layer"),
        (lambda d: d.update(elements="many"), "elements must be a list"),
        (lambda d: d["layers"].__setitem__(0, 3), "layer 0 must be an object"),
    ],
)
def test_what_is_no_network_is_refused_with_its_file_and_its_layer(change: Any, words: str, tmp_path: Path) -> None:
    document = network_document(find_network("mlp").build(2))
    change(document)
    file = tmp_path / "bad.network.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_described(str(file), batch=2, training=True)
    assert caught.value.spelt("command").startswith(str(file))
    assert words in caught.value.spelt("command")


def test_a_file_of_another_batch_or_with_sizes_besides_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mlp.network.json"
    file.write_text(json.dumps(network_document(find_network("mlp").build(2))), encoding="utf-8")
    with pytest.raises(InputError, match="batch of 2"):
        find_network(str(file)).build(4)
    with pytest.raises(InputError, match="seq_len"):
        find_network(str(file), sequence_length=8)
    with pytest.raises(InputError, match="cannot be read"):
        find_network(str(tmp_path / "none.network.json")).build(2)


def test_attention_is_written_out_as_the_torch_that_runs_it_has_it() -> None:
    network = find_network("llama-7b", sequence_length=32, settings={"layers": 1}).build(1)
    for software, library in (("torch 2.10.1", "flash2"), ("torch 2.11.0+cu130", "native")):
        found = [
            each.operator.library for each in as_run(network, software).layers if hasattr(each.operator, "library")
        ]
        assert found == [library]
    chosen = find_network("llama-7b", sequence_length=32, settings={"layers": 1, "attention": "fused-first"}).build(1)
    assert as_run(chosen, "torch 2.11.0").layers == chosen.layers


# -- end to end ------------------------------------------------------------------------

ROUGHLY = ("--within", "50%")  # how well times are to be known


def validate(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which has imported torch."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run_app(app, "validate", [*words])
    return subprocess.CompletedProcess([*words], status, out.getvalue(), err.getvalue())


def validate_apart(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as it must be that imports a user's module."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "validate", *words],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def measure_asked(cwd: Path, folder: str) -> subprocess.CompletedProcess[str]:
    """Measure the steps requested in *folder*, as on a machine that has only torch."""
    return subprocess.run(
        [*(sys.executable, "-m", "validate.measure", "--out", folder, "--only", "asked"), "--device", "cpu", *ROUGHLY],
        cwd=cwd, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("own")
    (folder / "small.yaml").write_text(NET, encoding="utf-8")
    assert validate("describe", "--out", "mine.yaml", cwd=folder).returncode == 0
    done = validate(
        *("run", "--topology", "mine.yaml", "--device", "cpu", "--workload", "small.yaml", "--batch", "16"),
        *("--micro-batches", "2", "--optimizer", "adam", "--precision", "fp32", "--threads", "1", "--out", "m"),
        *ROUGHLY, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.torch
def test_the_row_asks_what_simulate_is_asked(measured: Path) -> None:
    with (measured / "m" / "training.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["model"], row["batch_per_gpu"], row["grad_accum"]) == ("small", "16", "2")
    assert (row["global_batch"], row["optimizer"], row["policy"]) == ("32", "adam", "fp32")
    assert float(row["throughput"]) == pytest.approx(32 / float(row["step_time_s"]), rel=1e-6)
    found = compared(read_folder(str(measured / "m")), ComparisonOptions())
    (only,) = found.rows
    assert not only.skipped
    written = CommandOptions(
        topology=str(measured / "mine.yaml"), workload=str(measured / "small.yaml"), batch="16", micro_batches="2",
        optimizer="adam", precision="fp32", threads="1",
    )  # fmt: skip
    (asked,) = asked_steps(written, 1)
    assert only.predicted_s == Session().time_s(asked.question)


@pytest.mark.slow
@pytest.mark.torch
def test_the_folder_is_compared_where_its_network_is_not(measured: Path, tmp_path: Path) -> None:
    (measured / "m").rename(tmp_path / "elsewhere")
    done = validate("compare", "elsewhere", "--json", cwd=tmp_path)
    (tmp_path / "elsewhere").rename(measured / "m")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows_scored"] == 1


@pytest.mark.slow
@pytest.mark.torch
def test_the_same_step_is_measured_once_and_by_torch_alone(measured: Path) -> None:
    again = measure_asked(measured, "m")
    assert again.returncode == 0, again.stderr
    assert "asked: 0 measured" in again.stderr


@pytest.mark.slow
@pytest.mark.torch
def test_its_operators_are_measured_one_by_one(measured: Path) -> None:
    done = validate(
        *("run", "--topology", "mine.yaml", "--device", "cpu", "--workload", "small.yaml", "--batch", "16"),
        *("--precision", "fp32", "--parts", "--out", "p", *ROUGHLY), cwd=measured,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with (measured / "p" / "ops.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["m"], row["k"], row["n"]) for row in rows if row["op"] == "linear" and row["phase"] == "fwd"] == [
        ("16", "12", "8"), ("16", "8", "4"),
    ]  # fmt: skip
    assert {row["phase"] for row in rows} == {"fwd", "bwd", "bwd_data", "bwd_weight"}
    loss = [(row["phase"], row["rows"], row["cols"]) for row in rows if row["op"] == "cross_entropy"]
    assert sorted(loss) == [("bwd", "16", "4"), ("fwd", "16", "4")]
    assert json.loads((measured / "p" / "run.json").read_text(encoding="utf-8"))["left"] == []
    assert not (measured / "p" / "training.csv").exists()


@pytest.mark.slow
@pytest.mark.torch
def test_a_module_is_measured_by_its_own_code_beside_its_operators(measured: Path) -> None:
    (measured / "slow_module.py").write_text(OWN_CODE, encoding="utf-8")
    what = ("--workload", "torch:slow_module:build", "--batch", "4", "--threads", "1", *ROUGHLY)
    done = validate_apart("run", "--topology", "mine.yaml", "--device", "cpu", *what, "--out", "o", cwd=measured)
    assert done.returncode == 0, done.stderr
    with (measured / "o" / "training.csv").open(encoding="utf-8") as file:
        built, own = csv.DictReader(file)
    assert (built["modules"], own["modules"]) == ("", "own")
    assert float(own["step_time_s"]) > 2 * float(built["step_time_s"])  # 200,000 loop iterations, and one product
    found = compared(read_folder(str(measured / "o")), ComparisonOptions())
    ((row, times),) = found.own_code
    assert row.cells["modules"] == "own"
    assert times == pytest.approx(float(own["step_time_s"]) / float(built["step_time_s"]))
    assert "times as long as the module that is built of its operators" in " ".join(comparison_text(found).split())
    (measured / "slow_module.py").unlink()
    (measured / "o" / "training.csv").unlink()
    again = measure_asked(measured, "o")
    assert again.returncode == 0, again.stderr
    assert "asked: 1 measured" in again.stderr
    assert "its own code is not here" in again.stderr


@pytest.mark.slow
@pytest.mark.torch
def test_a_step_is_prepared_for_ranks_elsewhere_and_measured_there_as_replicas_and_shards(tmp_path: Path) -> None:
    common = ("--workload", "gpt2", "--seq-len", "8", "--batch", "1", "--set", "layers=2", "--set", "hidden=32")
    what = (*common, "--set", "heads=4", "--set", "vocabulary=50", "--gpus", "2", "--parallel", "dp,fsdp")
    done = validate(
        "run", "--topology", "dgx-h100", "--prepare", *what, "--precision", "fp32", "--out", "m", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "torchrun --nproc-per-node 2 -m validate.measure --out m --only asked --machine dgx-h100" in done.stderr
    assert not (tmp_path / "m" / "run.json").exists()
    again = measure_asked(tmp_path, "m")
    assert again.returncode == 0, again.stderr
    with (tmp_path / "m" / "training.csv").open(encoding="utf-8") as file:
        found = [(row["sync"], row["fsdp"], row["n_gpus"], row["global_batch"]) for row in csv.DictReader(file)]
    assert found == [("ddp", "", "2", "2"), ("fsdp", "1", "2", "2")]


@pytest.mark.slow
@pytest.mark.torch
def test_a_step_that_torch_cannot_run_is_refused_before_anything_is_measured(
    measured: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def refused(*words: str) -> str:
        assert run_app(app, "validate", ["run", "--device", "cpu", "--out", "none", *words]) == 2
        return capsys.readouterr().err

    monkeypatch.chdir(measured)
    common = ("--topology", "mine.yaml", "--batch", "1")
    assert "Megatron-LM" in refused(*common, "--workload", "gpt2", "--set", "attention=fused-softmax")
    assert not (measured / "none" / "asked.json").exists()
    for more, word in (
        (("--workload", "mlp", "--only", "ops"), "--only"),
        (("--workload", "mlp", "--cuda-graph"), "GPU"),
    ):
        assert word in refused(*common, *more)
    assert "--workload" in refused("--batch", "2")


@pytest.mark.slow
def test_without_torch_one_line_says_what_to_install(tmp_path: Path) -> None:
    words = [
        "run",
        "--topology",
        "p3.2xlarge",
        "--workload",
        "gpt2",
        "--batch",
        "4",
        "--out",
        str(tmp_path / "measured"),
    ]
    hidden = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('validate', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", hidden, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith("validate: torch is needed to measure")
    assert done.stderr.count("\n") == 1
