"""Limits of a flow that are shares of links' rates, and follow them: :class:`Limits`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Limit(NamedTuple):
    """The seconds that a link takes at least: ``fixed_s``, and ``full_s`` at its rate ``rate_Bps``.

    ``resource`` is the capacity that it draws on.
    """

    resource: int
    fixed_s: float
    full_s: float
    rate_Bps: float

    def seconds(self, lost_Bps: Mapping[int, float]) -> float:
        """Return the seconds that it takes when the link gives *lost_Bps* less; a link that gives nothing counts not.

        What waits for such a link is stopped by its capacity.
        """
        lost = lost_Bps.get(self.resource)
        if lost is None:
            return self.fixed_s + self.full_s
        left_Bps = self.rate_Bps - lost
        return self.fixed_s + self.full_s * self.rate_Bps / left_Bps if left_Bps > 0.0 else 0.0


class Limits(NamedTuple):
    """What limits a flow of ``wire_bytes``, all rounds together: its own rate, and each of ``links``."""

    own_Bps: float
    wire_bytes: float
    links: tuple[Limit, ...]

    def cap_Bps(self, lost_Bps: Mapping[int, float]) -> float:  # noqa: N802  units keep their case
        """Return the largest rate while resources give *lost_Bps* less than they have, in B/s."""
        longest_s = max((limit.seconds(lost_Bps) for limit in self.links), default=0.0)
        return min(self.own_Bps, self.wire_bytes / longest_s) if longest_s > 0.0 else self.own_Bps
