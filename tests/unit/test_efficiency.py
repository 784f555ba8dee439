"""The efficiency of a step over several devices depends on what they achieve, not on how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.questions.checks import changed
from simulator.questions.layout import parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion, accumulating
from simulator.questions.where import Where
from simulator.results.training import TrainingResult
from tests.machines import UNLIKE

P3 = Where("p3.16xlarge")
SESSION = Session()
LAYOUTS = ("dp", "zero=1,dp", "zero=2,dp", "fsdp", "tp=2,dp", "tp=2,sp,zero=1,dp", "pp=2,dp", "cp=2,dp")


@pytest.fixture
def unlike(tmp_path: Path) -> Where:
    path = tmp_path / "unlike.yaml"
    path.write_text(UNLIKE)
    return Where(str(path))


def ranks_by_rate(results: Sequence[TrainingResult]) -> bool:
    """Return whether of each two *results* the one with more samples per second is the more efficient one."""
    return all(
        (one.throughput - other.throughput) * (one.scaling_efficiency - other.scaling_efficiency) >= 0
        for one, other in combinations(results, 2)
    )


@pytest.mark.parametrize("micro_batches", [1, 6])
@pytest.mark.parametrize("said", [None, "product"])
def test_one_baseline_whatever_the_layout(micro_batches: int, said: str | None) -> None:
    sizes = ("attention", "fused"), ("layers", 2)
    asked = StepQuestion(where=P3, workload="gpt2", sizes=sizes, batch=2, options=StepOptions(optimizer="adam"))
    asked = replace(asked, micro_batches=micro_batches)
    ways = [accumulating(changed(asked, layout=parse_layout(words)), said) for words in LAYOUTS]  # type: ignore[arg-type]
    results = [SESSION.step(way) for way in ways]
    assert len({result.alone_rate for result in results}) == 1
    assert ranks_by_rate(results)


@pytest.mark.parametrize("framework", ["pytorch", "megatron"])
@pytest.mark.parametrize("options", [{}, {"cuda_graph": True}, {"launch_blocking": True}])
@pytest.mark.parametrize("micro_batches", [1, 3, 40])
def test_one_alone_takes_as_long_as_a_step_on_one_device(framework: str, options: dict, micro_batches: int) -> None:
    made = StepOptions(framework=framework, optimizer="adam", **options)  # type: ignore[arg-type]
    asked = StepQuestion(where=P3, workload="gpt2", sizes=(("layers", 2),), batch=1, options=made)
    asked = accumulating(replace(asked, micro_batches=micro_batches), None)
    alone = SESSION.step(replace(asked, gpus=(3,)))
    assert SESSION.step(asked).alone_s == pytest.approx(alone.step_time_s, rel=1e-12)
    assert alone.alone_s == pytest.approx(alone.step_time_s, rel=1e-15)  # the samples over their rate
    assert alone.scaling_efficiency == 1.0


@pytest.mark.parametrize("batch", [2, 64])
def test_unlike_devices_are_compared_with_what_each_does_alone(unlike: Where, batch: int) -> None:
    asked = StepQuestion(where=unlike, workload="resnet18", batch=batch, strategy="ring")
    even, best = SESSION.step(asked), SESSION.step(replace(asked, divided=True))
    alone = [SESSION.step(replace(asked, strategy="nccl", gpus=(gpu,))) for gpu in range(3)]
    assert even.alone_rate == pytest.approx(sum(each.throughput for each in alone), rel=1e-12)
    assert even.alone_rate == best.alone_rate
    assert even.scaling_efficiency < 0.9
    assert ranks_by_rate([even, best])
    # A device that has more samples than an even share does more in a second than with that share.
    assert best.scaling_efficiency > even.scaling_efficiency


@pytest.mark.parametrize("staleness", [0, None])
def test_servers_are_compared_with_what_each_device_does_alone(unlike: Where, staleness: int | None) -> None:
    asked = StepQuestion(where=unlike, workload="resnet18", batch=16, strategy="ring")
    served = replace(asked, strategy="parameter-server", staleness=staleness, bucket_bytes=0.0)
    found = SESSION.step(served)
    assert found.alone_rate == SESSION.step(asked).alone_rate
    assert found.scaling_efficiency == pytest.approx(found.throughput / found.alone_rate)
    assert found.scaling_efficiency <= 1.0 + 1e-9
