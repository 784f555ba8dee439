"""``simulate`` with a program: text, JSON, trace, figure, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.cli import run

PROGRAM = """\
schema_version: 1
name: small
software: {depth: 0}
program:
  - {tensor: x, size: 100 MB, device: gpu0}
  - repeat: 50
    do:
      - {run: {issue: 10 us, compute: 30 us, return: 5 us}, holds: 1 MB}
      - mark: one more
  - {copy: x, to: cpu, pinned: true, gives: y}
  - wait: all
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(PROGRAM, encoding="utf-8")
    return tmp_path


def asked(*more: str) -> int:
    return run(["--topology", "p3.2xlarge", "--workload", "small.yaml", *more])


def test_the_json_has_what_the_text_says(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["answers"]["done_s"] == found["done_s"] == found["results"][0]["done_s"]
    assert found["answers"]["one more first"] == pytest.approx(10e-6)
    assert found["answers"]["one more every"] == pytest.approx(10e-6)
    assert found["operators"] == 50
    assert found["held_bytes"] == max(point["bytes"] for point in found["held"]) == pytest.approx(34e6, abs=1.5e6)
    assert found["streams"]["gpu0/compute"]["busy_s"] == pytest.approx(50 * 30e-6)
    assert asked() == 0
    text = capsys.readouterr().out
    for words in ("small on p3.2xlarge, gpu0", "host returns", "50 operators, 1 copy", "bound by      copies"):
        assert words in text


def test_the_trace_and_the_figure_are_written(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked("--trace", "small.json", "--plot", "small.svg") == 0
    events = json.loads((program / "small.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["cat"] for event in slices} == {"cpu_op", "kernel"}
    assert sum(event["dur"] for event in slices if event["args"].get("does") == "copy") > 5000
    assert "queued" in (program / "small.svg").read_text()


def test_two_machines_are_answered_fastest_first(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", "p3.2xlarge,dgx-h100", "--workload", "small.yaml", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [entry["topology"] for entry in results] == ["dgx-h100", "p3.2xlarge"]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--batch", "3"), "--batch: is about a step of a network, and --workload is a program"),
        (("--collective", "broadcast"), "--collective: is about an exchange, and --workload is a program"),
        (("--device", "gpu7"), "--device gpu7: p3.2xlarge has no GPU or CPU of that name; did you mean 'gpu0'?"),
    ],
)
def test_options_that_a_program_does_not_read_are_refused(
    program: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, ...], words: str
) -> None:
    assert asked(*option) == 2
    assert words in capsys.readouterr().err


def test_a_network_beside_the_program_is_found_from_anywhere(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "net.yaml").write_text(
        "schema_version: 1\nname: net\ninput: {features: 8}\nlayers:\n  - {kind: linear, outputs: 4}\n"
    )
    (folder / "runs.yaml").write_text("schema_version: 1\nprogram:\n  - {run: net.yaml, batch: 4}\n")
    assert run(["--topology", "p3.2xlarge", "--workload", "elsewhere/runs.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators"] == 1
