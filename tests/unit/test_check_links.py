"""Tests of links beside a log of a collective, OSU's collectives, what NCCL reports, and what settings change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.api.variants import ADAPTERS, SLOTS, applied, with_far_adapters, with_sockets
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.where import Where
from simulator.records import own_data
from simulator.topology.load import load_topology
from simulator.topology.parts import NicPart
from tests.nccl_logs import as_log
from validate.check.causes import causes_of
from validate.check.check import CheckedLog, check_log
from validate.check.pace import checked_links, sound
from validate.check.report import as_text
from validate.cli import main
from validate.importing.nccl_table import shown_in
from validate.importing.nccl_tests import read_nccl_tests
from validate.importing.other_tests import is_link_test, is_osu_tests, read_link_tests, read_osu_tests

SESSION = Session()
SIZES = [1 << power for power in (20, 22, 24, 26, 28, 30)]
PERFTEST = """\
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_{number}
 #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]
 65536      100000         {rate}             {rate}               0.374
 1048576    50000          {rate}             {rate}               0.02
"""
NVBANDWIDTH = """\
Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0     55.63     55.64     27.53

SUM host_to_device_memcpy_ce 138.80

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    385.63
 1    386.12       N/A

Running device_to_device_memcpy_write_sm.
 0       N/A    300.00
"""
OSU = """\
$ mpirun -n 16 -N 8 osu_xccl_{name} -d cuda D D

# OSU {library} {title} Latency Test v7.5
# Size       Avg Latency(us)
1048576             100.50
1073741824          4500.18
"""


def times_of(machine: str, nodes: int | None = None, **asked: object) -> list[tuple[int, float]]:
    question = CollectiveQuestion(where=Where(machine, nodes), size_bytes=0.0, **asked)  # type: ignore[arg-type]
    return [(size, SESSION.time_s(replace(question, size_bytes=float(size)))) for size in SIZES]


def checked(text: str, topology: str, **options: object) -> CheckedLog:
    return check_log(SESSION, read_nccl_tests(text, "a.log"), topology, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("unit", "scale"), [("Gb", 1.25e8), ("MB", float(1 << 20)), ("MiB", float(1 << 20))])
def test_perftest_is_read_at_its_largest_message(unit: str, scale: float) -> None:
    text = PERFTEST.format(number=3, unit=unit, rate=196.98)
    (figure,) = read_link_tests(text, "a")
    assert (figure.kind, figure.src, figure.size_bytes) == ("adapter", 3, 1 << 20)
    assert figure.measured_Bps == pytest.approx(196.98 * scale)


def test_nvbandwidth_is_read_by_direction() -> None:
    found = [(figure.kind, figure.src, figure.dst, figure.measured_Bps) for figure in read_link_tests(NVBANDWIDTH, "a")]
    assert found == [
        ("h2d", 0, 0, pytest.approx(55.63e9)),
        ("h2d", 1, 1, pytest.approx(55.64e9)),
        ("h2d", 2, 2, pytest.approx(27.53e9)),
        ("p2p", 1, 0, pytest.approx(385.63e9)),  # GPU 0 reads from GPU 1
        ("p2p", 0, 1, pytest.approx(386.12e9)),
    ]


def test_slow_links_are_those_behind_the_machine_s() -> None:
    figures = read_link_tests(PERFTEST.format(number=3, unit="Gb", rate=196.98) + NVBANDWIDTH, "a")
    found = {link.words: link.is_slow for link in checked_links(SESSION, Where("dgx-h100"), figures)}
    assert [words for words, slow in found.items() if slow] == ["adapter 3", "host to GPU 2"]


def test_adapters_that_were_measured_and_are_sound_are_no_cause() -> None:
    every = [PERFTEST.format(number=number, unit="Gb", rate=390.0) for number in range(8)]
    links = checked_links(SESSION, Where("dgx-h100"), read_link_tests("".join(every), "a"))
    assert sound(SESSION, Where("dgx-h100"), links) == {ADAPTERS}
    assert not sound(SESSION, Where("dgx-h100"), links[1:])
    machine = load_topology("dgx-h100", n_nodes=2)
    question = CollectiveQuestion(where=Where("dgx-h100", 2), size_bytes=1e9)
    left = [each.words for each in causes_of(SESSION, applied({}, machine, question), {ADAPTERS})]
    assert not any(words.startswith("adapters at") for words in left)


def test_link_tests_alone_are_judged_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ib.txt"
    for rate, status in ((390.0, 0), (190.0, 3)):
        file.write_text(PERFTEST.format(number=0, unit="Gb", rate=rate), encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            main(["check", "--topology", "dgx-h100", "--json", str(file)])
        assert ended.value.code == status
        (link,) = json.loads(capsys.readouterr().out)["links"]
        assert link["is_slow"] == bool(status)


def test_a_log_and_its_links_are_read_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, link = tmp_path / "a.log", tmp_path / "ib.txt"
    log.write_text(as_log(times_of("dgx-h100", 2), hosts=2), encoding="utf-8")
    link.write_text(PERFTEST.format(number=0, unit="Gb", rate=190.0), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["check", "--topology", "dgx-h100", "--quiet", str(link), str(log)])
    out = capsys.readouterr().out
    assert (ended.value.code, "is healthy" in out) == (3, True)
    assert "adapter 0: 23.8 GB/s, where 47.9 is expected" in out


@pytest.mark.parametrize(
    ("title", "collective", "times"),
    [
        ("Allreduce", "all-reduce", 1),
        ("Allgather", "all-gather", 16),
        ("Reduce_scatter", "reduce-scatter", 1),
        ("Broadcast", "broadcast", 1),
        ("Reduce", "reduce", 1),
        ("All-to-All Personalized Exchange", "all-to-all", 16),
    ],
)
def test_osu_s_sizes_are_those_of_nccl_tests(title: str, collective: str, times: int) -> None:
    text = OSU.format(name="x", library="NCCL-CUDA", title=title)
    assert is_osu_tests(text)
    log = read_osu_tests(text, "a")
    assert (log.collective, log.n_ranks, log.remarks) == (collective, 16, ())
    assert [(point.size_bytes, point.out_s) for point in log.points] == [
        (times << 20, pytest.approx(100.5e-6)),
        (times << 30, pytest.approx(4500.18e-6)),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OSU.format(name="x", library="MPI", title="Allreduce"), "in the hosts' memory; -d cuda D D"),
        (
            OSU.format(name="x", library="MPI-CUDA", title="Scatter"),
            "OSU's Scatter Latency Test, which is not modelled",
        ),
        (OSU.format(name="x", library="MPI-CUDA", title="Allreduce").partition("\n")[2], "--gpus 8"),
        (2 * OSU.format(name="x", library="MPI-CUDA", title="Allreduce"), "holds 2 runs"),
    ],
)
def test_what_osu_s_tests_lack_is_told(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        read_osu_tests(text, "a")


def test_osu_over_mpi_is_compared_and_said() -> None:
    log = read_osu_tests(OSU.format(name="x", library="MPI-ROCM", title="Allreduce"), "a")
    assert any("MPI's own" in remark for remark in log.remarks)


INFO = "n0:1:1 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["Using network IB"], {"RDMA"}),
        (["Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA"], {"GDRDMA"}),
        (["Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0"], {"no GDRDMA"}),
        (["Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "Channel 00 : 2[2] -> 3[3] via SHM/direct/direct"], {"P2P"}),
        (["Channel 00 : 2[2] -> 3[3] via SHM/direct/direct"], {"no P2P"}),
        (["NVLS multicast support is not available on dev 0"], {"no NVLS"}),
        (["NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)"], {"NVLS"}),
        (["Using network Socket", "Channel 00 : 8[0] -> 0[0] via NET/Socket/0"], set()),
    ],
)
def test_what_nccl_reports_of_its_transports_is_read(lines: list[str], shown: set[str]) -> None:
    assert shown_in("\n".join(INFO + line for line in lines)) == shown


def test_what_nccl_reports_decides_which_causes_are_tried() -> None:
    machine = load_topology("dgx-h100", n_nodes=2)
    question = CollectiveQuestion(where=Where("dgx-h100", 2), size_bytes=1e9)
    asked = applied({}, machine, question)
    words = [each.words for each in causes_of(SESSION, asked, {"GDRDMA", "RDMA", "NVLS", "P2P"})]
    assert not any(each.startswith(("no GPUDirect", "sockets", "NVLS off", "no direct")) for each in words)
    words = [each.words for each in causes_of(SESSION, asked, {"no GDRDMA"})]
    assert any(each.startswith("no GPUDirect") and each.endswith("as NCCL reports") for each in words)


def test_sockets_reach_host_memory_through_the_kernel() -> None:
    found = with_sockets(load_topology("dgx-h100", n_nodes=2))
    nics = [device.part for device in found.devices if isinstance(device.part, NicPart)]
    assert {(nic.network, nic.gpudirect) for nic in nics} == {("ethernet", False)}


def test_a_far_adapter_is_at_the_other_socket() -> None:
    far = with_far_adapters(load_topology("dgx-h100", n_nodes=2))
    assert far is not None
    ends = {wire.a: wire.b for wire in far.wires if wire.part.of == "pcie" and wire.a.endswith(("ib0", "ib7"))}
    assert [end.rpartition(".")[2] for end in ends.values()] == ["cpu1", "cpu0"]
    assert with_far_adapters(load_topology("dgx-spark", n_nodes=2)) is None


def test_a_setting_of_the_log_is_told_with_what_it_costs() -> None:
    times = times_of("dgx-h100", algorithm="ring")
    found = checked("NCCL_ALGO=Ring ./all_reduce_perf\n" + as_log(times), "dgx-h100")
    (effect,) = [each for each in found.effects if each.is_set]
    free_s = SESSION.time_s(CollectiveQuestion(where=Where("dgx-h100"), size_bytes=float(SIZES[-1])))
    assert (effect.setting, effect.time_s, effect.other_s) == (
        "NCCL_ALGO=Ring",
        pytest.approx(times[-1][1]),
        pytest.approx(free_s),
    )
    text = as_text(found)
    assert "with NCCL_ALGO=Ring as set, " in text
    assert "is normal at 1 GiB; without it" in text
    assert not [each for each in checked(as_log(times_of("dgx-h100")), "dgx-h100").effects if each.is_set]


def test_copies_across_sockets_are_advised_where_they_gain() -> None:
    times = times_of("8x-a100-pcie")
    for log, advised in ((as_log(times), True), ("NCCL_P2P_LEVEL=PHB ./all_reduce_perf\n" + as_log(times), False)):
        effects = {each.setting: each for each in checked(log, "8x-a100-pcie").effects if not each.is_set}
        assert ("NCCL_P2P_LEVEL=SYS" in effects) == advised
    wide = load_topology("8x-a100-pcie")
    wide = replace(wide, transport=wide.transport.model_copy(update={"peer_to_peer": "sys"}))
    SESSION.know(Where("wide"), wide)
    free_s = SESSION.time_s(CollectiveQuestion(where=Where("wide"), size_bytes=float(SIZES[-1])))
    (effect,) = [
        each
        for each in checked(as_log(times), "8x-a100-pcie").effects
        if each.setting == "NCCL_P2P_LEVEL=SYS" and each.size_bytes == SIZES[-1]
    ]
    assert effect.other_s == pytest.approx(free_s)
    assert effect.gain_low > 1.0
    names = {each.setting for each in checked(as_log(times_of("dgx-h100")), "dgx-h100").effects}
    assert not [name for name in names if "LEVEL" in name]  # all copies go over NVLink, and nothing leaves the machine


def test_times_that_contradict_each_other_are_told() -> None:
    times = times_of("dgx-h100")
    runs = as_log(times) + as_log([(size, 2.0 * time_s) for size, time_s in times])
    assert any(each.startswith("equal runs differ, 2.0 times at") for each in checked(runs, "dgx-h100").uneven)
    assert checked(as_log(times), "dgx-h100").uneven == ()


def test_large_sizes_far_behind_the_others_are_slow_though_each_is_within_its_band() -> None:
    times = times_of("dgx-h100", 2)
    assert checked(as_log(times, hosts=2), "dgx-h100").verdict == "healthy"
    bent = [(size, time_s * (1.75 if size > 1 << 25 else 0.8)) for size, time_s in times]
    found = checked(as_log(bent, hosts=2), "dgx-h100", explains=False)
    assert all(row.mark != "slow" for row in found.rows)
    assert found.verdict == "slow"


@pytest.mark.slow
def test_a_cliff_is_slow_and_named() -> None:
    times = [(size, time_s * (6.0 if size > 1 << 25 else 1.0)) for size, time_s in times_of("dgx-h100", 2)]
    found = checked(as_log(times, hosts=2), "dgx-h100")
    assert found.verdict == "slow"
    assert found.explanations[0].words.startswith("a cliff over a size")
    assert "the others fit clearly worse" in as_text(found) or len(found.explanations) == 1


def test_a_time_that_every_exchange_takes_longer_is_named_as_the_hosts() -> None:
    sizes = [1 << power for power in range(10, 21, 2)]
    question = CollectiveQuestion(where=Where("dgx-h100"), size_bytes=0.0)
    times = [(size, 60e-6 + SESSION.time_s(replace(question, size_bytes=float(size)))) for size in sizes]
    found = checked(as_log(times), "dgx-h100")
    assert found.verdict == "slow"
    assert found.explanations[0].words.startswith("each exchange 60 us longer, however large (processes on the wrong")


def test_degrees_of_one_mechanism_are_one_explanation() -> None:
    times = [(size, time_s * 2.5) for size, time_s in times_of("dgx-h100", 2)]
    words = [each.words.partition(" (")[0] for each in checked(as_log(times, hosts=2), "dgx-h100").explanations]
    assert sum(each.endswith("adapters used") for each in words) <= 1
    assert sum(each.startswith("one GPU's link at") for each in words) <= 1


def test_what_is_no_link_test_is_not_taken_for_one() -> None:
    assert not is_link_test(as_log([(1 << 20, 1e-4)]))
    with pytest.raises(InputError, match="holds no bandwidth of a single link"):
        read_link_tests("Running device_local_copy.\nmemcpy local GPU(column) bandwidth (GB/s)\n 0  1300.0\n", "a")


# -- logs of machines that their owners' threads found faulty --------------------------

_REPORTED = Path(__file__).resolve().parents[3] / "shared" / "repro-3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log", "topology", "verdict", "told"),
    [
        ("nccl1453.log", "nccl1453.yaml", "slow", "a cliff over a size (switch buffers, PFC"),
        ("nccl2409.log", "dgx-h100", "slow", "times alone do not tell these apart"),
        ("tests106-slow.log", "dgx-a100-x4-hdr", "slow", "no GPUDirect RDMA"),
        ("tests380-vm.log", "h100-4x400.yaml", "slow", "2 of 4 adapters used"),
        ("azure83-cmd.log", "azure83.yaml", "healthy", "with NCCL_ALGO=Ring as set, 1.9"),
        ("exacthalf.log", "dgx-h100", "slow", "possible explanations"),
        ("prefix-mpi.log", "dgx-h100", "healthy", "is healthy"),
        ("prefix-slurm.log", "dgx-h100", "healthy", "is healthy"),
    ],
)
def test_reported_logs_are_judged_as_their_threads_found(log: str, topology: str, verdict: str, told: str) -> None:
    if not (_REPORTED / log).is_file():
        pytest.skip(f"no {_REPORTED / log}")
    machine = str(_REPORTED / topology) if topology.endswith(".yaml") else topology
    found = checked((_REPORTED / log).read_text(encoding="utf-8"), machine)
    assert found.verdict == verdict
    assert told in " ".join(as_text(found).split())


def test_what_was_measured_decides_by_the_names_that_sound_gives() -> None:
    told = own_data("simulator.api", "faulty.yaml").values()
    assert {each for fault in told for each in fault.get("decided_by", ()) if "measured" in each} == {ADAPTERS, SLOTS}
