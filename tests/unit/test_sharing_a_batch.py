"""Training on several GPUs in one process, on more GPUs, and on unlike devices: scenarios C1, C3, C5 and C6."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import Session
from simulator.cli import run
from simulator.collectives.communicator import Unsuitable
from simulator.errors import InputError
from simulator.questions.checks import changed
from simulator.questions.layout import Layout, parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.training import divide
from tests.machines import UNLIKE

P3 = Where("p3.16xlarge")
LENET = StepQuestion(where=P3, workload="lenet-d2l", batch=128, gpus=(0, 1), options=StepOptions(optimizer="sgd"))


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


def test_c1_two_gpus_are_no_faster_than_one_for_lenet(session: Session) -> None:
    one = session.step(replace(LENET, batch=256, gpus=(0,)))
    two = session.step(replace(LENET, layout=Layout(process="loop")))
    assert two.samples == one.samples == 256
    assert two.step_time_s > one.step_time_s
    # One process launches for both GPUs, and is the bottleneck.
    assert two.step.host_s == pytest.approx(two.step_time_s, rel=0.02)
    assert two.step.host_s > 2 * one.step.host_s


def test_c1_the_real_command_says_how_long_an_epoch_takes(capsys) -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "lenet-d2l", "--optimizer", "sgd", "--epoch", "60000"]
    words += ["--global-batch", "256", "--json", "--quiet"]
    found = []
    for more in (["--gpus", "1"], ["--gpus", "2", "--parallel", "loop"]):
        assert run([*words, *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["results"][0])
    for result in found:
        assert result["epoch_s"] == pytest.approx(235 * result["step_time_s"])  # 60,000 / 256, rounded up
    assert found[1]["epoch_s"] > found[0]["epoch_s"]


def test_c3_more_gpus_at_the_same_batch_each_or_together(session: Session) -> None:
    base = StepQuestion(where=P3, workload="resnet50", batch=64)
    weak = {n: session.step(replace(base, gpus=tuple(range(n)))) for n in (1, 2, 4, 8)}
    strong = {n: session.step(replace(base, batch=128 // n, gpus=tuple(range(n)))) for n in (1, 2, 4, 8)}
    times = [result.step_time_s for result in weak.values()]
    assert times == sorted(times)
    assert weak[8].throughput > 7 * weak[1].throughput
    assert times[-1] < 1.15 * times[0]
    times = [result.step_time_s for result in strong.values()]
    assert times == sorted(times, reverse=True)
    assert times[0] / times[-1] < weak[8].throughput / weak[1].throughput  # small batches use a device worse


@pytest.mark.parametrize("network", ["resnet50", "vgg16"])
def test_c5_data_parallel_is_dearer_than_ddp(session: Session, network: str) -> None:
    base = StepQuestion(where=P3, workload=network, batch=32, contention=False)
    ddp, old = session.step(base), session.step(changed(base, layout=Layout(process="dataparallel")))
    assert old.step_time_s > 1.05 * ddp.step_time_s
    labels = [task.label for task in old.timeline.plan.tasks]
    for label in ("split the batch", "replicate", "broadcast", "reduce", "gather gpu1 to gpu0"):
        assert label in labels
    # In the forward pass the interpreter launches for all eight; only the first GPU updates.
    updates = {t.place for t in old.timeline.plan.tasks if getattr(t.about, "issue", None) and _updates(t)}
    assert updates == {"gpu0", "cpu0"}


def _updates(task) -> bool:
    return task.about.issue.part == "update"


def test_one_process_drives_one_node(session: Session) -> None:
    for layout in (Layout(process="loop"), Layout(process="dataparallel")):
        far = StepQuestion(where=Where("p3.2xlarge", 2), workload="resnet18", batch=8, layout=layout)
        with pytest.raises(Unsuitable, match="one process drives the GPUs of one node, and these are in 2"):
            session.step(far)
        with pytest.raises(Unsuitable, match="has one batch, and no micro-batches"):
            session.step(replace(far, where=P3, micro_batches=2))


@pytest.mark.parametrize("word", ["loop", "dataparallel"])
def test_one_process_is_a_word_that_stands_alone(word: str, capsys) -> None:
    assert parse_layout(word).words == parse_layout(word).on(8).words == word
    for text in (f"{word},tp=2", f"dp=4,{word}", f"{word}=2"):
        with pytest.raises(InputError, match=f"{word} is one process for all, and stands alone"):
            parse_layout(text)
    assert run(["--topology", "p3.16xlarge", "--batch", "8", "--parallel", f"tp=2,{word}", "--quiet"]) == 2
    assert "stands alone" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["tp=2", "fsdp", "zero=1"])
def test_a_batch_is_divided_over_whole_replicas(words: str) -> None:
    with pytest.raises(InputError, match="divided: is for layout='dp', with a collective"):
        StepQuestion(where=P3, workload="gpt2", batch=2, divided=True, layout=parse_layout(words))


def test_c6_unlike_gpus_and_a_cpu_share_a_batch(tmp_path, capsys) -> None:
    path = tmp_path / "unlike.yaml"
    path.write_text(UNLIKE, encoding="utf-8")
    words = ["--topology", str(path), "--workload", "resnet18", "--global-batch", "192", "--strategy", "ring"]
    words += ["--no-contention", "--json", "--quiet"]
    found = []
    for more in (["--divide", "even"], ["--divide", "best"], ["--divide", "best,cpu0"]):
        assert run([*words, *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    even, best, helped = (document["results"][0] for document in found)
    assert best["step_time_s"] < 0.4 * even["step_time_s"]
    assert helped["step_time_s"] < best["step_time_s"]
    for document, devices in ((best, 3), (helped, 4)):
        shares = {share["device"]: share["samples"] for share in document["shares"]}
        assert len(shares) == devices
        assert sum(shares.values()) == document["samples"] == 192
        busy = [use["busy_s"] for name, use in document["streams"].items() if name.endswith("compute")]
        assert max(busy) - min(busy) < 0.1 * max(busy)
    assert run([*words, "--divide", "best", "--parallel", "fsdp"]) == 2
    assert run([*words[:-5], "--quiet", "--divide", "best,cpu0"]) == 2
    assert "a CPU takes part" in capsys.readouterr().err


@given(
    st.lists(st.floats(0.5, 50.0), min_size=1, max_size=6),
    st.integers(1, 500),
)
def test_a_batch_is_divided_as_an_exhaustive_search_would(rates: list[float], total: int) -> None:
    shares = divide([lambda count, rate=rate: count / rate for rate in rates], total)
    assert sum(shares) == total
    assert min(shares) >= 0
    last_s = max(share / rate for share, rate in zip(shares, rates, strict=True))
    # Giving each sample to the device that finishes it first is optimal for proportional times.
    greedy = [0] * len(rates)
    for _ in range(total):
        taker = min(range(len(rates)), key=lambda i: (greedy[i] + 1) / rates[i])
        greedy[taker] += 1
    best_s = max(share / rate for share, rate in zip(greedy, rates, strict=True))
    assert last_s == pytest.approx(best_s, rel=1e-9)
