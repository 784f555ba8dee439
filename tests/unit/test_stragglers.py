"""The cost of a straggler: relative to devices at their usual pace, the same ones for all strategies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.layout import parse_layout
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where

pytestmark = pytest.mark.usefixtures("answered_once")

ASKED = StepQuestion(where=Where("p3.16xlarge"), workload="resnet18", batch=8)


@pytest.mark.slow
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
    asked = replace(ASKED, where=Where("p3.16xlarge", 2), workload="mlp", batch=256)
    asked = replace(asked, strategy="parameter-server-sharded", stragglers=(("node1", 3.0),))
    results = [Session().step(replace(asked, staleness=staleness)) for staleness in (0, 2, None)]
    assert len({result.alone_s for result in results}) == 1
    # With "none", nobody waits: nodes at their own pace achieve more in total than three times a slow one.
    assert results[2].scaling_efficiency > results[0].scaling_efficiency
    for result in results:
        each = result.throughput / result.device_count / result.step.samples
        assert result.scaling_efficiency == pytest.approx(each * result.alone_s, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("pace", [1.0, 1.02, 3.0])
def test_nobody_waits_longer_for_exchanges_than_they_take(pace: float) -> None:
    for words in ("dp", "fsdp"):
        asked = replace(ASKED, layout=parse_layout(words), stragglers=(("gpu3", pace),) if pace > 1 else ())
        result = Session().step(asked)
        assert result.exposed_s <= result.exchanging_s


@pytest.mark.parametrize(
    ("more", "said", "twice"),
    [
        ([], "gpu3:2x,gpu3:3x", "--straggler gpu3: gpu3 is given twice"),
        ([], "gpu[0-3]:2x,gpu3:2x", "--straggler gpu3: gpu3 is given twice"),
        (["--nodes", "2"], "node1:2x,node1.gpu3:2x", "--straggler node1.gpu3: node1.gpu3 is given twice"),
        (["--nodes", "2"], "node1.gpu*:2x,gpu*:2x", "--straggler gpu*: node1.gpu0 is given twice"),
        (["--parallel", "pp=2"], "gpu[0-3]:2x,gpu3:2x", "--straggler gpu3: gpu3 is given twice"),
        (["--divide", "best"], "gpu[0-3]:2x,gpu3:2x", "--straggler gpu3: gpu3 is given twice"),
        (["--strategy", "parameter-server"], "gpu[0-3]:2x,gpu3:2x", "--straggler gpu3: gpu3 is given twice"),
    ],
)
def test_a_device_has_one_pace(more: list[str], said: str, twice: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "mlp", "--batch", "8", *more]
    assert run([*words, "--straggler", said]) == 2
    assert twice in capsys.readouterr().err


def test_a_factor_out_of_range_is_refused_in_python_too() -> None:
    for factor in (0.5, -1.0, 500.0, float("nan")):
        with pytest.raises(InputError, match=f"stragglers='gpu3': must be between 1x and 100x, .*; got {factor:g}x"):
            replace(ASKED, stragglers=(("gpu3", factor),))
    for after_s in (0.0, -1.0, float("inf")):
        with pytest.raises(InputError, match=f"lost='node4.cpu0': must fail later than 0 s in a step; got {after_s:g}"):
            replace(ASKED, lost=("node4.cpu0", after_s))
