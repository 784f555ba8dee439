"""Logs of nccl-tests as launchers, older versions and hostile hands leave them, and what their settings decide."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.api.variants import applied, fewer_adapters, without_gpudirect, without_nvlink, without_peers
from simulator.collectives.nccl.cost import NcclConstants
from simulator.constants import DEFAULT
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import NCCL_TODAY, Software, Where
from simulator.topology import Topology
from simulator.topology.load import load_topology
from tests.nccl_logs import as_json_log, as_log
from validate.check.causes import causes_of
from validate.check.check import MOST_JUDGED, CheckedLog, check_log
from validate.check.pace import cliff_in, dips_in
from validate.check.report import as_document, as_text, headline
from validate.cli import main
from validate.importing.nccl_tests import read_nccl_tests

SESSION = Session()
TIMES = [(1 << 20, 1.2e-4), (1 << 30, 4.4e-3)]


def times_of(machine: str, sizes: list[int], **asked: object) -> list[tuple[int, float]]:
    question = CollectiveQuestion(where=Where(machine), size_bytes=0.0, **asked)  # type: ignore[arg-type]
    return [(size, SESSION.time_s(replace(question, size_bytes=float(size)))) for size in sizes]


def checked(text: str, topology: str, **options: object) -> CheckedLog:
    return check_log(SESSION, read_nccl_tests(text, "a.log"), topology, **options)  # type: ignore[arg-type]


# -- what launchers put before each line -----------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        " 0: ",
        "12: ",
        "2026-11-27T14:00:01.123456Z ",
        "2026-11-27 14:00:01,123 ",
        "[2026-11-27 14:00:01] ",
        "[pod/launcher-0/main] ",
        "nccl-1  | ",
        "[pod/launcher-0/main] 2026-11-27T14:00:01Z [1,0]<stdout>:",
        "node0: ",
        "[rank0]: ",
        "(worker pid=71, ip=10.0.0.1) ",
    ],
)
def test_a_log_is_read_whatever_stands_before_its_lines(prefix: str) -> None:
    text = as_log(TIMES, hosts=2)
    before = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    assert read_nccl_tests(before, "a") == read_nccl_tests(text, "a")


def test_a_size_that_fills_its_column_touches_the_prefix() -> None:
    line = (
        "137438953472   34359738368     float     sum      -1   5e+05  274.88  515.40      0   5e+05  274.88  515.40  0"
    )
    text = "\n".join(f"[1,0]<stdout>:{each}" for each in (*as_log([], hosts=2).splitlines(), line))
    assert [point.size_bytes for point in read_nccl_tests(text, "a").points] == [1 << 37]


# -- whether results were wrong --------------------------------------------------------


OLD = """\
NCCL version 2.8.4+cuda11.2
#  Rank  0 Pid 1 on n0 device  0 [0x01] A100-SXM4-40GB
#  Rank  1 Pid 2 on n0 device  1 [0x02] A100-SXM4-40GB
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
   134217728      33554432   float     sum    790.0  169.90  169.90  {error}    790.0  169.90  169.90  {error}
# Out of bounds values : {bounds}
"""


@pytest.mark.parametrize(
    ("error", "bounds", "wrong"), [("2e-07", "0 OK", False), ("2e-07", "3 FAILED", True), ("0", "0 OK", False)]
)
def test_a_largest_deviation_is_no_count_of_wrong_values(error: str, bounds: str, wrong: bool) -> None:
    found = checked(OLD.format(error=error, bounds=bounds), "dgx-a100-40gb", explains=False)
    assert bool(found.wrong) == wrong
    assert found.log.n_ranks == 2


def test_times_are_no_counts_of_wrong_values_and_no_roots() -> None:
    for time, bw in (("790", "169.90"), ("790.0", "169.90"), ("123456", "1.09")):
        half = f"    {time}  {bw}  {bw}"
        row = f"   134217728      33554432   float     sum{half}{half}\n"
        log = read_nccl_tests("# algbw\n" + row, "a", collective="all-reduce", n_ranks=2)
        (point,) = log.points
        assert (point.out_s, point.wrong) == (pytest.approx(float(time) * 1e-6), False)
    whole = "   134217728   33554432   float   sum    790  169.90  169.90  2e-07    791  169.90  169.90  2e-07\n"
    (point,) = read_nccl_tests("# algbw\n" + whole, "a", collective="all-reduce", n_ranks=2).points
    assert (point.out_s, point.in_s) == pytest.approx((790e-6, 791e-6))


# -- several runs in one file ----------------------------------------------------------


def test_several_collectives_are_refused_or_one_is_picked() -> None:
    both = as_log(TIMES) + as_log(TIMES, collective="all-gather")
    with pytest.raises(InputError, match=r"holds 2 unlike runs: all_reduce_perf over 8 ranks \(line 18\), all_gather"):
        read_nccl_tests(both, "a")
    picked = read_nccl_tests(both, "a", collective="all-gather")
    assert picked == read_nccl_tests(as_log(TIMES, collective="all-gather"), "a")
    without_names = "\n".join(line for line in both.splitlines() if "Collective" not in line)
    with pytest.raises(InputError, match="unlike runs: one without a name over 8 ranks"):
        read_nccl_tests(without_names, "a")
    with pytest.raises(InputError, match=r"over 8 ranks .* over 16 ranks"):
        read_nccl_tests(as_log(TIMES) + as_log(TIMES, hosts=2), "a")


def test_a_run_that_is_repeated_gives_the_median_of_each_size() -> None:
    thrice = "".join(as_log([(1 << 20, time_s)]) for time_s in (1e-4, 9e-4, 2e-4))
    assert read_nccl_tests(thrice, "a").points[0].out_s == pytest.approx(2e-4)


def test_rows_of_another_type_are_left_out_and_told() -> None:
    text = as_log(TIMES)
    text += text.splitlines()[-5].replace("float", "half") + "\n"
    log = read_nccl_tests(text, "a")
    assert (log.dtype, len(log.points)) == ("fp32", 2)
    assert log.remarks == ("1 row of other types or reductions than float sum left out",)


def test_a_test_that_is_not_modelled_is_named() -> None:
    with pytest.raises(InputError, match="is of gather_perf, which is not modelled; all_reduce"):
        read_nccl_tests(as_log(TIMES).replace("all_reduce_perf", "gather_perf"), "a")


# -- settings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("$ mpirun -x NCCL_DEBUG=WARN -x NCCL_ALGO=Ring -np 8 ./x", (("NCCL_ALGO", "Ring"),)),
        ("export NCCL_PROTO='Simple'; ./x", (("NCCL_PROTO", "Simple"),)),
        ('NCCL_ALGO="allreduce:tree" ./x', (("NCCL_ALGO", "allreduce:tree"),)),
        ("mpiexec -genv NCCL_ALGO Tree ./x", (("NCCL_ALGO", "Tree"),)),
        ("n0:1:1 [0] NCCL INFO NCCL_IB_HCA set to mlx5_1,mlx5_2", (("NCCL_IB_HCA", "mlx5_1,mlx5_2"),)),
        ("[1,0]<stdout>:n0:1:1 [0] NCCL INFO NCCL_CROSS_NIC set by environment to 2.", (("NCCL_CROSS_NIC", "2"),)),
        ("NCCL_ALGO=$ALGO ./x", ()),
        ("n0:1:1 [0] NCCL INFO Using network Socket", (("NCCL_NET", "Socket"),)),
        ("n0:1:1 [0] NCCL INFO Using network IB", ()),
        ("NCCL_ALGO=Ring\nNCCL_ALGO=Tree", (("NCCL_ALGO", "Tree"),)),
    ],
)
def test_settings_are_found_where_they_are_written(line: str, found: tuple[tuple[str, str], ...]) -> None:
    assert read_nccl_tests(f"{line}\n{as_log(TIMES)}", "a").settings == found


def with_transport(topology: Topology, **changes: int) -> Topology:
    return replace(topology, transport=topology.transport.model_copy(update=changes))


PLAIN = CollectiveQuestion(where=Where("dgx-h100", 2), size_bytes=1e9)


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        (("NCCL_ALGO", "Ring"), {"algorithm": "ring"}),
        (("NCCL_ALGO", "broadcast:ring;allreduce:NVLSTree"), {"algorithm": "nvls_tree"}),
        (("NCCL_PROTO", "simple"), {"protocol": "Simple"}),
        (("NCCL_NVLS_ENABLE", "0"), {"nvls": False}),
        (("NCCL_NVLS_ENABLE", "1"), {}),
    ],
)
def test_a_setting_is_part_of_the_question(setting: tuple[str, str], changed: dict[str, str]) -> None:
    machine = load_topology("dgx-h100", n_nodes=2)
    found = applied(dict([setting]), machine, PLAIN)
    assert found.question == replace(PLAIN, **changed)  # type: ignore[arg-type]
    assert (found.topology, found.known, found.unknown) == (machine, ("=".join(setting),), ())


def reaching(topology: Topology, **levels: str) -> Topology:
    return replace(topology, transport=topology.transport.model_copy(update=levels))


def test_a_level_gives_no_peers_to_gpus_that_drivers_refuse_them() -> None:
    plain = load_topology("2x-rtx4090-desktop")
    assert applied({"NCCL_P2P_LEVEL": "SYS"}, plain, PLAIN).topology is plain


@pytest.mark.parametrize(
    ("setting", "machine"),
    [
        ({"NCCL_IB_HCA": "mlx5_2,mlx5_3"}, lambda t: fewer_adapters(t, (2, 3))),
        ({"NCCL_IB_HCA": "=mlx5_2:1"}, lambda t: fewer_adapters(t, (2,))),
        ({"NCCL_IB_HCA": "^mlx5_0"}, lambda t: fewer_adapters(t, range(1, 8))),
        ({"NCCL_IB_HCA": "rdmap16s27,rdmap32s27"}, lambda t: fewer_adapters(t, range(2))),
        ({"NCCL_IB_HCA": "mlx5"}, lambda t: t),
        ({"NCCL_P2P_DISABLE": "1"}, lambda t: without_peers(without_nvlink(t))),
        ({"NCCL_P2P_DISABLE": "0"}, lambda t: t),
        ({"NCCL_NET_GDR_LEVEL": "LOC"}, without_gpudirect),
        ({"NCCL_NET_GDR_LEVEL": "PHB"}, lambda t: reaching(t, gpudirect_rdma="phb")),
        ({"NCCL_P2P_LEVEL": "SYS"}, lambda t: reaching(t, peer_to_peer="sys")),
        ({"NCCL_P2P_LEVEL": "3"}, lambda t: reaching(t, peer_to_peer="phb")),
        ({"NCCL_P2P_LEVEL": "NVL"}, without_peers),
        ({"NCCL_IB_DISABLE": "0"}, lambda t: t),
        ({"NCCL_PXN_DISABLE": "0"}, lambda t: t),
        ({"NCCL_PXN_DISABLE": "1"}, lambda t: with_transport(t, pxn=False)),
        ({"NCCL_MIN_NCHANNELS": "16"}, lambda t: with_transport(t, least_channels=16)),
        ({"NCCL_NCHANNELS_PER_NET_PEER": "4"}, lambda t: with_transport(t, peer_channels=4)),
        ({"NCCL_MAX_CTAS": "4"}, lambda t: with_transport(t, most_channels=4)),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, lambda t: t),
    ],
)
def test_a_setting_is_part_of_the_machine(setting: dict[str, str], machine: Callable[[Topology], Topology]) -> None:
    plain = load_topology("dgx-h100", n_nodes=2)
    found = applied(setting, plain, PLAIN)
    assert (found.topology, found.question, found.unknown) == (machine(plain), PLAIN, ())


@pytest.mark.parametrize(
    "setting",
    [
        ("NCCL_MAX_NCHANNELS", "0"),
        ("NCCL_MAX_NCHANNELS", "65"),
        ("NCCL_BUFFSIZE", "8388608"),
        ("NCCL_ALGO", "^Ring"),
        ("NCCL_IB_HCA", "^eth"),
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_NET", "Socket"),
        ("NCCL_NVLS_ENABLE", "x"),
    ],
)
def test_a_setting_that_is_not_modelled_is_said(setting: tuple[str, str]) -> None:
    found = applied(dict([setting]), load_topology("dgx-h100", n_nodes=2), PLAIN)
    assert (found.known, found.unknown) == ((), ("=".join(setting),))


def test_sockets_are_what_ethernet_adapters_speak_anyway() -> None:
    for machine, nodes in (("p3.16xlarge", 2), ("dgx-h100", None)):
        plain = load_topology(machine, n_nodes=nodes)
        for setting in ({"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"}):
            found = applied(setting, plain, PLAIN)
            assert (found.topology, found.unknown) == (plain, ())


def test_few_channels_move_no_more_than_their_blocks() -> None:
    """An all-gather of 1 GiB in one channel: 7/8 of it at what one block moves, which a log of it is told."""
    plain, session, size = load_topology("dgx-h100"), Session(), 1 << 30
    asked = CollectiveQuestion(where=Where("few"), size_bytes=size, collective="all-gather")
    session.know(asked.where, applied({"NCCL_MAX_NCHANNELS": "1"}, plain, asked).topology)
    block_Bps = DEFAULT(NcclConstants).recent["Simple"].channel_Bps
    assert session.time_s(asked) == pytest.approx(7 / 8 * size / block_Bps, rel=0.01)
    assert session.collective(asked).facts["channels"] == 1


def test_a_send_among_many_ranks_has_one_channel_to_a_peer() -> None:
    """NVIDIA/nccl issue 1272: sends over 25 GB/s fill the adapter again with NCCL_NCHANNELS_PER_NET_PEER=4."""
    block_Bps = DEFAULT(NcclConstants).recent["P2P"].channel_Bps
    times = {}
    for nodes, version, channels in ((4, NCCL_TODAY, None), (16, NCCL_TODAY, None), (16, (2, 19), None), (16, None, 4)):
        session, plain = Session(), load_topology("dgx-h100", n_nodes=nodes)
        software = Software(nccl=version or NCCL_TODAY)
        asked = CollectiveQuestion(where=Where("m"), size_bytes=1 << 30, collective="send-recv", software=software)
        settings = {"NCCL_NCHANNELS_PER_NET_PEER": str(channels)} if channels else {}
        session.know(asked.where, applied(settings, plain, asked).topology)
        times[nodes, version, channels] = session.time_s(asked)
    many = times.pop((16, NCCL_TODAY, None))
    assert many == pytest.approx((1 << 30) / block_Bps, rel=0.01)
    assert all(other < 0.5 * many for other in times.values())


def test_without_pxn_half_of_the_adapters_carry_rings_of_their_own_gpus_alone() -> None:
    session, half = Session(), fewer_adapters(load_topology("dgx-h100", n_nodes=2), range(4))
    ring = replace(PLAIN, where=Where("half"), algorithm="ring")
    session.know(ring.where, half)
    alone = replace(ring, where=Where("alone"))
    session.know(alone.where, applied({"NCCL_PXN_DISABLE": "1"}, half, ring).topology)
    assert session.time_s(alone) > 1.3 * session.time_s(ring)


def test_nvls_is_off_for_all_collectives() -> None:
    sizes = [1 << 28, 1 << 30]
    off = times_of("dgx-h100", sizes, nvls=False)
    assert off == times_of("dgx-h100", sizes, algorithm="ring") != times_of("dgx-h100", sizes)
    for collective in ("all-reduce", "all-gather"):
        with pytest.raises(InputError, match="NVLS is off, which nvls needs; ring and tree do without"):
            times_of("dgx-h100", sizes, collective=collective, algorithm="nvls", nvls=False)


def test_what_the_log_fixes_is_no_cause() -> None:
    machine = load_topology("dgx-h100", n_nodes=2)
    every = [cause.words.partition(" (")[0] for cause in causes_of(SESSION, applied({}, machine, PLAIN), ())]
    for fixed, gone in (
        ({"NCCL_ALGO"}, ("the algorithm", "NVLS off")),
        ({"NCCL_PROTO"}, ("the protocol",)),
        ({"NCCL_IB_HCA"}, ("4 of 8 adapters", "2 of 8 adapters", "1 of 8 adapters")),
        ({"version"}, ("NCCL 2.18",)),
    ):
        left = [cause.words.partition(" (")[0] for cause in causes_of(SESSION, applied({}, machine, PLAIN), fixed)]
        assert [words for words in every if words not in left] == [w for w in every if w.startswith(gone)]
    left = [cause.words for cause in causes_of(SESSION, applied({}, machine, PLAIN), {"NCCL_P2P_DISABLE"})]
    assert "no direct copies between GPUs (a container, ACS, a virtual machine)" in left


def test_a_ring_that_was_asked_for_is_expected() -> None:
    sizes = [1 << 22, 1 << 26, 1 << 30]
    ring = times_of("dgx-h100", sizes, algorithm="ring")
    found = checked("NCCL_ALGO=Ring ./all_reduce_perf\n" + as_log(ring), "dgx-h100")
    assert [row.ratio for row in found.rows] == pytest.approx([1.0] * 3, rel=2e-3)
    assert any("NCCL_ALGO=Ring, which is taken into account" in each for each in found.remarks)


@pytest.mark.parametrize(
    ("line", "ignored"),
    [
        ("NCCL_IB_DISABLE=1", "NCCL_IB_DISABLE=1 was"),
        ("-x NCCL_CROSS_NIC=1 -x NCCL_BUFFSIZE=8388608", "NCCL_CROSS_NIC=1, NCCL_BUFFSIZE=8388608 were"),
        ("-x NCCL_SOCKET_IFNAME=eth0 -x NCCL_IB_GID_INDEX=3 -x NCCL_ALGO=Ring", ""),
    ],
)
def test_a_verdict_without_a_setting_says_so(line: str, ignored: str) -> None:
    times = [(1 << 26, 4e-4), (1 << 28, 9e-4), (1 << 30, 3e-3)]
    found = checked(f"{line} ./all_reduce_perf\n" + as_log(times, hosts=2), "dgx-h100", explains=False)
    words = f", compared as if {ignored} not set," if ignored else ""
    assert headline(found).startswith(f"2 x dgx-h100: all-reduce over 16 GPUs{words} is ")
    assert as_document(found)["settings_ignored"] == list(found.ignored)
    assert bool(found.ignored) == bool(ignored)
    if found.ignored:
        assert any("which is not modelled" in each for each in found.remarks)


def test_interfaces_matter_where_exchanges_go_over_sockets() -> None:
    setting = {"NCCL_SOCKET_IFNAME": "eth0"}
    for machine, nodes, ignored in (("p3.16xlarge", 2, True), ("p3.16xlarge", None, False), ("dgx-h100", 2, False)):
        assert bool(applied(setting, load_topology(machine, n_nodes=nodes), PLAIN).ignored) == ignored


# -- which GPUs ran --------------------------------------------------------------------


def test_the_gpus_that_ran_are_those_of_the_log_the_environment_or_the_user() -> None:
    sizes, cube = [1 << 26, 1 << 28], "dgx-1-v100-16gb"
    expected = [time_s for _, time_s in times_of(cube, sizes, gpus=(4, 6))]
    log = as_log(list(zip(sizes, expected, strict=True)), devices=(0, 1), gpu="Tesla V100-SXM2-16GB")
    for text, gpus in ((log, (4, 6)), ("CUDA_VISIBLE_DEVICES=4,6 ./all_reduce_perf\n" + log, None)):
        found = checked(text, cube, gpus=gpus, explains=False)
        assert found.question.gpus == (4, 6)
        assert [row.expected_s for row in found.rows] == pytest.approx(expected, rel=1e-9)


def test_each_host_has_its_own_gpus() -> None:
    text = as_log(TIMES, hosts=2, devices=(0, 1)).replace("node1 device  0", "node1 device  6")
    log = read_nccl_tests(text, "a")
    assert log.devices == ((0, 1), (6, 1))
    assert check_log(SESSION, log, "dgx-1-v100-16gb", explains=False).question.gpus == (0, 1, 9, 14)


def test_processes_that_see_one_gpu_each_tell_no_index() -> None:
    text = as_log(TIMES, devices=range(2)).replace("device  1", "device  0")
    assert read_nccl_tests(text, "a").devices == ()


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ("0,1,6,7", "lists 8 ranks, where --gpus says 4"),
        ("0-7,40", "lists 8 ranks, where --gpus says 9"),
        ("1-8", "--gpus: dgx-h100 has 8 GPUs, 0 to 7; --nodes says how many machines"),
        ("3-1", "the smaller number comes first"),
        ("0,x", "write how many (4), a range (0-4), a list (0,2,5)"),
        ("9999999999,1", "has 4096 GPUs"),
    ],
)
def test_gpus_that_cannot_have_run_it_are_one_line(tmp_path, capsys, gpus: str, said: str) -> None:
    path = tmp_path / "a.log"
    path.write_text(as_log(TIMES))
    with pytest.raises(SystemExit) as stopped:
        main(["check", "--topology", "dgx-h100", "--gpus", gpus, str(path)])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


# -- the shape of bandwidth ------------------------------------------------------------


class Row:
    def __init__(self, size_bytes: int, measured_s: float, expected_s: float) -> None:
        self.size_bytes, self.measured_s, self.expected_s = size_bytes, measured_s, expected_s
        self.ratio = measured_s / expected_s


def rows(rates: list[float]) -> list[Row]:
    return [Row(1 << (20 + i), (1 << (20 + i)) / rate, (1 << (20 + i)) / 100.0) for i, rate in enumerate(rates)]


def test_where_bandwidth_falls_and_stays_low_is_a_cliff() -> None:
    cliff = cliff_in(rows([10, 20, 30, 5, 5.2, 4.1]))
    assert cliff is not None
    assert [row.size_bytes for row in cliff] == [1 << 22, 1 << 23]
    assert cliff_in(rows([10, 20, 30, 5, 5.2, 30])) is None
    assert cliff_in(rows([10, 20, 30, 28, 27, 20])) is None


def test_a_dip_may_hold_a_few_sizes() -> None:
    assert list(dips_in(rows([100, 40, 45, 100, 100]))) == [1 << 21, 1 << 22]
    assert list(dips_in(rows([100, 40, 100, 50, 100]))) == [1 << 21, 1 << 23]
    assert list(dips_in(rows([100, 40, 45, 40, 35, 30]))) == []


def test_a_cliff_is_named_and_nothing_that_leaves_more_than_the_band_is_a_cause() -> None:
    sizes = [1 << power for power in range(20, 34)]
    two = [(size, time_s) for size, time_s in times_of("dgx-h100", sizes)]
    falls = [(size, time_s * (3.0 if size < 1 << 26 else 40.0)) for size, time_s in two]
    found = checked(as_log(falls), "dgx-h100")
    assert (found.verdict, found.explanations) == ("slow", ())
    assert found.cliff is not None
    assert found.cliff[1].size_bytes == 1 << 26
    text = as_text(found)
    assert " at 32 MiB to " in text
    assert f"none of the {found.tried} causes tried" in text
    assert as_document(found)["cliff"]["after_bytes"] == 1 << 26


# -- hostile logs ----------------------------------------------------------------------


def changed(**entries: object) -> str:
    return json.dumps({**json.loads(as_json_log(TIMES)), **entries})


@pytest.mark.parametrize("value", [None, 3, "x", {"a": 1}, [None, 3, {"a": []}]])
@pytest.mark.parametrize("key", ["args", "env", "config", "nccl_version"])
def test_keys_of_any_type_are_read_or_passed_over(key: str, value: object) -> None:
    assert len(read_nccl_tests(changed(**{key: value}), "a", collective="all-reduce", n_ranks=8).points) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            changed(results=[{"size": 10**400, "type": "float", "out_of_place": {"time": 1.0}}]),
            "a: 1 row not read: results[0] (size 1000",
        ),
        (changed(results=[{"size": -4, "out_of_place": {"time": 1.0}}]), "results[0] (size -4)"),
        (
            changed(results=[{"size": 4, "type": "float", "out_of_place": {"time": 1e-300}}]),
            "results[0] (time '1e-300')",
        ),
        ('{"results": ' + "1" * 5000 + "}", "is not valid JSON"),
        ('{"a":' + "[" * 100_000, "is not valid JSON: it is nested too deep"),
        ("#  Rank " + "9" * 5000 + " Pid 1 on n0 device 0 [0x1] X\n", "a:1:9: there is no rank 9999"),
        ("#  Rank 0 Pid 1 on n0 device " + "9" * 5000 + " [0x1] X\n", "a:1:30: there is no device 9999"),
        ("# algbw\n 1048576 262144 float sum -1 1e-300 1 1 0\n", "a: 1 row not read: line 2 (time '1e-300')"),
        ("# algbw\n 1048576 262144 float sum -1 9e99 1 1 0\n", "a: 1 row not read: line 2 (time '9e99')"),
    ],
)
def test_impossible_logs_are_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_nccl_tests(text, "a", collective="all-reduce", n_ranks=8)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 200


def test_long_lines_are_read_in_linear_time() -> None:
    lines = ("1 1 float" + " " * 10**6 + "x", "1" * 10**6, "# Rank " * 10**5, "NCCL_A" * 10**5, "]>" * 10**5 + " 1 1 x")
    text = "\n".join((*lines, "#  Rank 0 Pid 1 on " + " " * 10**6, as_log(TIMES)))
    assert len(read_nccl_tests(text, "a").points) == 2


def test_of_many_sizes_some_are_compared() -> None:
    many = [((1 << 20) + (i << 10), 1e-4) for i in range(3000)]
    found = checked(as_log(many), "dgx-h100", explains=False)
    assert MOST_JUDGED / 2 < len(found.rows) <= MOST_JUDGED
    assert found.rows[-1].size_bytes == many[-1][0]
    assert f"{len(found.rows)} of 3,000 sizes are compared" in found.remarks


@pytest.mark.parametrize(("hosts", "nodes"), [(1, 2), (2, 1), (2, 4)])
def test_nodes_other_than_the_log_lists_are_refused(hosts: int, nodes: int) -> None:
    text = as_log([(1 << 30, 1.0)], hosts=hosts)
    told = f"a.log: lists {8 * hosts} ranks on {hosts} hosts?, where --nodes says {nodes}"
    with pytest.raises(InputError, match=told):
        checked(text, "dgx-h100", nodes=nodes)


def test_more_nodes_than_ranks_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="has 8 ranks, which are on fewer than the 4097 of --nodes"):
        checked(as_log(TIMES), "dgx-h100", nodes=4097)
    many = as_log([(1 << 30, 1.0)], hosts=1024)
    with pytest.raises(InputError, match="has 8,192 ranks; at most 4,096 are checked"):
        checked(many, "dgx-h100")


def test_wrong_results_come_first_and_are_no_success(tmp_path, capsys) -> None:
    """A log of good times with wrong sums passed as healthy."""
    log = tmp_path / "wrong.log"
    text = as_log(times_of("dgx-h100", [1 << 28, 1 << 30]))
    assert "# Out of bounds values : 0 OK" in text
    for bounds, status in (("0 OK", 0), ("7 FAILED", 3)):
        log.write_text(text.replace("values : 0 OK", f"values : {bounds}"), encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            main(["check", "--topology", "dgx-h100", str(log)])
        assert ended.value.code == status
        out = capsys.readouterr().out
        assert out.startswith("dgx-h100: all-reduce over 8 GPUs gives wrong results, 7 out of bounds: look for") == (
            status == 3
        )


def test_sends_and_receives_have_no_algorithm_to_set() -> None:
    machine, asked = load_topology("dgx-h100", n_nodes=2), replace(PLAIN, collective="all-to-all")
    found = applied({"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"}, machine, asked)
    assert (found.question, found.known, found.unknown) == (asked, ("NCCL_ALGO=Ring", "NCCL_NVLS_ENABLE=0"), ())
    assert not any(
        "algorithm" in cause.words or "NVLS off" in cause.words
        for cause in causes_of(SESSION, applied({}, machine, asked), ())
    )
