"""SimuMax's files of a machine as tables: times by hand, phases, and what is left out."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from simulator.console.run import run_app
from simulator.workload.operators import Attention, GroupedLinear, MatMul
from validate.cli import app
from validate.kinds import OPERATORS
from validate.tables.names import RowNames

PEAK = 2250.0
GROUPED = "ng=160, M=154, N=3072, K=5120, dtype={0}, out_dtype=bf16, main_grad_dtype={1}, stage={2}, grad=True"
FLASH = "batch=2, seq_len=4096, head_num=64, kv_head_num=8, qk_head_dim=192, v_head_dim=128, qkv_contiguous=True"


def write(path: Path, **operators: Mapping[str, object]) -> Path:
    named = {name: {"tflops": PEAK, "accurate_efficient_factor": shapes} for name, shapes in operators.items()}
    path.write_text(json.dumps({"accelerator": {"op": {"default": {"tflops": PEAK}, **named}}}), encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    status = run_app(app, "validate", ["import", "simumax", *map(str, words)])
    return status, capsys.readouterr().err


def table(tmp_path: Path) -> list[dict[str, str]]:
    with (tmp_path / "out" / "b200" / "ops.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_rows_by_hand(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    matmul = {f"b=1, m=64, k=128, n=256, layout={name}, accumulate=True, out_dtype=fp32": 0.5 for name in ("TN", "NT")}
    grouped = {GROUPED.format("bf16", "fp32", stage): 0.2 for stage in ("fwd", "bwd_grad_act", "bwd_grad_w")}
    left = {GROUPED.format("bf16", "bf16", "bwd_grad_w"): 0.2, GROUPED.format("fp8", "fp32", "fwd"): 0.2, "odd": 0.1}
    path = write(
        tmp_path / "b.json", matmul=matmul, group_matmul=grouped | left, sdp_bwd={FLASH: 0.4}, fp8_matmul=matmul
    )
    status, err = run(capsys, path, "--device", "b200", "--out", tmp_path / "out")
    assert status == 0
    for reason in (
        "2 x fp8_matmul: not modelled",
        "1 x group_matmul in 8 bits",
        "1 x group_matmul that adds",
        "1 x group_matmul: sizes",
    ):
        assert f"left out: {reason}" in err
    asked = [
        OPERATORS.read(lambda column, row=row: row.get(column, ""), RowNames()).question for row in table(tmp_path)
    ]
    times = [float(row["time_s"]) for row in table(tmp_path)]
    assert [question.operator for question in asked] == [
        MatMul(64, 256, 128, 1, "NT"),
        MatMul(64, 256, 128, 1, "TN"),
        *[GroupedLinear(160 * 154, 5120, 3072, False, 160, 0, "streams", into_buffer=True)] * 3,
        Attention(2, 64, 4096, 4096, 160, 8, True, "native"),
    ]
    assert [question.phase for question in asked] == ["fwd", "fwd", "fwd", "bwd_data", "bwd_weight", "bwd"]
    assert [question.is_cold for question in asked] == [False, False, True, True, True, False]
    flop = [2 * 64 * 128 * 256] * 2 + [2 * 160 * 154 * 3072 * 5120] * 3 + [5 * 2 * 4096**2 * 64 * (192 + 128)]
    efficiency = [0.5, 0.5, 0.2, 0.2, 0.2, 0.4]
    assert times == pytest.approx([f / (e * PEAK * 1e12) for f, e in zip(flop, efficiency, strict=True)], rel=1e-4)


@pytest.mark.parametrize(
    ("content", "options", "told"),
    [
        (None, ("--out", "x"), "--device: SimuMax's file does not say which part"),
        (None, ("--out", "x", "--device", "b20"), "--device: there is no 'b20'; did you mean"),
        (None, ("--out", "x", "--device", "b200", "--sample", "1/2"), "--sample: a file of SimuMax is small"),
        ("[]", ("--out", "x", "--device", "b200"), "bad.json"),
        (
            '{"accelerator": {"op": {"matmul": {"tflops": "x", "accurate_efficient_factor": {"b=1": 1}}}}}',
            ("--out", "x", "--device", "b200"),
            "bad.json: accelerator: op: matmul: needs tflops, a number",
        ),
        ("{}", ("--out", "x", "--device", "b200"), "bad.json: holds no accelerator: op: with tflops"),
        (
            '{"accelerator": {"op": {"matmul": 3}}}',
            ("--out", "x", "--device", "b200"),
            "bad.json: holds no accelerator",
        ),
        ('{"accelerator": {"op": {}}}', ("--out", "x", "--device", "b200"), "no row can be imported"),
    ],
)
def test_what_is_no_such_file_is_refused(
    content: str | None,
    options: tuple[str, ...],
    told: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "good.json", matmul={}) if content is None else tmp_path / "bad.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    status, err = run(capsys, path.name, *options)
    assert status == 2
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()
