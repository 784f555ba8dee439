"""The cost of a straggler: relative to devices at their usual pace, the same ones for all strategies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.questions.layout import parse_layout
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where

ASKED = StepQuestion(where=Where("p3.16xlarge"), workload="resnet18", batch=8)


@pytest.mark.parametrize("words", ["dp", "fsdp", "tp=2,dp"])
def test_a_straggler_lowers_the_efficiency_by_what_it_costs(words: str) -> None:
    workload = "gpt2" if "tp" in words else "resnet18"
    asked = replace(ASKED, workload=workload, layout=parse_layout(words), batch=2 if workload == "gpt2" else 8)
    whole = Session().step(asked)
    slow = Session().step(replace(asked, stragglers=(("gpu3", 10.0),)))
    assert slow.alone_s == pytest.approx(whole.alone_s, rel=1e-9)
    lost = slow.step_time_s / whole.step_time_s
    assert slow.scaling_efficiency == pytest.approx(whole.scaling_efficiency / lost, rel=1e-9)
    assert lost > 3


@pytest.mark.slow
def test_one_baseline_whatever_the_staleness() -> None:
    asked = replace(ASKED, where=Where("p3.16xlarge", 2), strategy="parameter-server-sharded")
    asked = replace(asked, stragglers=(("node1", 3.0),))
    results = [Session().step(replace(asked, staleness=staleness)) for staleness in (0, 2, None)]
    assert len({result.alone_s for result in results}) == 1
    # With "none", nobody waits: nodes at their own pace achieve more in total than three times a slow one.
    assert results[2].scaling_efficiency > results[0].scaling_efficiency
    for result in results:
        each = result.throughput / result.device_count / result.step.samples
        assert result.scaling_efficiency == pytest.approx(each * result.alone_s, rel=1e-9)


@pytest.mark.parametrize("pace", [1.0, 1.02, 3.0])
def test_nobody_waits_longer_for_exchanges_than_they_take(pace: float) -> None:
    for words in ("dp", "fsdp"):
        asked = replace(ASKED, layout=parse_layout(words), stragglers=(("gpu3", pace),) if pace > 1 else ())
        result = Session().step(asked)
        assert result.exposed_s <= result.exchanging_s


def test_a_name_said_twice_is_refused(capsys) -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "vgg16", "--batch", "1"]
    assert run([*words, "--straggler", "gpu3:2x,gpu3:3x"]) == 2
    assert "--straggler: gpu3 is given twice" in capsys.readouterr().err
