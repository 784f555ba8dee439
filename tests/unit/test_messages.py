"""Messages between machines: TCP and UDP frames, both ends, switches, and the route."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import Session
from simulator.errors import InputError
from simulator.host.messages import frames_of
from simulator.questions.where import Where
from simulator.questions.words import parse_question

TCP_10G = Where("linux-host", 2, "ethernet-10g")


def answer(words: str, where: Where = TCP_10G):
    return Session().answer(parse_question(f"message:{words}", where))


@pytest.mark.parametrize(
    ("size", "protocol", "mtu", "count", "wire"),
    [  # by hand: 38 B around a frame, 52 B of IP and TCP with time stamps, 20 B of IP, 8 B of UDP; at least 46 B within
        (1, "tcp", 1500, 1, 1 + 52 + 38),
        (1448, "tcp", 1500, 1, 1538),
        (1449, "tcp", 1500, 2, 1538 + 1 + 52 + 38),
        (4096, "tcp", 1500, 3, 4096 + 3 * 90),
        (8948, "tcp", 9000, 1, 9038),
        (1, "udp", 1500, 1, 46 + 38),
        (1472, "udp", 1500, 1, 1538),
        (1473, "udp", 1500, 2, 1538 + 46 + 38),
        (4096, "udp", 1500, 3, 4096 + 8 + 3 * 58),
    ],
)
def test_frames_by_hand(size, protocol, mtu, count, wire) -> None:
    found = frames_of(size, protocol, mtu)
    assert (found.count, found.wire_bytes) == (count, wire)


@given(st.integers(1, 10**7), st.sampled_from(["tcp", "udp"]), st.sampled_from([1500.0, 9000.0]))
def test_headers_are_never_free_and_no_frame_is_too_long(size: int, protocol: str, mtu: float) -> None:
    found = frames_of(float(size), protocol, mtu)  # type: ignore[arg-type]
    assert size < found.wire_bytes <= found.count * (mtu + 38)
    assert frames_of(float(size + 1), protocol, mtu).wire_bytes >= found.wire_bytes  # type: ignore[arg-type]


def test_large_messages_get_the_share_of_the_line_that_parts_of_links_say() -> None:
    found = answer("1GB")
    assert found.figures["payload_share"] == pytest.approx(1448 / 1538, rel=1e-4)
    assert found.bound == "network bandwidth"
    assert found.time_s == pytest.approx(1e9 / 1.25e9 * 1538 / 1448, rel=1e-3)


def test_a_message_waits_for_ends_packets_switches_and_the_way() -> None:
    alone = answer("4KiB").time_s
    assert alone == pytest.approx(20.2e-6 + 4366 / 1.25e9)
    assert answer("4KiB,switches=5").time_s - alone == pytest.approx(4 * 0.5e-6)
    assert answer("4KiB,distance-km=100").time_s - alone == pytest.approx(1e5 / (299792458 * 2 / 3))
    assert answer("4KiB,round-trip").time_s == pytest.approx(2 * alone)
    light = answer("64B,round-trip,distance-km=10000,in-vacuum")
    assert light.figures["distance_s"] == pytest.approx(1e7 / 299792458)
    assert light.bound == "the speed of light"


def test_fabrics_without_frames_have_their_own_share() -> None:
    found = answer("4KiB", Where("knl-7250-opa", 2))
    assert found.figures["wire_bytes"] == pytest.approx(4096 / 0.966)


@pytest.mark.parametrize(
    ("words", "where", "message"),
    [
        ("4KiB", Where("linux-host"), "nodes=2 fabric='ethernet-10g' makes two"),
        ("4KiB,dst=0", TCP_10G, "are one machine; a message goes to another one"),
        ("4KiB,dst=2", TCP_10G, "has 2 machines, from 0"),
        ("4KiB,mtu=100B", TCP_10G, "a packet has 576 to 65535 B"),
        ("4KiB,mtu=1500B", Where("knl-7250-opa", 2), "mtu applies to Ethernet; the machines are joined by omnipath"),
        ("4KiB,switches=0", TCP_10G, "switches is at least 1; got 0"),
    ],
)
def test_what_cannot_be_asked_is_refused(words, where, message) -> None:
    with pytest.raises(InputError, match=message):
        answer(words, where)
