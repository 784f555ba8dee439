"""Several processes on one GPU: kernels take turns, hosts run concurrently."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where

LARGE = StepQuestion(where=Where("p3.2xlarge"), workload="resnet50", batch=16)
SMALL = replace(LARGE, workload="mlp", batch=1, options=StepOptions(mode="inference"))


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


def test_programs_that_fill_the_device_take_turns(session: Session) -> None:
    one, four = session.step(LARGE), session.step(replace(LARGE, programs=4))
    assert four.step_time_s == pytest.approx(4 * one.step.busy_s, rel=0.01)
    assert four.throughput == pytest.approx(one.throughput, rel=0.01)
    assert four.samples == 4 * one.samples
    assert four.step.busy_s == pytest.approx(4 * one.step.busy_s)
    assert four.step.memory.total_bytes == pytest.approx(4 * one.step.memory.total_bytes)
    assert four.step.memory.available_bytes == one.step.memory.available_bytes


def test_programs_that_wait_for_their_hosts_fill_the_gaps_of_each_other(session: Session) -> None:
    one = session.step(SMALL)
    for count in (2, 4):
        found = session.step(replace(SMALL, programs=count))
        least_s = max(one.step_time_s, count * one.step.busy_s)
        assert least_s <= found.step_time_s <= one.step_time_s + count * one.step.busy_s
        assert found.throughput > 0.85 * count * one.throughput
    many = session.step(replace(SMALL, programs=32))
    assert many.step_time_s == pytest.approx(32 * one.step.busy_s, rel=0.1)
    assert many.step.bound != "host"


def test_the_path_of_programs_adds_up(session: Session) -> None:
    found = session.step(replace(SMALL, programs=4))
    assert sum(found.step.limits_s.values()) == pytest.approx(found.step_time_s)


@pytest.mark.slow
def test_too_many_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "p3.2xlarge", "--workload", "resnet50", "--batch", "64", "--programs", "4"]
    assert run([*words, "--json"]) == 1
    captured = capsys.readouterr()
    assert "out of memory" in captured.err
    batches = [int(words.split()[1]) for words in re.findall(r"--batch \d+", captured.err)]
    assert max(batches) < 64  # the suggested batch must fit four times
    document = json.loads(captured.out)
    assert document["results"][0]["programs"] == 4
    assert document["results"][0]["samples"] == 256
    assert document["trust"] is None


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["p3.16xlarge", "--programs", "2"], "--programs: applies to one GPU, but 8 take part"),
        (["p3.2xlarge", "--programs", "0"], "--programs 0: from 1 to 64"),
        (["p3.2xlarge", "--programs", "2", "--input", "cifar10"], "--input: applies to one program"),
    ],
)
def test_what_does_not_go_with_it_is_refused(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", words[0], "--workload", "resnet18", "--batch", "2", *words[1:]]) == 2
    assert error in capsys.readouterr().err


def test_a_cpu_is_refused(session: Session) -> None:
    with pytest.raises(InputError, match="programs=2: cpu0 is a CPU"):
        session.step(replace(SMALL, device="cpu", programs=2))
