"""The Ethernet frames of a message, with the headers of TCP or UDP, and the share of the line rate that is payload.

A frame has a header of 14 B and a checksum of 4 B, and occupies the line for another 8 B before and 12 B after it; it
carries at least 46 B (IEEE 802.3, clauses 3 and 4).  IP adds 20 B; TCP 20 B, and with timestamps 12 B more (RFC 791,
793, 7323); UDP 8 B per datagram, which IP fragments in multiples of 8 B (RFC 768).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.errors import InputError
from simulator.questions.single import Protocol
from simulator.units import format_size

_AROUND_BYTES = 14 + 4 + 8 + 12
_LEAST_BYTES = 46
_IP_BYTES, _TCP_BYTES, _UDP_BYTES = 20, 32, 8
_LEAST_MTU, _MOST_MTU = 576, 65_535
_DATAGRAM_BYTES = 65_535 - _IP_BYTES - _UDP_BYTES


@dataclass(frozen=True, slots=True)
class Frames:
    """``count`` frames that take ``wire_bytes`` on the line, of which ``payload_bytes`` belong to the message."""

    count: int
    payload_bytes: float
    wire_bytes: float

    @property
    def share(self) -> float:
        """The share of the line rate that is payload."""
        return self.payload_bytes / self.wire_bytes


def frames_of(size_bytes: float, protocol: Protocol, mtu_bytes: float) -> Frames:
    """Return the frames of a message; raises InputError where *mtu_bytes* is no valid packet size of Ethernet."""
    if not _LEAST_MTU <= mtu_bytes <= _MOST_MTU:
        raise InputError(
            f"mtu={format_size(mtu_bytes)}: a packet has {_LEAST_MTU} to {_MOST_MTU} B, 1500 B as a rule, or 9000 B"
        )
    if protocol == "tcp":
        return _cut(size_bytes, mtu_bytes - _IP_BYTES - _TCP_BYTES, _IP_BYTES + _TCP_BYTES, 0)
    datagrams, rest = divmod(size_bytes, _DATAGRAM_BYTES)
    piece = (mtu_bytes - _IP_BYTES) // 8 * 8
    whole = _cut(_DATAGRAM_BYTES, piece, _IP_BYTES, _UDP_BYTES)
    last = _cut(rest, piece, _IP_BYTES, _UDP_BYTES) if rest or not datagrams else Frames(0, 0.0, 0.0)
    n = int(datagrams)
    return Frames(n * whole.count + last.count, size_bytes, n * whole.wire_bytes + last.wire_bytes)


def _cut(size_bytes: float, piece_bytes: float, header_bytes: int, once_bytes: int) -> Frames:
    """Return frames that carry *piece_bytes* each, with a header in each and another once in the first."""
    carried = size_bytes + once_bytes
    count = max(1, math.ceil(carried / piece_bytes))
    last = carried - (count - 1) * piece_bytes
    inside = (count - 1) * (piece_bytes + header_bytes) + max(last + header_bytes, _LEAST_BYTES)
    return Frames(count, size_bytes, inside + count * _AROUND_BYTES)
