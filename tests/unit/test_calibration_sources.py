"""Calibrations of what users have: a profile, and tables of others."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")

from simulator.api.calibrations import load_calibration
from simulator.console.run import run_app
from simulator.workload.operators import Attention, Conv2d, MatMul
from tests.published_wheels import DATA, products
from validate.cli import app
from validate.importing.other_operators import traced_rows
from validate.kinds import OPERATORS
from validate.kinds.operators import read_operator
from validate.tables.names import RowNames

PART = "h100-sxm5-80gb"
NAMES = RowNames()


def run(*words: object) -> int:
    return run_app(app, "validate", list(map(str, words)))


def call(number: int, name: str, dims: list[list[int]], *given: str, kind: str = "c10::BFloat16") -> dict[str, Any]:
    strides = [[max(1, shape[-1]), 1] if len(shape) == 2 else [] for shape in dims]
    told = {"External id": number, "Input Dims": dims, "Input type": [kind] * len(dims), "Input Strides": strides}
    return {"ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "pid": 1, "tid": 1, "ts": 10.0 * number, "dur": 5.0,
            "args": {**told, "Concrete Inputs": list(given)}}  # fmt: skip


def kernel(number: int, us: float, name: str = "nvjet") -> dict[str, Any]:
    told = {"External id": number, "correlation": number}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10.0 * number, "dur": us, "args": told}


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return path


def question(row: dict[str, Any]) -> Any:
    return read_operator(lambda column: str(row.get(column, "")), NAMES).question


def test_a_profile_of_a_gpu_gives_shapes_and_the_time_of_kernels(tmp_path: Path) -> None:
    events = [
        call(1, "mm", [[4096, 1024], [1024, 512]], "", ""),
        *(kernel(1, 20.0), kernel(1, 4.0, "splitKreduce")),
        call(2, "mm", [[4096, 1024], [1024, 512]], "", ""),
        kernel(2, 26.0),
        call(3, "linear", [[4096, 1024], [512, 1024]], "", "", ""),  # calls others, and launches nothing itself
        call(4, "cudnn_convolution", [[8, 64, 56, 56], [128, 64, 3, 3]], "", "", "[1, 1]", "[2, 2]", "[1, 1]", "1"),
        kernel(4, 50.0),
        call(5, "_scaled_dot_product_flash_attention", [[2, 32, 64, 128], [2, 8, 64, 128], [2, 8, 64, 128]],
             "", "", "", "0.", "True"),
        kernel(5, 9.0),
        call(6, "mm", [[64, 64], [64, 64]], "", "", kind="float"),
        kernel(6, 3.0, "sm80_xmma_gemm_f32f32_tf32f32"),
        call(7, "native_dropout", [[64, 64]], ""),
        kernel(7, 3.0),
    ]  # fmt: skip
    rows, left = traced_rows(str(write(tmp_path / "t.json", events)), PART)
    found = {question(row).operator: float(str(row["time_s"])) for row in map(dict, rows)}
    assert found == {
        MatMul(4096, 512, 1024): pytest.approx(25e-6),
        MatMul(64, 64, 64): pytest.approx(3e-6),
        Conv2d(8, 64, 128, 56, 56, 3, 3, 2, 2, 1, 1): pytest.approx(50e-6),
        Attention(2, 32, 64, 64, 128, 8, causal=True): pytest.approx(9e-6),
    }
    assert {row["dtype"] for row in rows} == {"bf16", "tf32"}
    assert left == {"aten::native_dropout: not read": 1}


def test_a_profile_calibrates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = []
    for i in range(1, 16):
        event = call(i, "mm", [[4096, 1024], [1024, 256 * i]], "", "")
        row = {"device": PART, "op": "matmul", "dtype": "bf16", "m": 4096, "n": 256 * i, "k": 1024}
        events += [event, kernel(i, 1.2e6 * NAMES.session.time_s(question(row)))]
    path = write(tmp_path / "t.json", events)
    assert run("calibrate", "--trace", path, "--device", PART, "--out", tmp_path / "c.yaml") == 0
    other = question({"device": PART, "op": "matmul", "dtype": "bf16", "m": 4096, "n": 900, "k": 1024})
    calibrated = NAMES.session.calibrated(load_calibration(tmp_path / "c.yaml"))
    assert calibrated.time_s(other) / NAMES.session.time_s(other) == pytest.approx(1.2, rel=0.03)
    assert "15 points" in capsys.readouterr().err


def test_a_profile_without_shapes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.json", [kernel(1, 3.0)])
    assert run("calibrate", "--trace", path, "--device", PART) == 2
    assert "record_shapes=True" in capsys.readouterr().err
    assert run("calibrate", "x.csv", "--trace", path, "--device", PART) == 2
    assert "--trace: takes the place of MEASUREMENTS and --topology" in capsys.readouterr().err


@pytest.mark.torch
def test_a_real_profile_of_a_cpu_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1, stride=2), torch.nn.ReLU(), torch.nn.Flatten(),
                                 torch.nn.Linear(2048, 64))  # fmt: skip
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as found, torch.no_grad():
        layers(torch.randn(4, 3, 32, 32))
    found.export_chrome_trace(str(tmp_path / "t.json"))
    rows, _ = traced_rows(str(tmp_path / "t.json"), "epyc-7502")
    assert {row["op"] for row in rows} == {"conv2d", "elementwise", "linear"}


PRIMUS = """\
| host | world | rank | m | n | k | trans_a | trans_b | dtype | avg_time_ms | tflop |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| a | 1 | 0 | 4096 | 4096 | 8192 | 0 | 1 | torch.bfloat16 | 0.500000 | 0.27 |
| a | 1 | 0 | 4096 | 4096 | 8192 | 1 | 0 | torch.bfloat16 | 0 | 0.27 |
"""
TURBO = """\
TestID,Platform,GPU,Case,MBS,M,N,K,Dtype,Check,Forward Time (ms),Forward TFLOPS,Backward Time (ms),Backward TFLOPS
1,ROCm,MI300X,Llama,1,4096,6144,4096,bf16,PASS,0.41,500,0.9,450
2,ROCm,MI300X,Llama,1,4096,6144,4096,fp8,PASS,0.31,500,0.9,450
3,ROCm,MI300X,Llama,1,64,6144,4096,bf16,PASS,0.02,500,0.9,450
"""


def test_products_of_primus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text, time_s, left in (
        ("p.md", PRIMUS, 0.5e-3, "1 x rows without sizes or a time"),
        ("t.csv", TURBO, 0.41e-3, "1 x products in fp8"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert run("import", "primus", tmp_path / name, "--device", "mi300x", "--out", tmp_path / "out") == 0
        assert f"left out: {left}" in capsys.readouterr().err
        with (tmp_path / "out" / "mi300x" / "ops.csv").open(encoding="utf-8") as stream:
            (row,) = csv.DictReader(stream)
        asked = OPERATORS.read(lambda column, row=row: row.get(column, ""), NAMES).question  # type: ignore[misc]
        assert (asked.operator.layout, float(row["time_s"])) == ("NT", pytest.approx(time_s))
    (tmp_path / "n.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert run("import", "primus", tmp_path / "n.csv", "--device", "mi300x", "--out", tmp_path / "out") == 2
    assert "n.csv:1:1: holds no table with the columns m, n, k, dtype" in capsys.readouterr().err
    (tmp_path / "n.csv").write_text("m,n,k,trans_a,trans_b,dtype,avg_time_ms\n8,8,8,0,0,fp8,1\n", encoding="utf-8")
    assert run("import", "primus", tmp_path / "n.csv", "--device", "mi300x", "--out", tmp_path / "out") == 2
    assert "no row can be imported: 1 x products in fp8, which include quantising" in capsys.readouterr().err


def test_tables_of_aiconfigurator_calibrate(tmp_path: Path) -> None:
    sizes = [(1024 * i, 4096, 4096) for i in range(1, 13)]
    folder = tmp_path / DATA / "h200_sxm" / "trtllm" / "1.0"
    folder.mkdir(parents=True)
    (folder / "gemm_perf.txt").write_text(products("bfloat16", shapes=sizes), encoding="utf-8")
    assert run("import", "aiconfigurator", tmp_path, "--out", tmp_path / "out") == 0
    table = tmp_path / "out" / "h200-sxm" / "ops.csv"
    assert run("calibrate", "--device", "h200-sxm", table, "--out", tmp_path / "c.yaml") == 0
    assert load_calibration(tmp_path / "c.yaml").keys() == {"h200-sxm"}
