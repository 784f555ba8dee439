"""An nccl-tests log compared with the machine's expected behaviour: read, judged, explained."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from simulator.api import Session
from simulator.api.variants import (
    fewer_adapters,
    fewer_links,
    narrower_pcie,
    slower_adapters,
    without_gpudirect,
    without_nvlink,
)
from simulator.bands import evidence
from simulator.bands.composition import estimate
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import SlowLink, Where
from simulator.topology import Topology
from simulator.topology.load import load_topology
from tests.nccl_logs import as_json_log, as_log
from validate.check.check import CheckedLog, check_log
from validate.check.pace import healthy_range, large_from
from validate.check.report import as_text
from validate.cli import main
from validate.importing.nccl_tests import read_nccl_tests
from validate.tables.statistics import weighted_quantile

SIZES = [1 << power for power in (14, 18, 22, 25, 28, 30)]


def times_on(topology: Topology, sizes: Sequence[int] = SIZES, **asked: object) -> list[tuple[int, float]]:
    """Return NCCL's time on *topology* for all *sizes*, as (bytes, seconds)."""
    session, where = Session(), Where("as it is")
    session.know(where, topology)
    question = CollectiveQuestion(where=where, size_bytes=0.0)
    return [(size, session.time_s(replace(question, size_bytes=float(size), **asked))) for size in sizes]  # type: ignore[arg-type]


SESSION = Session()  # one for all logs: a machine and its faults are made once


def checked(text: str, topology: str, **options: object) -> CheckedLog:
    return check_log(SESSION, read_nccl_tests(text, "a.log"), topology, **options)  # type: ignore[arg-type]


def run(*arguments: str) -> object:
    with pytest.raises(SystemExit) as stopped:
        main(["check", *arguments])
    return stopped.value.code


# -- reading ---------------------------------------------------------------------------


def test_text_and_json_say_the_same() -> None:
    times = [(1 << 20, 1e-4), (1 << 30, 5e-3)]
    text, document = read_nccl_tests(as_log(times), "a"), read_nccl_tests(as_json_log(times), "b")
    for log in (text, document):
        assert (log.collective, log.n_ranks, log.per_host, log.gpu) == ("all-reduce", 8, (8,), "NVIDIA H100 80GB HBM3")
        assert [point.out_s for point in log.points] == pytest.approx([time_s for _, time_s in times])
        assert log.devices == (tuple(range(8)),)
    assert (text.nccl, document.nccl) == ((2, 30), (2, 27))
    assert document.settings == (("NCCL_ALGO", "Tree"),)
    early = as_json_log(times).replace('"nccl_version": 22703', '"nccl_version": 2804')
    assert read_nccl_tests(early, "c").nccl == (2, 8)


def test_old_logs_have_fewer_columns() -> None:
    text = """\
NCCL version 2.8.4+cuda11.2
# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    51.36   20.42   35.73  1e-07    50.93   20.59   36.03  1e-07
   134217728      33554432   float     sum   1100.0  122.02  213.53  4e-07   1101.0  121.9   213.3   N/A
# Avg bus bandwidth    : 0.3
"""
    log = read_nccl_tests(text, "a")
    assert (log.collective, log.n_ranks, log.nccl, log.gpus_per_thread) == ("all-reduce", 8, (2, 8), 8)
    assert [(point.out_s, point.in_s) for point in log.points] == [
        pytest.approx((51.36e-6, 50.93e-6)), pytest.approx((1.1e-3, 1.101e-3))
    ]  # fmt: skip


def test_ranks_on_hosts_and_devices_are_counted() -> None:
    log = read_nccl_tests(as_log([(1 << 20, 1e-4)], hosts=2, devices=(0, 2, 4, 6)), "a")
    assert (log.n_ranks, log.per_host, log.devices) == (8, (4, 4), ((0, 2, 4, 6), (0, 2, 4, 6)))


@pytest.mark.parametrize(
    "collective", ["all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "all-to-all", "send-recv"]
)
def test_the_program_s_name_says_what_was_exchanged(collective) -> None:
    assert read_nccl_tests(as_log([(1 << 20, 1e-4)], collective=collective), "a").collective == collective


@pytest.mark.parametrize(
    ("collective", "told"),
    [
        ("all-reduce", True),
        ("reduce-scatter", True),
        ("broadcast", True),
        ("reduce", True),
        ("all-gather", False),
        ("all-to-all", False),
    ],
)
def test_columns_say_it_where_only_one_collective_has_them(collective, told) -> None:
    text = as_log([(1 << 28, 1e-2)], collective=collective, header=False)
    if told and collective not in ("broadcast", "reduce"):
        assert read_nccl_tests(text, "a").collective == collective
    elif told:
        assert read_nccl_tests(text, "a", n_ranks=8).collective == collective
    else:
        with pytest.raises(InputError, match="does not say what was exchanged; say it"):
            read_nccl_tests(text, "a")
        assert read_nccl_tests(text, "a", collective=collective, n_ranks=8).collective == collective


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\n", r"a:1:1: is no output of nccl-tests, rccl-tests or OSU's collectives, nor of ib_write_bw"),
        ("# Avg bus bandwidth : 0", r"a: holds no row of nccl-tests' table"),
        ("{", r"a:1:2: is not valid JSON"),
        ("{}", r"a:1:1: is not JSON of nccl-tests: it has no list 'results'"),
        (as_log([(1 << 20, 1e-4)], collective="broadcast", header=False), r"a: does not say how many GPUs took part"),
        (as_log([(1 << 20, 1e-4)], devices=(0,)), r"a: has one rank"),
    ],
)
def test_what_is_no_log_is_told(text, said) -> None:
    with pytest.raises(InputError, match=said):
        read_nccl_tests(text, "a")


def test_what_the_user_says_may_not_contradict_the_log() -> None:
    text = as_log([(1 << 20, 1e-4)])
    with pytest.raises(InputError, match="lists 8 ranks, where --gpus says 4"):
        read_nccl_tests(text, "a", n_ranks=4)
    with pytest.raises(InputError, match="is of all_reduce_perf, where --collective says broadcast"):
        read_nccl_tests(text, "a", collective="broadcast")
    with pytest.raises(InputError, match="no collective is called 'allgather'; did you mean 'all-gather'"):
        read_nccl_tests(text, "a", collective="allgather")


# -- judging ---------------------------------------------------------------------------


def test_what_is_as_expected_is_healthy() -> None:
    found = checked(as_log(times_on(load_topology("dgx-h100"))), "dgx-h100")
    assert found.verdict == "healthy"
    assert [row.ratio for row in found.rows] == pytest.approx([1.0] * len(SIZES), rel=2e-3)
    assert found.explanations == ()


def test_twice_as_long_is_slow_and_half_as_long_is_faster() -> None:
    times = times_on(load_topology("dgx-h100"))
    assert checked(as_log([(size, 2.0 * t) for size, t in times]), "dgx-h100").verdict == "slow"
    assert checked(as_log([(size, 0.5 * t) for size, t in times]), "dgx-h100").verdict == "faster"


def test_smaller_sizes_alone_make_a_log_slow() -> None:
    times = times_on(load_topology("dgx-h100"))
    found = checked(as_log([(size, t * (4.0 if size < 1 << 27 else 1.0)) for size, t in times]), "dgx-h100")
    assert found.verdict == "slow"
    large, small = found.groups
    assert median(row.ratio for row in large) <= max(row.band.slowest for row in large)
    assert median(row.ratio for row in small) > max(row.band.slowest for row in small)


@pytest.mark.parametrize(
    ("machine", "nodes", "fault", "words", "verdict"),
    [
        pytest.param(
            *("dgx-h100", 2, lambda t: fewer_adapters(t, range(4)), "4 of 8 adapters used", "healthy"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "dgx-h100", 2, lambda t: fewer_adapters(t, range(1)), "1 of 8 adapters used", "slow", marks=pytest.mark.slow
        ),
        pytest.param(
            *("dgx-a100-80gb", 2, lambda t: fewer_adapters(t, range(4)), "4 of 8 adapters used", ""),
            marks=pytest.mark.slow,
        ),
        ("dgx-h100", 1, without_nvlink, "PCIe in place of NVLink", "slow"),
        ("dgx-1-v100-16gb", 1, without_nvlink, "PCIe in place of NVLink", "slow"),
        pytest.param("dgx-1-v100-16gb", 2, without_gpudirect, "no GPUDirect RDMA", "slow", marks=pytest.mark.slow),
        pytest.param(
            *("dgx-1-v100-16gb", 4, lambda t: slower_adapters(t, 0.5), "adapters at half of their rate", "slow"),
            marks=pytest.mark.slow,
        ),
        ("8x-a100-pcie", 1, lambda t: narrower_pcie(t, 0.5), "PCIe links at half of their rate", "slow"),
    ],
)
def test_what_is_amiss_is_named_first(machine, nodes, fault, words, verdict) -> None:
    topology = fault(load_topology(machine, n_nodes=nodes if nodes > 1 else None))
    gpus = sum(device.kind == "gpu" for device in topology.devices)
    slow = [(size, t * 1.03) for size, t in times_on(topology)]
    found = checked(as_log(slow, hosts=nodes, devices=range(gpus)), machine)
    assert found.verdict == verdict or not verdict  # twice the time between machines is at the end of what is healthy
    best = found.explanations[0].error  # half of the adapters, or all at half of their rate: no time tells them apart
    alike = [said for each in found.explanations if each.error < best + 0.01 for said in (each.words, *each.alike)]
    assert any(said.startswith(words) for said in alike)
    assert found.explanations[0].error < 0.04


@pytest.mark.slow
def test_a_log_in_its_range_with_the_shape_of_a_fault_is_slow_and_one_of_another_choice_of_nccl_is_not() -> None:
    healthy = times_on(load_topology("dgx-h100", n_nodes=2))
    falls = [(size, 4.0 * t if size == SIZES[-1] else t) for size, t in healthy]  # one of three large sizes
    rings = times_on(load_topology("dgx-h100", n_nodes=2), algorithm="ring")
    for times, verdict in ((healthy, "healthy"), (falls, "slow"), (rings, "healthy")):
        assert checked(as_log(times, hosts=2), "dgx-h100", explains=False).verdict == "healthy"
        found = checked(as_log(times, hosts=2), "dgx-h100")
        assert found.verdict == verdict
        assert not found.explanations or found.explanations[0].words.startswith("a cliff") == (verdict == "slow")
        assert as_text(found)


@pytest.mark.parametrize(
    ("machine", "nodes", "link", "words", "verdict"),
    [
        ("dgx-h100", 2, SlowLink("node0.ib0-network", 0.25), "one rail at a quarter of its rate", "slow"),
        ("dgx-1-v100-16gb", 1, SlowLink("gpu0-gpu3", 0.0), "the links of two GPUs down, as gpu0-gpu3", "slow"),
    ],
)
def test_one_link_that_is_amiss_is_named(machine, nodes, link, words, verdict) -> None:
    where = Where(machine, nodes if nodes > 1 else None, slow_links=(link,))
    session, question = Session(), CollectiveQuestion(where=where, size_bytes=0.0)
    times = [(size, session.time_s(replace(question, size_bytes=float(size)))) for size in SIZES]
    found = checked(as_log(times, hosts=nodes), machine)
    assert found.verdict == verdict
    first = found.explanations[0]
    assert any(each.startswith(words) for each in (first.words, *first.alike))


def test_half_of_the_links_of_a_pair_that_are_down_are_named() -> None:
    machine = fewer_links(load_topology("dgx-1-v100-16gb"), 1, ("gpu0", "gpu3"))
    found = checked(as_log(times_on(machine), devices=range(8)), "dgx-1-v100-16gb")
    best = found.explanations[0].error
    words = [said for each in found.explanations if each.error < best + 0.01 for said in (each.words, *each.alike)]
    assert "1 of the 2 links of two GPUs down, as gpu0-gpu3" in words


@pytest.mark.parametrize(
    ("asked", "words"), [({"algorithm": "tree"}, "the algorithm tree"), ({"protocol": "LL"}, "the protocol LL ")]
)
def test_a_wrong_choice_of_nccl_s_is_named(asked, words) -> None:
    found = checked(as_log(times_on(load_topology("dgx-1-v100-16gb"), **asked), devices=range(8)), "dgx-1-v100-16gb")
    assert found.explanations[0].words.startswith(words)


def test_sums_that_are_done_in_no_switch_are_named_though_the_error_over_all_sizes_is_small() -> None:
    times = times_on(load_topology("dgx-h100"), reduction="prod", sizes=[1 << power for power in range(10, 33, 2)])
    found = checked(as_log([(size, 1.02 * t) for size, t in times]), "dgx-h100")
    assert math.sqrt(sum(math.log(row.ratio) ** 2 for row in found.rows) / len(found.rows)) < 0.2
    assert found.verdict == "slow"
    assert found.explanations[0].words.startswith("NVLS off (NCCL_NVLS_ENABLE")
    above = [(size, t * (1.4 if size < 1 << 22 else 1.02)) for size, t in times]  # for another reason
    words = [each.words for each in checked(as_log(above), "dgx-h100").explanations]
    assert any(each.startswith("NVLS off") for each in words)


def test_what_nothing_explains_is_said_so() -> None:
    times = [
        (size, t * (40.0 if index % 2 else 1.6)) for index, (size, t) in enumerate(times_on(load_topology("dgx-h100")))
    ]
    found = checked(as_log(times), "dgx-h100")
    assert (found.verdict, found.explanations) == ("slow", ())
    assert found.tried > 5
    assert any(remark.startswith("dips at ") for remark in found.remarks)


def test_gpus_of_the_log_are_those_that_are_simulated() -> None:
    topology = load_topology("dgx-1-v100-16gb")
    for gpus in ((0, 3), (0, 7)):
        times = times_on(topology, gpus=gpus)
        found = checked(as_log(times, devices=gpus), "dgx-1-v100-16gb")
        assert [row.ratio for row in found.rows] == pytest.approx([1.0] * len(SIZES), rel=2e-3)


def test_a_machine_that_cannot_have_run_it_is_refused() -> None:
    with pytest.raises(InputError, match=r"a.log: has 16 ranks on 1 host, but dgx-h100 has 8 GPUs; --nodes says"):
        checked(as_log([(1 << 20, 1e-3)], devices=range(16)), "dgx-h100")
    with pytest.raises(InputError, match=r"has 2 ranks on 1 host, but p3.2xlarge has 1 GPU; --nodes says"):
        checked(as_log([(1 << 20, 1e-3)], devices=range(2)), "p3.2xlarge")


def test_remarks_say_what_else_the_log_tells() -> None:
    times = times_on(load_topology("dgx-h100"))
    assert (
        checked(as_log(times, wrong=3), "dgx-h100").wrong
        == "at 16 KiB, 256 KiB, 4 MiB, 32 MiB, ... (6 in all) (#wrong)"
    )
    found = check_log(SESSION, read_nccl_tests(as_log(times, header=False), "a", n_ranks=8), "dgx-h100")
    assert any("names no version of NCCL; 2.30 is taken" in each for each in found.remarks)
    assert any("sets NCCL_ALGO=Tree" in each for each in checked(as_json_log(times), "dgx-h100").remarks)


def test_the_largest_sizes_are_those_where_links_are_full() -> None:
    assert large_from([1 << power for power in range(20, 31)]) == 1 << 27
    assert large_from([1 << power for power in range(20, 31, 3)]) == 1 << 23  # three at least
    assert large_from([1 << power for power in range(10, 22)]) == 1 << 20  # none below 1 MiB


def test_quantiles_weigh_each_machine_once() -> None:
    assert weighted_quantile([(1.0, 1.0), (2.0, 0.5), (3.0, 0.5)], 0.5) == 1.0
    assert weighted_quantile([(1.0, 1.0), (2.0, 0.5), (3.0, 0.5)], 0.6) == 2.0
    assert math.isnan(weighted_quantile([], 0.5))


def test_what_is_healthy_is_the_band_of_a_machine_that_nobody_measured() -> None:
    session = Session()
    exchange = session.composed(CollectiveQuestion(where=Where("dgx-h100", 2), size_bytes=1e8))
    band = healthy_range(exchange)
    assert band.fastest < 1.0 < band.slowest
    assert band.machines >= 5
    unknown = estimate(replace(exchange, facts=replace(exchange.facts, place="unknown")), evidence())
    assert unknown is not None
    assert (band.fastest, band.slowest) == pytest.approx((math.exp(unknown.low), math.exp(unknown.high)))


def test_what_is_healthy_is_that_of_the_network_and_the_size() -> None:
    def slowest(topology: str, size_bytes: float) -> float:
        question = CollectiveQuestion(where=Where(topology, 2), size_bytes=size_bytes)
        return healthy_range(SESSION.composed(question)).slowest

    assert slowest("dgx-h100", 1e9) < 2.0  # InfiniBand
    assert slowest("dgx-h100", 1e9) != slowest("p5.48xlarge", 1e9)  # EFA
    assert slowest("dgx-h100", 1e7) < slowest("p5.48xlarge", 1e7) < slowest("p5.48xlarge", 1e3)


@pytest.mark.slow
def test_half_of_the_expected_bandwidth_between_two_machines_is_slow() -> None:
    sizes = [1 << power for power in (24, 26, 28, 30, 32)]
    twice = [(size, 2.0 * t) for size, t in times_on(load_topology("dgx-h100", n_nodes=2), sizes)]
    found = checked(as_log(twice, hosts=2), "dgx-h100")
    assert found.verdict == "slow"
    assert found.explanations


# -- the command -----------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_answers_first_in_80_columns(tmp_path, capsys) -> None:
    good, bad = tmp_path / "good.log", tmp_path / "bad.log"
    topology = load_topology("dgx-h100", n_nodes=2)
    good.write_text(as_log(times_on(topology), hosts=2))
    bad.write_text(as_log(times_on(fewer_adapters(topology, range(2))), hosts=2))
    assert run("--topology", "dgx-h100", str(good)) == 0
    assert capsys.readouterr().out.startswith("2 x dgx-h100: all-reduce over 16 GPUs is healthy\n")
    assert run("--topology", "dgx-h100", str(bad)) == 3
    out = capsys.readouterr().out
    assert out.startswith("2 x dgx-h100: all-reduce over 16 GPUs is slow at 4 MiB to 1 GiB\n")
    assert re.search(r"error that each leaves:\n +0 %  2 of 8 adapters used", out)
    assert max(map(len, out.splitlines())) <= 80


def test_json_and_plot_hold_the_same(tmp_path, capsys) -> None:
    bad, plot = tmp_path / "bad.log", tmp_path / "bad.svg"
    bad.write_text(as_log(times_on(without_nvlink(load_topology("dgx-h100")))))
    page = tmp_path / "bad.html"
    assert run("--topology", "dgx-h100", str(bad), "--json", "--plot", str(plot), "--report", str(page)) == 3
    text = page.read_text(encoding="utf-8")
    assert "<th class='n'>time/expected</th>" in text
    assert text.count("PCIe in place of NVLink") >= 2, "as words, and in the figure"
    assert f"<pre>validate check {bad} --topology dgx-h100</pre>" in text
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["verdict"], document["n_ranks"]) == (1, "slow", 8)
    assert document["explanations"][0]["words"].startswith("PCIe in place of NVLink")
    assert [row["size_bytes"] for row in document["sizes"]] == SIZES
    drawing = plot.read_text()
    assert "PCIe in place of NVLink" in drawing
    assert "is slow" in drawing


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "a log of nccl-tests is needed, one"),
        (("a.log",), "--topology: the machine that ran it is needed"),
        (("a.log", "--topology", "dgx-h100"), "a.log: cannot be read: No such file or directory"),
        (("a.log", "--topology", "dgx-h100", "--plot", "x.gif"), "--plot x.gif: ends in .svg, .png or .pdf"),
    ],
)
def test_what_the_command_lacks_is_one_line(tmp_path, monkeypatch, capsys, arguments, said) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    assert said in capsys.readouterr().err


def test_a_log_of_other_gpus_than_those_of_the_topology_is_refused(tmp_path, capsys) -> None:
    log = tmp_path / "a.log"
    log.write_text(as_log(times_on(load_topology("dgx-h100"))))
    assert run("--topology", "dgx-a100-80gb", str(log), "--json") == 2
    said = capsys.readouterr()
    assert "--topology dgx-a100-80gb: a100-sxm4-80gb is another GPU than the NVIDIA H100" in said.err
    assert said.out == ""


# -- published logs --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.corpus
def test_published_logs_are_told_apart(corpus: Path) -> None:
    from tests.published_logs import judged

    found = judged([corpus / "collectives.csv", corpus.parent / "corpus-2" / "collectives.csv"])
    healthy = [verdict != "slow" for grade, _, verdict in found if grade in ("A", "B")]
    assert len(healthy) > 50
    assert sum(healthy) >= 0.88 * len(healthy)
    slow = {machine for grade, machine, verdict in found if grade == "C" and verdict == "slow"}
    assert "oci-bm.gpu4.8" in slow
