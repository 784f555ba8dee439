"""A batch that devices share unevenly need be no multiple of their number; answers name all their parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import simulate
from simulator.api import Session
from simulator.errors import InputError
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.training import TrainingResult
from tests.machines import UNLIKE
from tests.without_advice import without_advice


@pytest.fixture(autouse=True)
def _no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that would make a step faster are not looked for: each would divide the batch anew."""
    monkeypatch.setattr(Session, "advised", without_advice)


@pytest.fixture(name="unlike")
def _unlike(tmp_path: Path) -> str:
    path = tmp_path / "unlike.yaml"
    path.write_text(UNLIKE, encoding="utf-8")
    return str(path)


def step(where: str, **asked: object) -> TrainingResult:
    found = simulate(where, workload="resnet18", strategy="ring", divide="best", **asked)  # type: ignore[arg-type]
    assert isinstance(found, TrainingResult)
    return found


@pytest.mark.parametrize("samples", [40, 64, 65, 191])
def test_any_batch_of_all_is_shared_unevenly(unlike: str, samples: int) -> None:
    found = step(unlike, global_batch=samples)
    assert found.samples == sum(count for _, _, count in found.shares) == samples
    if samples > 40:
        assert step(unlike, global_batch=samples - 1).step_time_s <= found.step_time_s * (1 + 1e-9)


def test_micro_batches_each_have_the_same_share(unlike: str) -> None:
    found = step(unlike, global_batch=130, micro_batches=2)
    assert sum(count for _, _, count in found.shares) == 65
    assert found.samples == 130
    with pytest.raises(InputError, match="global_batch=131: 2 micro-batches do not share it evenly; 130 and 132 would"):
        step(unlike, global_batch=131, micro_batches=2)


def test_fewer_samples_than_devices_are_refused(unlike: str) -> None:
    with pytest.raises(InputError, match="global_batch=2: 3 devices share it; 3 would do"):
        step(unlike, global_batch=2)


def test_a_remainder_is_of_what_is_shared_unevenly() -> None:
    with pytest.raises(InputError, match="is a part of what is divided best"):
        StepQuestion(where=Where("p3.8xlarge"), workload="resnet18", batch=8, remainder=1)


def test_an_answer_names_all_parts(unlike: str) -> None:
    found = step(unlike, global_batch=64)
    parts = list(found.parts)
    assert len(parts) > 1
    for text in (repr(found), found._repr_html_()):
        assert all(part in text for part in parts)
    assert [each["part"] for each in found.to_dict()["results"][0]["parts"]] == parts


def test_a_batch_and_a_remainder_are_the_batch_of_all(unlike: str) -> None:
    asked = StepQuestion(where=Where(unlike), workload="resnet18", batch=21, remainder=1, divided=True, strategy="ring")
    assert Session().time_s(asked) == step(unlike, global_batch=64).step_time_s
