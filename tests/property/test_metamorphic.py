"""The first questions of :mod:`tests.property.run`: cheap ones, the same in every run."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.property.anomalies import none_is_longer
from tests.property.asking import Asker
from tests.property.questions import Question, drawn
from tests.property.rules import RULES
from tests.property.ruling import SkipError
from tests.property.run import ask

QUESTIONS = 160
PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_no_rule_is_violated(part: int) -> None:
    found = list(ask(iter(range(part, QUESTIONS, PARTS)), cheap=True))
    assert [f"{each.number} {each.rule}: {each.said}" for each in found if each.is_violation] == []
    assert len({each.rule for each in found}) > len(RULES) // 2
    assert Counter(each.rule for each in found)["none"] == 0


def test_the_same_number_asks_the_same() -> None:
    assert [drawn(n)[0] for n in range(50)] == [drawn(n)[0] for n in range(50)]


def test_a_step_with_longer_work_or_slower_links_is_no_anomaly(tmp_path: Path) -> None:
    """Sharing explains a later end only where nothing takes longer alone and all is done in the same order."""
    asker = Asker(tmp_path)
    asked = Question("p3.16xlarge", (("workload", "alexnet"), ("strategy", "parameter-server"), ("batch", "8")))
    changes = ({}, {"slow_link": "gpu0-plx0:0.1x"}, {"batch": "800"})
    small, slow, large = (asker.answer(asked.having(**each)) for each in changes)
    assert none_is_longer(small.timeline, small.timeline)
    assert none_is_longer(large.timeline, small.timeline)
    assert not none_is_longer(small.timeline, large.timeline)
    assert not none_is_longer(small.timeline, slow.timeline)


def test_a_broken_rule_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An asker that takes every second answer for a slower one violates the rules of speed."""
    asker, asked = Asker(tmp_path), Question("p3.16xlarge", (("workload", "bytes:1MB"), ("strategy", "ring")))
    usual, n_bytes = Asker.answer, []

    def answer(self: Asker, question: Question, *, fold: bool = True) -> object:
        n_bytes.append(question.get("workload"))
        return usual(self, question.having(workload=n_bytes[0] if len(n_bytes) > 1 else "bytes:1kB"), fold=fold)

    rule = RULES["more bytes"][0]
    assert rule(asker, asked, random.Random(0)) == ""
    monkeypatch.setattr(Asker, "answer", answer)
    with pytest.raises(SkipError):
        RULES["ZeRO"][0](asker, asked, random.Random(0))
    assert "slower, not faster" in rule(asker, asked, random.Random(0))
