"""A server that is lost while keys are under way: what has to be sent again (:class:`Loss`).

The others take over its keys, in equal slices.  The first worker sends them the parameters that it pulled last, since
what the server held is gone; then every worker pushes again what had not come back to all of them by then, or was under
way; what comes later goes to those that are left.  What the optimiser kept is lost with the server (Li et al., OSDI
2014, section 4.3, keep a copy of it on the next server of a ring; no copy is kept here).  That the server is gone is
known at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from simulator.training.keys import Key

__all__ = ["Loss", "Progress"]


class Progress(Enum):
    """How far an activity was when the server was lost."""

    DONE = "done"
    UNDER_WAY = "under way"
    NOT_BEGUN = "not begun"


@dataclass(frozen=True)
class Loss:
    """The server number ``server`` is lost at ``at_s``.

    ``spans_s`` says when each stage of each key of a step began and ended without that, of all teams together.
    """

    server: int
    at_s: float
    spans_s: Mapping[tuple[str, int, int], tuple[float, float]]  # stage, step, key

    def progress(self, stage: str, step: int, key: int) -> Progress:
        """Return how far *stage* of *key* was; done only where it was for all teams."""
        start_s, end_s = self.spans_s.get((stage, step, key), (float("inf"), float("inf")))
        if end_s <= self.at_s:
            return Progress.DONE
        return Progress.UNDER_WAY if start_s < self.at_s else Progress.NOT_BEGUN

    def without(self, key: Key) -> Key:
        """Return *key* on the servers that are left."""
        left = len(key.shares_bytes) - 1
        more = key.shares_bytes[self.server] / left
        shares = tuple(0.0 if j == self.server else share + more for j, share in enumerate(key.shares_bytes))
        return replace(key, shares_bytes=shares)

    def only(self, key: Key) -> Key:
        """Return the part of *key* that was on the server, on those that are left."""
        left = len(key.shares_bytes) - 1
        more = key.shares_bytes[self.server] / left
        return replace(key, shares_bytes=tuple(0.0 if j == self.server else more for j in range(left + 1)))
