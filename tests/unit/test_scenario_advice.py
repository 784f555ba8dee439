"""Steps of scenarios come with advice where an answer reads it, and otherwise without: it takes most of the time."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.api.advice import advised
from simulator.cli.output import captured
from simulator.cli.scenario_command import answer_scenario
from simulator.scenarios.file import read_scenario

_STEP = "--topology p3.16xlarge --gpus 1 --workload mlp --batch 64"
_HEAD = (
    f"schema_version: 1\ntitle: T\nchapter: '1'\nabout: A.\nruns:\n  one: simulate {_STEP}\n  same: simulate {_STEP}\n"
)
_HEAD += f"  full: simulate {_STEP.replace('64', '10000000')}\n"
_TIME = "value: 'one.step_time_s', unit: s"


@pytest.mark.parametrize(
    ("answer", "runs"),
    [
        (f"name: n, {_TIME}", 0),
        (f"name: n, {_TIME}, ideal: '2 * full.step_time_s', falls_short: much", 0),
        ("name: n, value: 'one.alternatives[0].step_time_s', unit: s", 1),
        ("name: n, value: 'same.alternatives[0].step_time_s', unit: s", 1),  # the same words: it is run once
        (f"name: n, {_TIME}, ideal: 'one.alternatives[0].step_time_s', falls_short: much", 1),
        ("name: n, value: 'full.remedies[0]', unit: words, ideal: '--gpus 8'", 1),
        ("name: n, value: 'full.error', unit: words, ideal: none", 1),
    ],
)
def test_advice_is_asked_for_where_an_answer_reads_it(
    answer: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted(*given: object) -> object:
        asked.append(given)
        return advised(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("simulator.api.advice.advised", counted)
    path = tmp_path / "mine.yaml"
    path.write_text(f"{_HEAD}answers:\n  - {{{answer}}}\n", encoding="utf-8")
    [found], _ = answer_scenario(read_scenario(path))
    assert found.value is not None
    assert len(asked) == runs


def test_a_brief_answer_is_the_same_without_advice() -> None:
    words = [*_STEP.split(), "--quiet"]
    whole, brief = (captured(words, brief=brief).document for brief in (False, True))
    assert whole is not None
    assert brief is not None
    assert whole["alternatives"]
    assert {**whole, "alternatives": []} == brief
