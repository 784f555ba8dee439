"""What was changed of a machine stands at the head of every answer, with the time without it."""

from __future__ import annotations

import json

import pytest

from simulator import simulate
from simulator.cli import run

PCIE = ["--topology", "4gpu-pcie", "--workload"]
RING = [*PCIE, "bytes:160MB", "--strategy", "ring"]
SLOW = ["--slow-link", "gpu0-switch0:0.5x"]
STEP = ["--topology", "p3.16xlarge", "--workload", "mlp", "--batch", "64"]
SERVED = ["--topology", "p3.2xlarge", "--nodes", "3", "--workload", "mlp", "--batch", "64"]


def lines(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert run([*words, "--quiet"]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([*RING, *SLOW], "gpu0-switch0 at 0.5 of its bandwidth; without that it takes 15 ms instead of 30 ms"),
        ([*RING, "--slow-link", "gpu0-switch0:0x@1ms..3ms"], "gpu0-switch0 out of use from 1 ms to 3 ms; without"),
        ([*RING, "--slow-link", "gpu0-switch0:0.5x@1ms"], "gpu0-switch0 at 0.5 of its bandwidth from 1 ms on; without"),
        ([*RING, "--neighbour", "gpu0-gpu1:4GB/s"], "another job moves 4 GB/s over gpu0-gpu1; without that it takes"),
        (
            [*PCIE, "bytes:160MB", "--strategy", "ring,gpu0", *SLOW],
            "gpu0-switch0 at 0.5 of its bandwidth; without that gpu0 takes",
        ),
        (
            [*PCIE, "sweep:1MB-4MB", "--strategy", "ring", *SLOW],
            "gpu0-switch0 at 0.5 of its bandwidth; without that 4 MB takes",
        ),
        ([*STEP, "--straggler", "gpu3:1.5x"], "gpu3 takes 1.5 times as long; without that it takes"),
        ([*STEP, "--strategy", "nccl,ring", "--straggler", "gpu3:1.5x"], "gpu3 takes 1.5 times as long; without that"),
        (
            [*SERVED, "--strategy", "parameter-server-sharded", "--lose", "node1.cpu0@1us"],
            "the server on node1.cpu0 fails 1 us after the start of a step; without that it takes",
        ),
        (
            ["--topology", "p3.16xlarge", "--workload", "copy:h2d,size=1MB", "--slow-link", "gpu0-plx0:0.5x"],
            "gpu0-plx0 at 0.5 of its bandwidth; without that it takes",
        ),
    ],
)
def test_the_first_lines_say_what_was_changed(words: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(words, capsys)[1].removeprefix("# ").startswith(f"changed: {what}")


@pytest.mark.parametrize("words", [[*RING, *SLOW], [*STEP, "--straggler", "gpu3:1.5x"]])
def test_documents_and_python_say_the_same(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = json.loads("\n".join(lines([*words, "--json"], capsys)))["results"]
    options = {
        name.removeprefix("--").replace("-", "_"): word for name, word in zip(words[::2], words[1::2], strict=True)
    }
    result = simulate(**options)
    assert result.changed.to_dict() == entry["changed"]
    assert result.changed.said() in repr(result)
    assert result.changed.said() in result._repr_html_()
    del options[words[-2].removeprefix("--").replace("-", "_")]
    plain = simulate(**options)
    time = "step_time_s" if hasattr(plain, "step_time_s") else "sync_time_s"
    assert entry["changed"]["without_s"] == getattr(plain, time) < entry[time]
    assert plain.changed is None


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


def test_a_picture_says_what_was_changed(tmp_path) -> None:
    asked = ["--topology", "p3.16xlarge", "--workload", "bytes:160MB", "--slow-link", "gpu0-gpu3:0x"]
    for more in (["--strategy", "ring"], ["--strategy", "nccl,ring"]):
        assert run([*asked, *more, "--plot", str(tmp_path / "m.svg"), "--quiet"]) == 0
        assert "changed: gpu0-gpu3 out of use; without that" in (tmp_path / "m.svg").read_text(encoding="utf-8")
