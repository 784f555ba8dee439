"""Slow and failed links, neighbours, lost servers, checkpoints: scenario B8, with closed forms."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from random import Random

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.step import CheckpointQuestion, StepQuestion
from simulator.questions.where import Neighbour, SlowLink, Where
from simulator.results.training_run import Checkpoints, best_interval_s

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("answered_once")]

PCIE = Where("4gpu-pcie")  # all links 16 GB/s, no latency
S = 160e6
VGG = StepQuestion(where=Where("p3.16xlarge", 4), workload="vgg16", batch=32, strategy="parameter-server-sharded")


def time_s(where: Where, strategy: str = "gpu0") -> float:
    return Session().time_s(CollectiveQuestion(where=where, size_bytes=S, strategy=strategy))


def test_a_slow_link_gives_its_share_in_both_directions() -> None:
    assert time_s(PCIE) == pytest.approx(0.060, rel=1e-9)
    half = replace(PCIE, slow_links=(SlowLink("gpu0-switch0", 0.5),))
    assert time_s(half) == pytest.approx(3 * S / 8e9 * 2, rel=1e-9)
    other = replace(PCIE, slow_links=(SlowLink("switch0-gpu3", 0.5),))
    assert time_s(other) == pytest.approx(0.060, rel=1e-9)  # its third of gpu0's link is slower anyway


def test_a_failed_link_is_gone_around_or_refused() -> None:
    whole, broken = Where("p3.16xlarge"), Where("p3.16xlarge", slow_links=(SlowLink("gpu0-gpu3", 0.0),))
    assert time_s(broken, "ring") > 1.2 * time_s(whole, "ring")
    with pytest.raises(InputError, match=r"no links lead from gpu1 to gpu0 without gpu0-switch0 \(slow_links\)"):
        time_s(replace(PCIE, slow_links=(SlowLink("gpu0-switch0", 0.0),)))


def test_a_link_that_slows_in_mid_run_costs_what_is_left() -> None:
    """Three GPUs send 480 MB to gpu0 in 30 ms and receive in 30 ms; from 10 ms to 50 ms the link runs at half speed."""
    slow = replace(PCIE, slow_links=(SlowLink("gpu0-switch0", 0.5, 0.010, 0.050),))
    # 160 MB by 10 ms, another 320 MB by 50 ms, and 30 ms for the way back as before.
    assert time_s(slow) == pytest.approx(0.080, rel=1e-9)
    for_good = replace(PCIE, slow_links=(SlowLink("gpu0-switch0", 0.5, 0.010),))
    assert time_s(for_good) == pytest.approx(0.010 + 0.040 + 0.060, rel=1e-9)
    failed = replace(PCIE, slow_links=(SlowLink("gpu0-switch0", 0.0, 0.010, 0.030),))
    assert time_s(failed) == pytest.approx(0.080, rel=1e-9)
    after = replace(PCIE, slow_links=(SlowLink("gpu0-switch0", 0.0, 0.070, 0.080),))
    assert time_s(after) == pytest.approx(0.060, rel=1e-9)


def test_a_link_that_is_slow_twice_in_a_run_has_each_factor_in_its_time() -> None:
    """Three GPUs send 480 MB to gpu0 and receive them: 60 ms at full speed, and what each window takes away."""
    first, then = SlowLink("gpu0-switch0", 0.5, 0.010, 0.020), SlowLink("gpu0-switch0", 0.25, 0.020, 0.030)
    for links in ((first, then), (then, first)):  # one begins as the other ends
        assert time_s(replace(PCIE, slow_links=links)) == pytest.approx(0.060 + 0.005 + 0.0075, rel=1e-9)
    apart = replace(PCIE, slow_links=(first, replace(then, from_s=0.025)))
    assert time_s(apart) == pytest.approx(0.060 + 0.005 + 0.00375, rel=1e-9)
    for factor in (0.25, 0.75):  # in place of the factor that holds for good
        both = replace(PCIE, slow_links=(SlowLink("gpu0-switch0", 0.5), replace(first, factor=factor)))
        assert time_s(both) == pytest.approx(0.120 - (factor - 0.5) / 0.5 * 0.010, rel=1e-9)


def test_a_neighbour_keeps_its_rate_on_a_link_that_slows() -> None:
    """Into gpu0 fit 12 GB/s of the 16, and 4 from 10 to 20 ms; the way back is free."""
    busy = replace(PCIE, neighbours=(Neighbour("gpu1-gpu0", 4e9),))
    slow = replace(busy, slow_links=(SlowLink("gpu0-switch0", 0.5, 0.010, 0.020),))
    assert time_s(slow) == pytest.approx(0.020 + (3 * S - 160e6) / 12e9 + 0.030, rel=1e-9)
    down = replace(busy, slow_links=(SlowLink("gpu0-switch0", 0.0, 0.010, 0.020),))
    assert time_s(down) == pytest.approx(0.010 + 3 * S / 12e9 + 0.030, rel=1e-9)
    with pytest.raises(InputError, match=r"leaves 3.2 GB/s of switch0->gpu0, of which other jobs .* take 4 GB/s"):
        time_s(replace(busy, slow_links=(SlowLink("gpu0-switch0", 0.2, 0.010, 0.020),)))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: SlowLink("gpu0-gpu1", 2.0), "slow_links='gpu0-gpu1': must be between 0x (failed) and 1x; got 2x"),
        (lambda: SlowLink("gpu0-gpu1", -0.5), "got -0.5x"),
        (lambda: SlowLink("gpu0-gpu1", float("nan")), "got nanx"),
        (
            lambda: SlowLink("gpu0-gpu1", 0.5, 2.0, 1.0),
            "must begin at 0 s or later, and end after that; got 2 s to 1 s",
        ),
        (lambda: SlowLink("gpu0-gpu1", 0.5, -1.0), "must begin at 0 s or later"),
        (lambda: SlowLink("gpu0-gpu1", 0.0, 1.0), "what crosses a link that fails for good never ends"),
        (lambda: Neighbour("gpu0-gpu1", 0.0), "neighbours='gpu0-gpu1': must move more than 0 B/s; got 0 B/s"),
        (lambda: Neighbour("gpu0-gpu1", -1e9), "must move more than 0 B/s; got -1e+09 B/s"),
        (lambda: Neighbour("gpu0-gpu1", float("inf")), "must move more than 0 B/s; got inf B/s"),
    ],
)
def test_what_cannot_be_is_refused_in_python_too(made, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        made()


def test_a_link_that_fails_in_a_step_is_waited_for() -> None:
    asked = StepQuestion(where=Where("p3.16xlarge"), workload="vgg16", batch=8)
    whole_s = Session().time_s(asked)
    link = SlowLink("gpu0-gpu3", 0.0, 0.0, 0.5)
    assert Session().time_s(replace(asked, where=replace(asked.where, slow_links=(link,)))) > 0.5 > whole_s


def test_a_neighbour_takes_its_rate_before_all_others() -> None:
    busy = replace(PCIE, neighbours=(Neighbour("gpu1-gpu0", 4e9),))
    assert time_s(busy) == pytest.approx(3 * S / 12e9 + 3 * S / 16e9, rel=1e-9)
    with pytest.raises(InputError, match="needs 20 GB/s of switch0->gpu0, which has 16 GB/s"):
        time_s(replace(PCIE, neighbours=(Neighbour("gpu1-gpu0", 20e9),)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--slow-link", "gpu0-gpu1:0.5x"], "--slow-link gpu0-gpu1: no link joins these two"),
        (["--slow-link", "gpu0-switch1:0.5x"], "no device is called 'switch1'; did you mean 'switch0'?"),
        (["--slow-link", "gpu0:0.5x"], "names two devices with - between"),
        (["--slow-link", "gpu0-switch0:2x"], "--slow-link gpu0-switch0: must be between 0x (failed) and 1x; got 2x"),
        (["--slow-link", "gpu0-switch0"], "write for example gpu0-gpu1:0.5x"),
        (["--slow-link", "gpu0-switch0:0x@1ms"], "what crosses a link that fails for good never ends"),
        (
            ["--slow-link", "gpu0-switch0:0.5x@2ms..1ms"],
            "must begin at 0 s or later, and end after that; got 2 ms to 1 ms",
        ),
        (["--slow-link", "gpu0-switch0:0.5x@soon"], "for example gpu0-switch0:0x@10ms..50ms"),
        (["--slow-link", "gpu0-gpu1:0.5x@1ms"], "--slow-link gpu0-gpu1: no link joins these two"),
        (["--neighbour", "gpu0-gpu1"], "--neighbour gpu0-gpu1:"),
        (["--neighbour", "gpu0-switch0:1GB/s"], "switch0 is neither a GPU nor a CPU"),
        (["--straggler", "gpu1:2x"], "--straggler: is about a step of a network; add --batch"),
    ],
)
def test_what_is_not_there_is_refused_in_a_line(words: list[str], told: str, capsys) -> None:
    assert run(["--topology", "4gpu-pcie", "--quiet", *words]) == 2
    assert told in capsys.readouterr().err


def test_the_real_command_knows_all_circumstances(capsys) -> None:
    words = ["--topology", "4gpu-pcie", "--workload", "bytes:160MB", "--strategy", "gpu0", "--json", "--quiet"]
    words += ["--slow-link", "gpu0-switch0:0.5x", "--neighbour", "gpu1-gpu0:4GB/s"]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["results"][0]["sync_time_s"] == pytest.approx(3 * S / 4e9 + 3 * S / 8e9)


# -- B8 ------------------------------------------------------------------------------


def test_b8_a_lost_server_costs_what_is_sent_again() -> None:
    session, asked = Session(), replace(VGG, where=Where("p3.16xlarge", 2))
    plain = session.step(asked)
    for after_s in (0.001, 0.2):
        result = session.step(replace(asked, lost=("node1.cpu0", after_s)))
        assert result.step_time_s == plain.step_time_s
        assert result.servers is not None
        assert result.servers.lost_s is not None
        # At least half of the parameters goes from one node to the other; at most one step is repeated, and one
        # server in place of two exchanges all keys again.
        half_s = 4 * result.step.parameter_count / 2 / 2.94e9
        assert half_s / 2 < result.servers.lost_s < half_s + 2 / 1 * 2 * plain.step_time_s
    for lost, told in [
        (("node7.cpu0", 0.1), "lost='node7.cpu0': no server stands there"),
        (("node1.cpu0", 9.0), "9 s after the start of a step is after its end"),
    ]:
        with pytest.raises(InputError, match=told):
            session.step(replace(VGG, lost=lost))
    with pytest.raises(InputError, match="is the only server, and no other could take over its keys"):
        session.step(replace(VGG, strategy="parameter-server", lost=("node0.cpu0", 0.1)))
    with pytest.raises(InputError, match="is for staleness=0"):
        session.step(replace(VGG, staleness=1, lost=("node0.cpu0", 0.1)))


def test_b8_best_interval_is_young_s_for_rare_failures() -> None:
    assert best_interval_s(5.0, 1e7) == pytest.approx((2 * 5.0 * 1e7) ** 0.5, rel=1e-3)
    assert best_interval_s(10.0, 4.0) == 4.0


@pytest.mark.parametrize(("write_s", "mtbf_s"), [(5.0, 86400.0), (60.0, 3600.0)])
def test_b8_no_other_interval_keeps_more(write_s: float, mtbf_s: float) -> None:
    def goodput(steps: int) -> float:
        return Checkpoints(1.0, steps, write_s, 30.0, mtbf_s).goodput

    best = Checkpoints(1.0, 1, write_s, 30.0, mtbf_s).best_steps
    assert goodput(best) == pytest.approx(max(map(goodput, range(1, 20_000))), rel=1e-4)


def test_b8_goodput_is_that_of_failures_drawn_at_random() -> None:
    plan = Checkpoints(step_s=1.0, every_steps=300, write_s=10.0, restart_s=20.0, mtbf_s=2000.0)
    random, clock_s, kept_s = Random(1), 0.0, 0.0
    fails_s = random.expovariate(1 / 2000.0)
    while kept_s < 3e6:
        if clock_s + 310.0 <= fails_s:
            clock_s, kept_s = clock_s + 310.0, kept_s + 300.0
            continue
        while True:  # a failure during a restart begins it again
            clock_s = fails_s + 20.0
            fails_s += random.expovariate(1 / 2000.0)
            if fails_s > clock_s:
                break
    assert plan.goodput == pytest.approx(kept_s / clock_s, rel=0.01)
    assert plan.goodput + plan.written_share + plan.failed_share == pytest.approx(1.0)


def test_b8_checkpoints_of_a_real_command(capsys) -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "vgg16", "--batch", "32", "--json", "--quiet"]
    assert run([*words, "--mtbf", "24h", "--checkpoint-every", "500", "--checkpoint-time", "30s"]) == 0
    found = json.loads(capsys.readouterr().out)["results"][0]["checkpoints"]
    assert found["every_steps"] == 500
    assert found["best_goodput"] > found["goodput"]
    assert found["young_s"] == pytest.approx((2 * 30 * 86400) ** 0.5)
    assert run([*words, "--checkpoint-every", "500"]) == 2
    assert "--checkpoint-every: is about failures; add --mtbf" in capsys.readouterr().err
    assert run(["--topology", "4gpu-pcie", "--workload", "vgg16", "--batch", "32", "--mtbf", "24h", "--quiet"]) == 2


def test_a_checkpoint_is_written_by_the_first_disk() -> None:
    question = StepQuestion(
        where=Where("p3.16xlarge"), workload="vgg16", batch=32, checkpoints=CheckpointQuestion(mtbf_s=86400.0)
    )
    result = Session().step(question)
    found = result.checkpoints
    assert found is not None
    # Parameters and momentum of 138 M elements, on a volume of 250 MB/s.
    assert found.write_s == pytest.approx(2 * 4 * result.step.parameter_count / 250e6, rel=0.01)
    assert found.every_steps == found.best_steps


@pytest.mark.parametrize(("write_s", "restart_s"), [(1.0, 1e9), (1e9, 1.0), (1e9, 1e9), (1e-9, 1e-9)])
def test_no_time_to_write_or_restart_is_too_long_for_the_share_that_is_kept(write_s: float, restart_s: float) -> None:
    found = Checkpoints(1.0, 100, write_s, restart_s, 3600.0)
    assert 0.0 <= found.goodput <= 1.0
    assert found.goodput + found.written_share + found.failed_share == pytest.approx(1.0)
    if restart_s > 1.0 or write_s > 1.0:
        assert found.goodput == 0.0
