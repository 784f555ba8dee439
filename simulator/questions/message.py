"""A message between two nodes: :class:`MessageQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from simulator.questions.checks import From, check
from simulator.questions.where import Where

Protocol = Literal["tcp", "udp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuestion:
    """The time of a message of ``size_bytes`` from node ``src`` to ``dst``, and back if ``round_trip``.

    ``protocol`` sets the headers on Ethernet, ``mtu_bytes`` the packet size (0: 1500 or 9000, from the link's payload
    fraction).  The path has ``switches`` switches and ``distance_km`` of glass fibre, or of air and space if
    ``in_vacuum``.
    """

    where: Where
    size_bytes: Annotated[float, From(0, above=True)]
    protocol: Protocol = "tcp"
    src: int = 0
    dst: int = 1
    mtu_bytes: float = 0.0
    switches: int = 1
    distance_km: int = 0
    in_vacuum: bool = False
    round_trip: bool = False

    def __post_init__(self) -> None:
        check(self)
