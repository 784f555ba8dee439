"""Tables of copies: closed forms on a machine of round figures, the bytes that rates count, unmodelled rows."""

import json

import pytest

from simulator.api import Session
from simulator.constants import DEFAULT
from simulator.questions.calibration import Calibration
from simulator.questions.single import CopyQuestion
from tests.validate_commands import score_command
from validate.kinds import COPIES
from validate.kinds.kind import RowQuestion
from validate.tables.cells import NotScored
from validate.tables.names import MachineNames, RowNames

MACHINE = """
schema_version: 1
name: round figures
parts:
  card: {kind: gpu, vendor: nvidia, architecture: Ampere GA100, sm_count: 100, boost_clock: 1 GHz,
         memory_size: 40 GiB, memory_bandwidth: 1000 GB/s, l2_size: 4 MiB}
  host: {kind: cpu, core_count: 8, clock: 2 GHz, flop_per_cycle: {fp32: 32}, memory_bandwidth: 100 GB/s,
         core_bandwidth: 12 GB/s}
devices:
  gpu[0-3]: {part: card}
  cpu[0-1]: {part: host}
links:
  - {between: ["gpu[0-3]", "cpu[0,0,1,1]"], kind: pcie, bandwidth: 20 GB/s, efficiency: 0.5, latency: 1 us}
  - {between: [cpu0, cpu1], kind: socket, bandwidth: 8 GB/s, efficiency: 0.25}
  - {between: [gpu0, gpu2], kind: nvlink, bandwidth: 50 GB/s, latency: 1 us}
"""
MIB = 1 << 20
COPYING = DEFAULT["copying"]
ENGINE_S = COPYING.engine_s + COPYING.fetched_s  # of an engine that does not write to the host
STARTS_S = {"h2d": ENGINE_S, "d2h": COPYING.engine_s}


@pytest.fixture
def names(tmp_path) -> RowNames:
    file = tmp_path / "round.yaml"
    file.write_text(MACHINE)
    return RowNames(machines=MachineNames(str(file)))


def asked(names: RowNames, **cells) -> RowQuestion:
    row = {"kind": "h2d", "bytes": str(16 * MIB), "pinned": "1", **cells}
    return COPIES.read(lambda column: row.get(column, ""), names)


def query(names: RowNames, **cells) -> CopyQuestion:
    found = asked(names, **cells).question
    assert isinstance(found, CopyQuestion)
    return found


def seconds(names: RowNames, **cells) -> float:
    return asked(names, **cells).time_s(names.session)


def data_sheet_s(names: RowNames, **cells) -> float:
    return asked(names, **cells).bound_s(names.session)


def measured_s(names: RowNames, **cells) -> float:
    row = {"kind": "h2d", "bytes": str(16 * MIB), **cells}
    return COPIES.measured_s(lambda column: row.get(column, ""), names)


def counted_bytes(names: RowNames, **cells) -> float:
    """Return the bytes that the rate of a row counts."""
    return measured_s(names, gbps="1", **cells) * 1e9


@pytest.mark.parametrize("kind", ["h2d", "d2h"])
def test_pinned_memory_takes_the_link_its_latency_and_the_engine(names, kind) -> None:
    assert seconds(names, kind=kind) == pytest.approx(STARTS_S[kind] + 1e-6 + 16 * MIB / 10e9)
    assert seconds(names, kind=kind, bytes="4") == pytest.approx(STARTS_S[kind] + 1e-6, rel=1e-3)


@pytest.mark.parametrize("kind", ["h2d", "d2h"])
@pytest.mark.parametrize("size", [COPYING.piece_bytes / 2, 16 * MIB])
def test_pageable_memory_is_copied_by_a_thread_of_the_host_meanwhile(names, kind, size) -> None:
    thread_s = size / (12e9 / 2)  # read and written
    piece_s = min(size, COPYING.piece_bytes) / 10e9  # the one that the engine copies while the thread has none
    expected_s = COPYING.waited_s + thread_s + STARTS_S[kind] + 1e-6 + piece_s
    assert seconds(names, kind=kind, pinned="0", bytes=str(int(size))) == pytest.approx(expected_s)


def test_with_intels_cpus_the_drivers_buffer_stays_in_the_cache(tmp_path) -> None:
    caches = "caches: {l3: {size: 30 MiB, shared_by_cores: 8, latency: 20 ns, bytes_per_cycle: 3}}"
    seconds_of = {}
    for vendor in ("intel", "amd"):
        file = tmp_path / f"{vendor}.yaml"
        file.write_text(
            MACHINE.replace("core_bandwidth: 12 GB/s", f"core_bandwidth: 3 GB/s, vendor: {vendor}, {caches}")
        )
        seconds_of[vendor] = seconds(RowNames(machines=MachineNames(str(file))), kind="d2h", pinned="0")
    more_s = 16 * MIB * (1 / 3e9 - 1 / (3 * 2e9))  # from memory, not from a cache of 3 B a cycle of 2 GHz
    assert seconds_of["amd"] - seconds_of["intel"] == pytest.approx(more_s, rel=0.01)


def test_both_ways_at_once_each_get_less_of_a_link_of_two_directions(names) -> None:
    joined_s = 2 * COPYING.joined_s
    slower_s = 16 * MIB / 10e9 * (1 / COPYING.duplex_share - 1)
    assert seconds(names, kind="bidir") == pytest.approx(seconds(names) + joined_s + slower_s)
    assert counted_bytes(names, kind="bidir") == 2 * counted_bytes(names) == pytest.approx(32 * MIB)


def test_an_answer_says_what_both_ways_cost(names) -> None:
    why = names.session.answer(query(names, kind="bidir")).why
    assert any("each way gets 93% of it" in line and "5 us" in line for line in why)
    assert not any("both ways" in line for line in names.session.answer(query(names)).why)


def test_both_ways_at_once_share_a_link_of_one(tmp_path) -> None:
    file = tmp_path / "half.yaml"
    file.write_text(MACHINE.replace("efficiency: 0.5, latency", "efficiency: 0.5, duplex: half, latency"))
    halves = RowNames(machines=MachineNames(str(file)))
    one_s, both_s = seconds(halves), seconds(halves, kind="bidir")
    more_s = 16 * MIB / 10e9 + 2 * COPYING.joined_s
    assert more_s - COPYING.fetched_s < both_s - one_s < more_s  # the way to the host begins first


def test_between_gpus_by_their_own_links(names) -> None:
    time_s = seconds(names, kind="p2p", src="cuda:0", dst="cuda:2")
    assert time_s == pytest.approx(ENGINE_S + 1e-6 + 16 * MIB / 50e9)
    assert seconds(names, kind="p2p_bidir", src="0", dst="2") == pytest.approx(time_s + 2 * COPYING.joined_s)


def test_through_host_memory_an_engine_begins_again_and_again(names) -> None:
    per_byte = 1 / 10e9 + ENGINE_S / COPYING.staged_piece_bytes
    staged_s = seconds(names, kind="p2p", src="cuda:0", dst="cuda:1")
    assert staged_s == pytest.approx(2 * ENGINE_S + 2e-6 + 16 * MIB * per_byte)
    # Between sockets both buffers are in memory; staging may also be forced where there are better paths.
    assert seconds(names, kind="p2p", src="0", dst="3") == pytest.approx(staged_s)
    forced_s = seconds(names, kind="p2p", src="0", dst="2", note="P2P disabled or unavailable (host staged)")
    assert forced_s == pytest.approx(staged_s)


def test_within_a_gpu_bytes_are_read_and_written(names) -> None:
    size = 1 << 30
    time_s = seconds(names, kind="d2d", bytes=str(size))
    assert time_s == pytest.approx(2 * size / 1000e9, rel=0.1)
    assert data_sheet_s(names, kind="d2d", bytes=str(size)) == pytest.approx(2 * size / 1000e9)
    assert counted_bytes(names, kind="d2d") == pytest.approx(16 * MIB)
    assert counted_bytes(names, kind="d2d", software="p2pBandwidthLatencyTest") == pytest.approx(32 * MIB)


def test_within_the_host_by_so_many_threads(names) -> None:
    size = 1 << 30
    one_s, all_s = (seconds(names, kind="h2h", bytes=str(size), note=n) for n in ("1 thread", "all threads"))
    assert one_s == pytest.approx(3 * size / 12e9, rel=0.01)  # read, fetched before it is written, written
    assert all_s < one_s / 8
    assert query(names, kind="h2h", note="2 threads").threads == 2


def test_a_calibration_of_the_memory_counts_within_a_device(tmp_path) -> None:
    file = tmp_path / "round.yaml"
    file.write_text(MACHINE)
    halves = {"card": Calibration(bandwidth=0.5), "host": Calibration(bandwidth=0.5)}
    book = MachineNames(str(file))
    plain, slow = RowNames(machines=book), RowNames(machines=book, session=Session(halves))
    for kind in ("d2d", "h2h"):
        cells = {"kind": kind, "bytes": str(1 << 30)}
        assert seconds(slow, **cells) == pytest.approx(2 * seconds(plain, **cells), rel=0.01)
    assert seconds(slow) == seconds(plain)  # the link's rate is not the memory's


def test_the_data_sheet_knows_no_efficiency(names) -> None:
    assert data_sheet_s(names) == pytest.approx(16 * MIB / 20e9)


def test_without_a_size_only_the_rate_counts(names) -> None:
    assert seconds(names, bytes="") == pytest.approx(measured_s(names, bytes="", gbps="10"), rel=1e-3)
    with pytest.raises(NotScored, match="a latency, and no size"):
        measured_s(names, bytes="", latency_s="1e-5")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"kind": "teleport"}, "no model of copies of kind teleport"),
        ({"kind": ""}, "no model of copies of kind none"),
        ({"kind": "p2p", "src": "cuda:0"}, "p2p needs two GPUs"),
        ({"kind": "p2p", "src": "cuda:x", "dst": "cuda:1"}, "src 'cuda:x' is neither host nor a GPU such as cuda:0"),
        ({"kind": "p2p", "src": "1", "dst": "1"}, "src and dst are both GPU 1; name another one"),
        ({"src": "host", "dst": "cuda:9"}, "round figures has 4 GPUs; there is no GPU 9"),
        ({"kind": "d2h", "engine": "sm"}, "a kernel that writes to host memory"),
        ({"kind": "overlap_h2d", "note": "copy and sums"}, "work beside a copy, and how much of it is not said"),
        ({"note": "gpu0_to_gpu_all_write_by_sm", "kind": "p2p"}, "copies between one GPU and all others at once"),
        ({"bytes": "1e16"}, "bytes is more than 1e"),
        ({"bytes": "-1"}, "bytes not positive"),
    ],
)
def test_what_is_not_modelled(names, cells, reason) -> None:
    with pytest.raises(NotScored, match=reason.replace("(", r"\(")):
        seconds(names, **cells)


def test_names_of_published_rows_tell_the_ends(names) -> None:
    one = query(names, kind="p2p", note="gpu1_to_gpu0_read_by_dma")
    assert (one.kind, one.src, one.dst) == ("p2p", 1, 0)
    both = query(names, kind="bidir", note="gpu0_and_gpu1_write_by_dma")
    assert (both.kind, both.src, both.dst, both.both_ways) == ("p2p", 0, 1, True)
    assert query(names, kind="overlap_h2d", note="copy alone").kind == "h2d"


def test_a_table_is_known_by_its_columns(tmp_path, capsys) -> None:
    (tmp_path / "round.yaml").write_text(MACHINE)
    table = tmp_path / "copies.csv"
    rate = 16 * MIB / (ENGINE_S + 1e-6 + 16 * MIB / 10e9) / 1e9
    table.write_text(f"machine,kind,src,dst,bytes,pinned,GBps\nbox,h2d,host,cuda:1,{16 * MIB},1,{rate!r}\n")
    score_command([str(table)], json=True, machine=[f"box={tmp_path / 'round.yaml'}"])
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    assert (scored["kind"], scored["scored"]) == ("copies", 1)
    assert scored["overall"]["median_ape"] == pytest.approx(0, abs=1e-9)
    assert {"decade": "1e7"} in [group["by"] for group in scored["groups"]]


@pytest.mark.corpus
def test_errors_of_published_copies(corpus, capsys) -> None:
    score_command([str(corpus / "copies.csv")], json=True, by="kind,pinned")
    scored = json.loads(capsys.readouterr().out)["tables"][0]
    assert scored["scored"] > 450
    assert scored["overall"]["median_ape"] < 0.08 < scored["baselines"]["data sheet"]["median_ape"]
    errors = {group["by"]["kind"]: group["median_ape"] for group in scored["groups"] if set(group["by"]) == {"kind"}}
    assert errors["h2d"] < 0.05
    assert errors["d2h"] < 0.1
    assert errors["p2p"] < 0.06
