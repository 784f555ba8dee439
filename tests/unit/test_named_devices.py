"""``--slow-link``, ``--neighbour`` and ``--straggler`` take ranges, and a star for all nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import parse_layout
from simulator.questions.step import StepQuestion
from simulator.questions.where import Neighbour, SlowLink, Where

SESSION = Session()
P3 = Where("p3.16xlarge")
FOUR = Where("dgx-h100", 4)


def time_s(where: Where, *slow: SlowLink, neighbours: tuple[Neighbour, ...] = ()) -> float:
    where = replace(where, slow_links=slow, neighbours=neighbours)
    return SESSION.time_s(CollectiveQuestion(where=where, size_bytes=1e9))


def test_a_range_of_links_is_each_of_them() -> None:
    each = [SlowLink(f"gpu{i}-gpu{i + 4}", 0.5) for i in range(4)]
    assert time_s(P3, SlowLink("gpu[0-3]-gpu[4-7]", 0.5)) == time_s(P3, *each) > time_s(P3)
    each = [SlowLink(f"gpu{i}-gpu{i + 4}", 0.0, 1e-3, 3e-3) for i in (0, 2)]
    assert time_s(P3, SlowLink("gpu[0,2]-gpu[4,6]", 0.0, 1e-3, 3e-3)) == time_s(P3, *each)
    jobs = tuple(Neighbour(f"gpu{i}-gpu0", 8e9) for i in (1, 2, 3))
    assert time_s(P3, neighbours=(Neighbour("gpu[1-3]-gpu0", 8e9),)) == time_s(P3, neighbours=jobs) > time_s(P3)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"from_s": 1e-3, "until_s": 3e-3}])
def test_all_nodes_are_each_of_them_and_stay_equal(more: dict[str, float]) -> None:
    every = SlowLink("node*.ib[4-7]-network", 0.5, **more)
    each = [SlowLink(f"node{n}.ib{i}-network", 0.5, **more) for n in range(4) for i in range(4, 8)]
    assert time_s(FOUR, every) == pytest.approx(time_s(FOUR, *each), rel=1e-9)
    assert time_s(FOUR, every) == pytest.approx(
        time_s(FOUR, SlowLink("node[0-3].ib[4-7]-network", 0.5, **more)), rel=1e-9
    )
    assert time_s(FOUR, every) > time_s(FOUR)
    asked = replace(FOUR, slow_links=(every,))
    assert len(SESSION.machine(asked).runs) == len(SESSION.machine(FOUR).runs)  # one machine stands for all
    some = replace(FOUR, slow_links=(SlowLink("node[1-2].ib0-network", 0.5),))
    assert len(SESSION.machine(some).runs) > len(SESSION.machine(FOUR).runs)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("gpu[2-3]", ("gpu2", "gpu3")),
        ("gpu[1,9]", ("node0.gpu1", "node1.gpu1")),
        ("node*.gpu1", ("gpu1", "gpu9")),
        ("node[0-1]", ("node0", "node1")),
        ("node*", ("node0", "node1")),
        ("gpu*", ("node0", "node1")),
        ("node1.gpu*", ("node1",)),
    ],
)
def test_stragglers_by_range(name: str, same: tuple[str, ...]) -> None:
    asked = StepQuestion(where=Where("p3.16xlarge", 2), workload="mlp", batch=64, layout=parse_layout("dp"))
    slow, each = (
        SESSION.step(replace(asked, stragglers=tuple((said, 3.0) for said in names))) for names in ((name,), same)
    )
    assert slow.step_time_s == each.step_time_s
    assert [device.count for device in slow.memory] == [device.count for device in each.memory]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--slow-link", "gpu[0-3]-gpu[4-6]:0.5x"],
            "stand for 4 and 3 devices; equal numbers pair up, one joins all",
        ),
        (["--slow-link", "gpu[0-8]-plx0:0.5x"], "no device is called 'gpu8'; did you mean 'gpu7'"),
        (["--slow-link", "gpu[0-1]-gpu[6-7]:0.5x"], "no link joins gpu0-gpu6; did you mean 'gpu0-gpu"),
        (["--slow-link", "gpu[0-1]-gpu[6-7]:0.5x@1ms..2ms"], "no link joins gpu0-gpu6; did you mean 'gpu0-gpu"),
        (["--slow-link", "gpu[3-0]-gpu4:0.5x"], "the range 3-0 runs backwards"),
        (["--slow-link", "gpu[0-1]-gpu[1,0]:0.5x,gpu[0-1]-gpu[0-1]:0.5x"], "joins gpu0 with itself"),
        (["--slow-link", "gpu*-gpu*:0.5x"], "gpu*-gpu*: joins gpu0 with itself; name two different devices"),
        (["--slow-link", "gpu1-gpu1:0.5x"], "gpu1-gpu1: joins gpu1 with itself"),
        (["--slow-link", "gpx*-plx0:0.5x"], "no device is called 'gpx*'; did you mean 'gpu0'"),
        (["--nodes", "2", "--slow-link", "node[0-2].nic0-network:0.5x"], "there is no node2; they are node0 to node1"),
        (["--nodes", "2", "--slow-link", "node*.nic9-network:0.5x"], "no device is called 'nic9'; did you mean 'nic0'"),
        (["--neighbour", "gpu[0-1]-gpu0:1GB/s"], "joins gpu0 with itself"),
    ],
)
def test_what_a_range_lacks_is_named(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", "p3.16xlarge", "--workload", "bytes:1MB", "--strategy", "ring", "--quiet", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--workload", "bytes:1MB", "--slow-link", "gpu0-gpu5:0.5x"],
            "p3.16xlarge: --slow-link gpu0-gpu5: no link joins",
        ),
        (
            ["--workload", "bytes:1MB", "--slow-link", "gpu0-gpu5:0.5x@1ms..2ms"],
            "p3.16xlarge: --slow-link gpu0-gpu5: no",
        ),
        (["--workload", "mlp", "--batch", "8", "--straggler", "gpu7:2x"], "p3.8xlarge: --straggler gpu7: no device is"),
        (
            ["--workload", "mlp", "--batch", "8", "--neighbour", "gpu7-gpu0:1GB/s"],
            "p3.8xlarge: --neighbour gpu7-gpu0: no d",
        ),
    ],
)
def test_of_several_machines_the_one_that_lacks_a_device_is_named(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--topology", "p3.16xlarge,p3.8xlarge", "--strategy", "ring", "--quiet", *words]) == 2
    assert told in capsys.readouterr().err


def test_stragglers_of_a_range_all_take_part(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "mlp", "--batch", "64", "--quiet", "--straggler"]
    assert run([*words, "gpu[6-8]:2x"]) == 2
    assert "no device is called 'gpu8'; did you mean 'gpu7'" in capsys.readouterr().err
    assert run([*words, "gpu[2-5]:2x", "--gpus", "4"]) == 2
    assert "--straggler gpu[2-5]: not every such device takes part" in capsys.readouterr().err
    assert run([*words, "gpx[0-1]:2x"]) == 2
    assert "no device is called 'gpx0'; did you mean 'gpu0'" in capsys.readouterr().err


def test_a_neighbour_names_the_link_that_lacks_most(capsys: pytest.CaptureFixture[str]) -> None:
    """On the way between the sockets the link between them is the narrowest, not the first."""
    words = ["--topology", "p3.16xlarge", "--workload", "bytes:1MB", "--strategy", "ring", "--quiet", "--neighbour"]
    assert run([*words, "gpu0-gpu5:100GB/s"]) == 2
    machine = SESSION.machine(P3)
    route = SESSION.router(P3).route(machine.gpus[0], machine.gpus[5])
    narrowest = min(route.loads, key=lambda load: machine.capacity_Bps[load[0]] / load[1])[0]
    assert f"of {machine.resource_names[narrowest]}, which has" in capsys.readouterr().err
    assert run([*words, "gpu0-gpu1:20GB/s,gpu0-gpu1:40GB/s"]) == 2
    assert "needs 40 GB/s of gpu0->gpu1, which has" in (told := capsys.readouterr().err)
    assert "left by other jobs" in told


@pytest.mark.parametrize("strategy", ["nccl", "ring", "hierarchical"])
def test_a_machine_that_is_cut_off_is_refused_in_a_line(strategy: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "2x-gtx1080-desktop", "--nodes", "3", "--fabric", "ethernet-10g", "--workload", "bytes:1MB"]
    assert run([*words, "--strategy", strategy, "--slow-link", "node1.cpu0-node1.nic0:0x", "--quiet"]) == 2
    assert "no links lead from node0.gpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("gpu0-switch0:0.5x,gpu0-switch0:0.5x", "gpu0-switch0: gpu0-switch0 is given twice"),
        ("gpu0-switch0:0.5x,switch0-gpu0:0.25x", "switch0-gpu0: switch0-gpu0 is given twice"),
        ("gpu[0-1]-switch0:0.5x,gpu1-switch0:0.5x", "gpu1-switch0: gpu1-switch0 is given twice"),
        ("gpu0-switch0:0.5x@1ms..5ms,gpu0-switch0:0.5x@3ms..8ms", "gpu0-switch0 is given twice from 3 ms to 5 ms"),
        ("gpu*-switch0:0x@1ms..5ms,switch0-gpu2:0.5x@3ms", "switch0-gpu2 is given twice from 3 ms to 5 ms"),
        ("gpu0-switch0:0.5x@1ms,gpu0-switch0:0.2x@3ms", "gpu0-switch0 is given twice from 3 ms on"),
        ("gpu0-switch0:0x,gpu0-switch0:0.5x@1ms..2ms", "gpu0-switch0 is down for good, and cannot be slow for a"),
    ],
)
def test_a_link_has_one_factor_at_a_time(said: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--topology", "4gpu-pcie", "--workload", "bytes:160MB", "--strategy", "ring"]
    assert run([*asked, "--slow-link", said]) == 2
    assert told in (error := capsys.readouterr().err)
    assert error.count("\n") == 1


def test_equal_neighbours_are_two(capsys: pytest.CaptureFixture[str]) -> None:
    """240 MB over 16 GB/s, of which two jobs take 8: 30 ms."""
    asked = ["--topology", "4gpu-pcie", "--workload", "bytes:160MB", "--strategy", "ring"]
    assert run([*asked, "--neighbour", "gpu1-gpu0:4GB/s,gpu1-gpu0:4GB/s"]) == 0
    assert "\nring      30.00 ms" in capsys.readouterr().out
