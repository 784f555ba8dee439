"""Disks: seek, rotation and transfer; concurrent requests; erased blocks; volumes; a queue served by the engine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api import Session
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.host.disks import block_time, requests_plan
from simulator.network.compiling import compile_machine
from simulator.questions.single import DiskQuestion
from simulator.questions.where import Where
from simulator.questions.words import parse_question
from simulator.topology.load import topology_from_text
from simulator.topology.parts import StoragePart
from tests.examples import few

MACHINE = """
schema_version: 1
name: disks
parts:
  turning: {kind: storage, of: disk, rpm: 6000, seek: 5 ms, read_bandwidth: 100 MB/s, write_bandwidth: 100 MB/s}
  platter: {kind: storage, of: disk, rpm: 6000, seek: 5 ms, read_bandwidth: 100 MB/s, write_bandwidth: 100 MB/s,
            outer_track: 60 mm, inner_track: 30 mm, areal_density: 1 Tbit/in2, bit_aspect: 4}
  flash: {kind: storage, of: flash, parallel: 8, write_block: 256 KB, read_bandwidth: 1 GB/s, write_bandwidth: 512 MB/s,
          read_latency: 100 us, write_latency: 20 us}
  bought: {kind: storage, of: volume, read_bandwidth: 100 MB/s, write_bandwidth: 100 MB/s, read_latency: 1 ms,
           write_latency: 1 ms, operation_rate: 300 IOP/s, burst_rate: 3 kIOP/s, burst_credits: 5400000}
devices:
  cpu0: {part: generic-desktop-cpu}
  hdd0: {part: turning}
  old0: {part: platter}
  ssd0: {part: flash}
  vol0: {part: bought}
"""
WHERE = Where("disks")


@pytest.fixture(scope="module")
def session() -> Session:
    made = Session()
    made.know(WHERE, topology_from_text(MACHINE))
    return made


def seconds(session: Session, words: str) -> float:
    return session.time_s(parse_question(f"disk:{words}", WHERE))


def test_a_disk_that_turns_seeks_waits_half_a_turn_and_reads(session) -> None:
    assert seconds(session, "read_random,1MB") == pytest.approx(5e-3 + 5e-3 + 10e-3)
    assert seconds(session, "read_sequential,1MB") == pytest.approx(10e-3)
    figures = session.answer(parse_question("disk:read_random,4KiB", WHERE)).figures
    assert (figures["half_turn_s"], figures["turn_s"]) == pytest.approx((5e-3, 10e-3))


def test_an_outer_track_holds_more_and_gives_more_in_a_turn(session) -> None:
    outer, inner = (seconds(session, f"read_sequential,1MB,disk=old0,track={track}") for track in ("outer", "inner"))
    assert (outer, inner) == pytest.approx((10e-3, 20e-3))
    assert seconds(session, "read_sequential,1MB,disk=old0") == outer
    figures = session.answer(parse_question("disk:read_sequential,1MB,disk=old0", WHERE)).figures
    # If tracks and bits were equally dense, a square inch would have a million tracks of a million bits; here tracks
    # are four bits wide.
    bits_a_metre = 2e6 / 0.0254
    assert figures["outer_track_bytes"] == pytest.approx(3.14159265 * 0.06 * bits_a_metre / 8)
    assert figures["inner_track_bytes"] == pytest.approx(figures["outer_track_bytes"] / 2)
    with pytest.raises(InputError, match="track=inner needs a disk whose part has outer_track and inner_track"):
        seconds(session, "read_sequential,1MB,disk=hdd0,track=inner")


def test_threads_queue_for_the_one_head(session) -> None:
    assert seconds(session, "read_random,4KiB,threads=7") == pytest.approx(seconds(session, "read_random,4KiB"))


@pytest.mark.parametrize(("threads", "at_once"), [(2, 2), (8, 8), (16, 8), (64, 8)])
def test_flash_serves_as_many_at_once_as_it_has_channels_for(session, threads, at_once) -> None:
    alone = seconds(session, "read_random,4KiB,disk=ssd0")
    assert alone == pytest.approx(100e-6)
    wait_s = 100e-6 - 4096 / 1e9
    found = seconds(session, f"read_random,4KiB,disk=ssd0,threads={threads}")
    assert found == pytest.approx(max(wait_s / at_once, alone / threads), rel=0.05)


def test_small_writes_in_place_read_erase_and_write_a_block(session) -> None:
    wait_s = 20e-6 - 4096 / 512e6
    block_s = 256e3 / 1e9 + 256e3 / 512e6
    assert seconds(session, "write_random,4KiB,disk=ssd0") == pytest.approx(wait_s + block_s)
    assert seconds(session, "write_random,256KB,disk=ssd0") == pytest.approx(wait_s + 256e3 / 512e6)
    assert seconds(session, "write_sequential,4KiB,disk=ssd0") == pytest.approx(20e-6)


def test_a_volume_has_the_operations_that_were_bought_and_more_while_credits_last(session) -> None:
    assert seconds(session, "read_random,4KiB,disk=vol0,threads=16") == pytest.approx(1 / 3000)
    assert seconds(session, "read_random,4KiB,disk=vol0,threads=16,sustained") == pytest.approx(1 / 300)
    why = session.answer(parse_question("disk:read_random,4KiB,disk=vol0", WHERE)).why
    assert any("3,000 operations a second while its credits last for 2e+03 s, then 300" in line for line in why)


def test_memory_serves_what_it_holds(session) -> None:
    memory_s, disk_s = seconds(session, "read_random,4KiB,cached"), seconds(session, "read_random,4KiB")
    mixed_s = seconds(session, "read_random,4KiB,hit-percent=75")
    assert mixed_s == pytest.approx(0.75 * memory_s + 0.25 * disk_s)
    assert seconds(session, "read_random,4KiB,hit-percent=100") == memory_s


def test_what_memory_holds_takes_a_call_and_a_copy(session) -> None:
    small, large = (
        session.answer(parse_question(f"disk:read_sequential,{size},cached", WHERE)) for size in ("1B", "1GB")
    )
    assert small.time_s == pytest.approx(1e-6, rel=1e-2)
    assert small.bound == "calls into the system"
    assert large.bound == "memory bandwidth"
    assert seconds(session, "read_sequential,1B,cached,threads=2") < small.time_s


@settings(max_examples=few(20))
@given(st.integers(1, 20), st.integers(1, 12), st.sampled_from([4096.0, 65536.0, 1e6]), st.booleans())
def test_the_engine_serves_requests_as_the_closed_form_says(slots, threads, block, turns) -> None:
    figures = "rpm: 7200, seek: 4 ms" if turns else "read_latency: 100 us"
    text = f"""
schema_version: 1
name: one
parts: {{mine: {{kind: storage, parallel: {slots}, read_bandwidth: 1 GB/s, {figures}}}}}
devices: {{cpu0: {{part: generic-desktop-cpu}}, disk0: {{part: mine}}}}
"""
    machine = compile_machine(topology_from_text(text))
    part = machine.node("disk0").part
    assert isinstance(part, StoragePart)
    question = DiskQuestion(where=WHERE, kind="read_random", block_bytes=block, threads=threads)
    found = requests_plan(machine, question)
    if threads == 1:
        assert found is None
        return
    assert found is not None
    plan, blocks = found
    each_s, least_s = execute(machine, plan).end_s / blocks, block_time(part, question)
    assert each_s >= least_s * (1 - 1e-9)
    assert each_s <= least_s * 1.35  # the start, until all are in flight, and the end


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("read_random,4KiB,disk=hdd9", "has no such disk; did you mean 'hdd0'"),
        ("read_random,4KiB,hit-percent=101", "hit-percent is from 0 to 100; got 101"),
        ("read_random,4KiB,threads=0", "threads is at least 1; got 0"),
        ("write_random,4KiB,cached", "writes wait for the disk"),
        ("read_random,4KiB,sustained", "sustained applies to a volume whose part has a burst_rate"),
    ],
)
def test_what_cannot_be_asked_is_refused(session, words, message) -> None:
    with pytest.raises(InputError, match=message):
        seconds(session, words)
