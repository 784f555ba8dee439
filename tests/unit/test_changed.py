"""What was changed of a machine stands at the head of every answer, with the time without it."""

from __future__ import annotations

import json
import re

import pytest

from simulator import simulate
from simulator.api import Session
from simulator.api.steps import together_timeline
from simulator.cli import run
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import SlowLink, Where
from simulator.records import replace
from simulator.results.changed import ChangeEffect, changed_entry
from simulator.topology.load import load_topology
from simulator.units import format_duration
from tests.without_advice import without_advice

PCIE = ["--topology", "4gpu-pcie", "--workload"]
RING = [*PCIE, "bytes:160MB", "--strategy", "ring"]
SLOW = ["--slow-link", "gpu0-switch0:0.5x"]
STEP = ["--topology", "p3.16xlarge", "--workload", "mlp", "--batch", "64"]
SERVED = ["--topology", "p3.2xlarge", "--nodes", "3", "--workload", "mlp", "--batch", "64"]


def lines(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert run([*words, "--quiet"]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([*RING, *SLOW], "gpu0-switch0 at 0.5 of its bandwidth: the whole takes 30 ms instead of 15 ms (+100.0 %)"),
        ([*RING, "--slow-link", "gpu0-switch0:0x@1ms..3ms"], "gpu0-switch0 down from 1 ms to 3 ms: "),
        ([*RING, "--slow-link", "gpu0-switch0:0.5x@1ms"], "gpu0-switch0 at 0.5 of its bandwidth from 1 ms on: "),
        ([*RING, "--neighbour", "gpu0-gpu1:4GB/s"], "another job moves 4 GB/s over gpu0-gpu1: "),
        (
            [*PCIE, "bytes:160MB", "--strategy", "ring,gpu0", *SLOW],
            "gpu0-switch0 at 0.5 of its bandwidth: gpu0 takes ",
        ),
        (
            [*PCIE, "sweep:1MB-4MB", "--strategy", "ring", *SLOW],
            "gpu0-switch0 at 0.5 of its bandwidth: 4 MB takes ",
        ),
        ([*STEP, "--straggler", "gpu3:1.5x"], "gpu3 takes 1.5 times as long: "),
        ([*STEP, "--strategy", "nccl,ring", "--straggler", "gpu3:1.5x"], "gpu3 takes 1.5 times as long: "),
        (
            [*SERVED, "--strategy", "parameter-server-sharded", "--lose", "node1.cpu0@1us"],
            "the server on node1.cpu0 fails 1 us after the start of a step; the next step ends",
        ),
        (
            ["--topology", "p3.16xlarge", "--workload", "copy:h2d,size=1MB", "--slow-link", "gpu0-plx0:0.5x"],
            "gpu0-plx0 at 0.5 of its bandwidth: ",
        ),
    ],
)
def test_the_first_lines_say_what_was_changed(words: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(words, capsys)[1].removeprefix("# ").startswith(f"changed: {what}")


@pytest.mark.slow
@pytest.mark.parametrize("words", [[*RING, *SLOW], [*STEP, "--straggler", "gpu3:1.5x"]])
def test_documents_and_python_say_the_same(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = json.loads("\n".join(lines([*words, "--json"], capsys)))["results"]
    options = {
        name.removeprefix("--").replace("-", "_"): word for name, word in zip(words[::2], words[1::2], strict=True)
    }
    result = simulate(**options)
    assert changed_entry(result.changed) == {"changed": entry["changed"]}
    assert result.changed.said() in repr(result)
    assert result.changed.said() in result._repr_html_()
    del options[words[-2].removeprefix("--").replace("-", "_")]
    plain = simulate(**options)
    time = "step_time_s" if hasattr(plain, "step_time_s") else "sync_time_s"
    assert entry["changed"]["without_s"] == getattr(plain, time) < entry[time]
    assert plain.changed is None


@pytest.mark.slow
def test_a_loss_has_parts_that_add_up_and_a_cause(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*STEP, "--straggler", "gpu3:3x", "--quiet"]
    assert run([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    parts, with_s = found["changed"]["parts"], found["results"][0]["step_time_s"]
    assert sum(part["without_s"] for part in parts) == pytest.approx(found["changed"]["without_s"])
    assert sum(part["with_s"] for part in parts) == pytest.approx(with_s)
    most = max(parts, key=lambda part: part["with_s"] - part["without_s"])
    assert most["part"] == "waiting for the slowest rank"
    assert run([*asked, "--report", str(tmp_path / "r.html")]) == 0
    text = capsys.readouterr().out
    assert "all of the loss: waiting for the slowest rank" in " ".join(text.split())
    assert re.search(r"^waiting for the slowest rank +\S+ \S+ +\S+ \S+ +\S+ \S+\n(.*\n)*?all ", text, re.MULTILINE)
    assert "<th class=''>lost to</th>" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_an_exchange_says_what_limits_it_instead(capsys: pytest.CaptureFixture[str]) -> None:
    text = lines(["--topology", "p3.16xlarge", *RING[2:], "--slow-link", "gpu0-gpu3:0x"], capsys)
    assert text[1].endswith("; rings: 2 instead of 3")
    assert ["rings", "3", "2"] in [line.split() for line in text]


def test_nothing_changed_nothing_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("changed" in line for line in lines(RING, capsys))


@pytest.mark.parametrize(
    "words",
    [["--workload", "copy:h2d,size=1MB"], ["--workload", "mlp", "--batch", "64", "--gpus", "1"]],
)
def test_what_has_no_timeline_of_its_own_refuses_a_link_that_is_slow_for_a_while(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--topology", "p3.16xlarge", *words, "--slow-link", "gpu0-plx0:0.5x@1us..2us", "--quiet"]) == 2
    assert "with a time it applies to exchanges and to steps of replicas or shards, not to" in capsys.readouterr().err


@pytest.mark.slow
def test_a_picture_says_what_was_changed(tmp_path) -> None:
    asked = ["--topology", "p3.16xlarge", "--workload", "bytes:160MB", "--slow-link", "gpu0-gpu3:0x"]
    for more in (["--strategy", "ring"], ["--strategy", "nccl,ring"]):
        assert run([*asked, *more, "--plot", str(tmp_path / "m.svg"), "--quiet"]) == 0
        assert "changed: gpu0-gpu3 down: " in (tmp_path / "m.svg").read_text(encoding="utf-8")
    copy = ["--topology", "p3.16xlarge", "--workload", "copy:h2d,sweep:1MB-2MB", "--slow-link", "gpu0-plx0:0.5x"]
    assert run([*copy, "--plot", str(tmp_path / "m.svg"), "--quiet"]) == 0
    assert "changed: gpu0-plx0 at 0.5 of its bandwidth: 2 MB takes " in (tmp_path / "m.svg").read_text()


def test_the_picture_of_several_runs_says_what_each_changes(tmp_path) -> None:
    asked = "simulate --topology 4gpu-pcie --workload bytes:1MB --strategy ring"
    (tmp_path / "s.yaml").write_text(
        f"schema_version: 1\ntitle: t\nchapter: c\nabout: a\nruns:\n  whole: {asked}\n"
        f"  slow: {asked} --slow-link gpu0-switch0:0.5x\nanswers:\n"
        '- {name: ratio, value: "slow.results[0].sync_time_s / whole.results[0].sync_time_s", unit: "1"}\n'
    )
    assert run(["scenario", str(tmp_path / "s.yaml"), "--plot", str(tmp_path / "s.svg"), "--quiet"]) == 0
    assert "changed in slow: gpu0-switch0 at 0.5 of its bandwidth<" in (tmp_path / "s.svg").read_text()


@pytest.mark.filterwarnings("ignore:one TCP flow")  # AWS limits each: told, and beside the point
def test_a_loss_delays_the_next_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "advised", without_advice)  # advice takes most of the time
    words = {"topology": "p3.16xlarge", "nodes": 2, "workload": "alexnet", "batch": 8}
    lost = simulate(**words, strategy="parameter-server-sharded", lose="node1.cpu0@10ms")
    assert lost.servers.lost_s > 1e-3
    assert lost.servers.then_s > lost.step_time_s  # one server has the work of two
    assert lost.to_dict()["results"][0]["servers"]["then_s"] == lost.servers.then_s
    times = (lost.servers.lost_s, lost.servers.then_s, lost.step_time_s)
    delay, then, whole = (format_duration(time_s) for time_s in times)
    assert lost.changed.said().endswith(
        f"the next step ends {delay} later, and those after it take {then} instead of {whole}"
    )
    assert (
        ChangeEffect(("",), 1.0, 1.0, -2e-3, 0.9)
        .said()
        .startswith("changed: ; the next step ends 2 ms earlier, and those")
    )
    assert ChangeEffect(("",), 2.0, 1.0, 2e-3, 3.0).said().endswith("take 3 s; it takes 2 s instead of 1 s (+100.0 %)")


@pytest.mark.filterwarnings("ignore:one TCP flow")  # AWS limits each: told, and beside the point
def test_what_later_steps_gain_is_not_in_the_delay_by_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers in place of three have fewer bytes to send, so later steps make good what the loss cost."""
    monkeypatch.setattr(Session, "advised", without_advice)
    words = {"topology": "p3.2xlarge", "nodes": 3, "workload": "mlp", "batch": 256}
    lost = simulate(**words, strategy="parameter-server-sharded", lose="node1.cpu0@300us")
    assert lost.servers.lost_s > 300e-6  # what had been sent until then, at least
    assert lost.servers.then_s < lost.step_time_s


def test_only_the_answer_is_compared_with_that_without_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def counted(*given: object, **more: object) -> object:
        runs.append(given)
        return together_timeline(*given, **more)

    monkeypatch.setattr("simulator.api.steps.together_timeline", counted)
    words = {"topology": "p3.16xlarge", "workload": "mlp", "batch": 64}
    assert simulate(**words).alternatives
    plain = len(runs)
    simulate(**words, straggler="gpu3:1.5x")
    assert len(runs) == 2 * plain + 1


def test_a_machine_that_is_given_has_an_answer_without_changes_too() -> None:
    session, where = Session(), Where("mine", slow_links=(SlowLink("gpu0-switch0", 0.5),))
    session.know(Where("mine"), load_topology("4gpu-pcie"))
    asked = CollectiveQuestion(where=where, size_bytes=160e6, strategy="ring")
    changed = session.changed(asked, session.time_s(asked))
    assert changed is not None
    assert (changed.time_s, changed.without_s) == pytest.approx((0.030, 0.015), rel=1e-9)


@pytest.mark.parametrize(
    ("asked", "more", "known"),
    [
        (["--topology", "dgx-h100", "--strategy", "nccl", "--workload", "bytes:1GB"], more, "machine measured")
        for more in (
            ["--slow-link", "gpu0-nvswitch0:0x"],
            ["--slow-link", "gpu0-nvswitch0:0.5x"],
            ["--neighbour", "gpu0-gpu1:4GB/s"],
            ["--nodes", "2", "--fabric", "1600Gbit/s"],
        )
    ]
    + [
        ([*STEP, "--strategy", "nccl"], more, "device measured")
        for more in (["--straggler", "gpu3:1.5x"], ["--slow-link", "gpu0-gpu1:0.5x"])
    ],
)
def test_a_changed_machine_is_none_that_was_measured(
    asked: list[str], more: list[str], known: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(words: list[str]) -> dict[str, object]:
        assert run([*words, "--json", "--quiet"]) == 0
        found = json.loads(capsys.readouterr().out)
        answer: dict[str, object] = found.get("results", [found])[0]
        return answer

    assert answer(asked)["evidence"] == known
    assert answer([*asked, *more])["evidence"] == "machine not measured"
    (trust,) = [line for line in lines([*asked, *more], capsys) if line.startswith("trust: ")]
    assert "machine not measured" in trust


def test_an_exchange_that_lost_direct_links_errs_as_those_over_pcie() -> None:
    question = CollectiveQuestion(where=Where("dgx-h100"), size_bytes=1e9, strategy="nccl")
    lost = Where("dgx-h100", slow_links=(SlowLink("gpu0-nvswitch0", 0.0),))
    assert "nvlink" in Session().composed(question).chain[0]
    assert "pcie" in Session().composed(replace(question, where=lost)).chain[0]
