"""A message from one machine to another: :class:`MessageQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.where import Where

__all__ = ["MessageQuestion", "Protocol"]

Protocol = Literal["tcp", "udp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuestion:
    """How long a message of ``size_bytes`` takes from machine ``src`` to ``dst``, and back where ``round_trip``.

    ``protocol`` says which headers it has on Ethernet, ``mtu_bytes`` how large packets are (0: what the link's share of
    payload says, 1500 or 9000).  ``switches`` stand on the way, ``distance_km`` of glass lie on it, or of air and space
    where ``in_vacuum``.
    """

    where: Where
    size_bytes: float
    protocol: Protocol = "tcp"
    src: int = 0
    dst: int = 1
    mtu_bytes: float = 0.0
    switches: int = 1
    distance_km: int = 0
    in_vacuum: bool = False
    round_trip: bool = False
