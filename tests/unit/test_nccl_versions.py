"""What a version of NCCL has not, it does not choose; whose rules it chooses by is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.api import load_machine
from simulator.cli import run
from simulator.collectives.communicator import Unsuitable
from simulator.collectives.nccl.strategy import Nccl
from simulator.collectives.nccl.tables import KNOWN, rules_of, version_notes
from simulator.collectives.nccl.tuning import CommGraph, TunedPair, candidates
from simulator.plan.plan import Plan
from simulator.questions.collective import ALGORITHMS
from simulator.questions.where import FEATURES, NCCL_TODAY, OLDEST_RULES, Version, has
from simulator.records import own_data
from simulator.workload import Collective
from tests.asked import request_of

# NVIDIA's release notes and sources: NVLS is in 2.17.1's tuner and not in 2.16.2's, for one node; 2.18.1 adds it
# between nodes; trees are in 2.4.2; PAT is not in 2.20.3's tables, send and receive not before 2.7.3.
_ALL = {(2, 0), (2, 3), (2, 4), (2, 6), (2, 7), (2, 11), (2, 12), (2, 16), (2, 17), (2, 18), (2, 22), (2, 23), (2, 30)}


def plan(version: Version, nodes: int = 1, size: float = 1e9, collective: Collective = "all-reduce") -> Plan:
    machine = load_machine("dgx-h100", n_nodes=nodes)
    return Nccl(version=version).plan(request_of(machine, size, collective=collective))


@pytest.mark.slow
@pytest.mark.parametrize("version", sorted(_ALL))
@pytest.mark.parametrize(("nodes", "since"), [(1, (2, 17)), (2, (2, 18))])
def test_reducing_in_the_switch_is_chosen_from_the_version_on_that_has_it(
    version: Version, nodes: int, since: Version
) -> None:
    chosen = plan(version, nodes).facts["algorithm"]
    assert (chosen in ("nvls", "nvls_tree")) == (version >= since)
    assert chosen == "ring" if version < (2, 4) else has(version, chosen)


GRAPH = CommGraph(
    n_ranks=8,
    n_nodes=8,
    n_channels=4,
    bw_intra_GBps=20.0,
    bw_inter_GBps=20.0,
    type_intra="loc",
    type_inter="pix",
    compute_capability_min=90,
    compute_capability_max=90,
    cpu="intel",
    comm_channels=8,
    has_nvlink_switch=True,
    nvls_channels=8,
    nvls_bw_intra_GBps=20.0,
    nvls_bw_inter_GBps=20.0,
)
_INSIDE = replace(GRAPH, n_nodes=1, type_intra="nvl", n_channels=10, bw_intra_GBps=36.0)


@pytest.mark.parametrize("version", sorted(_ALL))
def test_no_version_weighs_what_came_later(version: Version) -> None:
    for graph in (GRAPH, _INSIDE):
        for collective in ("all-reduce", "all-gather", "broadcast"):
            found = candidates(replace(graph, version=version), collective, 1e6)
            assert found
            for each in found:
                assert has(version, each.algorithm)
                assert each.protocol != "LL128" or version >= (2, 5)
    gathers = {each.algorithm for each in candidates(replace(GRAPH, version=version), "all-gather", 1e6)}
    assert ("pat" in gathers) == (version >= (2, 23))


@pytest.mark.parametrize(
    ("version", "algorithm", "protocol", "latency_us", "algbw_GBps"),
    [
        # Ten channels of 36 GB/s inside one node, worked out from each source by hand: 14 steps of a ring, 7 hops of a
        # tree up and down, and NVLS's base or hop.
        ((2, 6), "ring", "Simple", 8.4 + 14 * 5.7, 360 * 8 / 14),
        ((2, 6), "tree", "Simple", 2 * 7 * 28, min(360 * 0.9, 110) / 2),
        ((2, 6), "ring", "LL", 3.6 + 14 * 0.4, 360 / 4 * 8 / 14),
        ((2, 8), "ring", "Simple", 8.4 + 14 * 3.4, 360 * 8 / 14),
        ((2, 8), "ring", "LL", 3.6 + 14 * 0.47, 87.7 * 8 / 14),
        ((2, 17), "nvls", "Simple", 40.0, 0.75 * 360),
        ((2, 17), "ring", "LL128", 10.0 + 14 * 1.9, 0.92 * 360 * 8 / 14),
        ((2, 18), "nvls", "Simple", 23.0, 5 / 6 * 8 * 20),
        ((2, 18), "tree", "Simple", 2 * 7 * 4, 0.92 * 360 / 2),
        ((2, 20), "nvls", "Simple", 23.0, 5 / 6 * 8 * 20),
        ((2, 20), "tree", "Simple", 2 * 7 * 28, 0.92 * 360 / 2),
        ((2, 24), "nvls", "Simple", 25.0, 5 / 6 * 8 * 20),
        ((2, 24), "ring", "LL", 6.6 + 14 * 0.6, 141 * 8 / 14),
        ((2, 30), "tree", "Simple", 8.4 + 2 * 7 * 4, 0.92 * 360 / 2),
    ],
)
def test_each_known_version_plans_with_its_own_figures(
    version: Version, algorithm: str, protocol: str, latency_us: float, algbw_GBps: float
) -> None:
    of: Any = replace(_INSIDE, version=version), "all-reduce", algorithm, protocol
    figures = TunedPair(*of).figures()
    assert figures == pytest.approx((latency_us, algbw_GBps))


def test_between_known_versions_the_older_ones_rules_hold() -> None:
    assert [rules.version for rules in KNOWN] == sorted(rules.version for rules in KNOWN)
    assert (KNOWN[0].version, KNOWN[-1].version) == (OLDEST_RULES, NCCL_TODAY)
    assert [rules_of(v).version for v in ((2, 0), (2, 7), (2, 16), (2, 18), (2, 23), (3, 0))] == [
        (2, 6),
        (2, 6),
        (2, 13),
        (2, 18),
        (2, 20),
        (2, 30),
    ]
    for version in [(2, minor) for minor in range(40)]:
        assert {each for each in ALGORITHMS if has(version, each)} <= set(rules_of(version).latencies)


def test_what_a_version_has_not_cannot_be_forced() -> None:
    machine = load_machine("dgx-h100")
    with pytest.raises(Unsuitable, match=r"^NCCL 2\.16 has no nvls, which came with 2\.17$"):
        Nccl("nvls", version=(2, 16)).plan(request_of(machine, 1e6))
    with pytest.raises(Unsuitable, match=r"^NCCL 2\.6 has no send and receive, which came with 2\.7$"):
        plan((2, 6), collective="all-to-all")
    assert plan((2, 7), collective="all-to-all").tasks


@pytest.mark.parametrize(
    ("version", "capability", "whose", "old"),
    [
        ((2, 30), 90, "", False),
        ((2, 31), 90, "", False),
        ((2, 18), 90, "NCCL 2.18 chooses by its own tables, among", False),
        ((2, 22), 90, "NCCL 2.22 chooses by the tables of 2.20, the newest known before it, among", False),
        ((2, 4), 70, "NCCL 2.4 chooses by the tables of 2.6, the oldest known, without what came later, among", False),
        ((2, 15), 90, "NCCL 2.15 chooses by the tables of 2.13", True),
        ((2, 6), 80, "NCCL 2.6 chooses by its own tables", True),
        ((2, 24), 100, "NCCL 2.24 chooses by its own tables", True),
    ],
)
def test_the_answer_says_whose_rules_and_whether_the_chip_is_younger(
    version: Version, capability: int, whose: str, old: bool
) -> None:
    notes = version_notes(version, capability)
    assert notes[:1] == [] if not whose else notes[0].startswith(whose)
    assert any("older than these GPUs" in note for note in notes) == old


def test_every_feature_names_its_source() -> None:
    assert set(ALGORITHMS) <= set(FEATURES)
    told = own_data("simulator.questions", "nccl.yaml")["features"]
    assert all(source and (major, minor) >= (2, 0) for major, minor, source in told.values())


@pytest.mark.slow
def test_commands_show_it(capsys) -> None:
    run(["--topology", "dgx-h100", "--workload", "bytes:1GB", "--strategy", "nccl", "--nccl", "2.4"])
    shown = capsys.readouterr().out
    assert "chosen: nvls" not in shown
    assert "NCCL 2.4 is older than these GPUs (compute capability 9.0), for which 2.16 is the first" in shown
    step = ["--topology", "dgx-h100", "--workload", "resnet50", "--batch", "32", "--strategy", "nccl", "--nccl"]
    run([*step, "2.12"])
    assert "NCCL 2.12 chooses by the tables of 2.8" in " ".join(capsys.readouterr().out.split())
    run([*step, "2.30"])
    assert "chooses by" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2", "the minor version is missing; a version such as 2.18 is needed, from 2.0 on"),
        ("v2.18.3", "write it without the v: 2.18.3"),
        ("1.3", "a version such as 2.18 is needed, from 2.0 on"),
        ("2.18-1", "a version such as 2.18 is needed, from 2.0 on"),
    ],
)
def test_a_version_that_is_none_says_why(text: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", "dgx-h100", "--workload", "bytes:1GB", "--nccl", text]) == 2
    assert f"--nccl {text}: {why}" in capsys.readouterr().err
