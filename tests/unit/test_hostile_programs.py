"""Programs and scenarios that would take minutes, or whose figures have no end: one line, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.cli import run
from simulator.programs import writer
from tests.calls import at_most_calls

_MOST = 10_000  # in place of MAX_STEPS: the calls grow with it
_TOO_LONG = "more than 10,000 statements and activities that do not repeat evenly; repeat it less often"


def _program(folder: Path, body: str, software: str = "{}") -> list[str]:
    path = folder / "p.yaml"
    path.write_text(f"schema_version: 1\nsoftware: {software}\nprogram:\n{body}", encoding="utf-8")
    return ["--topology", "p3.2xlarge", "--workload", str(path)]


def _nest(depth: int) -> str:
    return "tensor: x, size: 1 B" if not depth else f"repeat: 12, do: [{{{_nest(depth - 1)}}}]"


_UNEVEN = """\
  - {tensor: x, size: 4 MB, device: gpu0}
  - repeat: 1000000000
    do:
      - {run: {issue: 10.37 us, compute: 20.111 us, return: 5 us}, reads: x, gives: y}
      - {run: {issue: 3.77 us, compute: 7.313 us}, stream: s}
      - {run: {issue: 2.17 us, compute: 17.313 us}, stream: t, reads: y}
      - {copy: y, to: cpu, blocking: false, pinned: true, stream: u}
      - python: 1.717 us
"""
_STREAMS = "".join(f"  - {{run: {{compute: 5 us}}, stream: s{i}}}\n" for i in range(300))


@pytest.mark.parametrize(
    ("body", "told", "calls"),
    [
        (f"  - {{{_nest(17)}}}\n", _TOO_LONG, 300_000),  # writes nothing, 12^17 times
        (_STREAMS, "p.yaml:260:36: more than 256 streams are not simulated", 2_000_000),
        (_UNEVEN, f"p.yaml:5:5: {_TOO_LONG}", 2_000_000),
    ],
    ids=["loops within loops", "streams", "a loop without a period"],
)
def test_what_takes_too_long_is_told(body: str, told: str, calls: int, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(writer, "MAX_STEPS", _MOST)
    software = "{depth: 3}" if body is _UNEVEN else "{}"
    assert run([*_program(tmp_path, "  - python: 1 us\n", software), "-q"]) == 0  # loads what the first question needs
    capsys.readouterr()
    with at_most_calls(calls):
        assert run([*_program(tmp_path, body, software), "-q"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith(f"{told}\n")


@pytest.mark.slow
def test_two_periodic_streams_are_answered(tmp_path: Path, capsys) -> None:
    two = "      - {run: {issue: 10 us, compute: 20 us}}\n      - {run: {issue: 3 us, compute: 7 us}, stream: s}\n"
    assert run([*_program(tmp_path, f"  - repeat: 30000\n    do:\n{two}"), "-q"]) == 0
    assert "60,000 operators" in capsys.readouterr().out


def _scenario(folder: Path, runs: str, answer: str) -> list[str]:
    path = folder / "s.yaml"
    head = "schema_version: 1\ntitle: t\nchapter: c\nabout: x\nruns:\n"
    path.write_text(f"{head}{runs}answers: [{{name: n, {answer}}}]\n", encoding="utf-8")
    return ["scenario", str(path)]


_COPY = "simulate --topology p3.2xlarge --workload copy:h2d,1MB"


def test_a_scenario_has_fifty_runs(tmp_path: Path, capsys) -> None:
    runs = "".join(f"  r{i}: {_COPY}\n" for i in range(51))
    assert run(_scenario(tmp_path, runs, "value: 1, unit: '1'")) == 2
    assert capsys.readouterr().err.endswith("s.yaml:6:3: runs: a scenario has at most 50 runs; got 51\n")


@pytest.mark.parametrize(
    "figure", ["ideal: 1e999", "ideal: 1e999 s", "ideal: 1 to 1e999 s", "measured: 1e999 %, source: x"]
)
def test_a_figure_without_an_end_is_told(figure: str, tmp_path: Path, capsys) -> None:
    assert run(_scenario(tmp_path, f"  a: {_COPY}\n", f"value: 'a.results[0].time_s', unit: s, {figure}")) == 2
    assert "1e999 is no finite number" in capsys.readouterr().err
