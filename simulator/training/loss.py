"""The loss of a server during an exchange, and what is sent again (:class:`Loss`).

The remaining servers take over its keys, in equal slices.  The first worker sends them the parameters that it pulled
last, because the lost server's are gone.  Then every worker repeats all transfers that were in progress, and all
pushes whose results had not yet returned to all workers; later transfers use the remaining servers.  The lost server's
optimiser state is lost (Li et al., OSDI 2014, section 4.3, keep a copy on the next server of a ring; none is kept
here).  The loss is detected at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from simulator.records import dataclass, replace
from simulator.training.keys import Key


class ActivityProgress(Enum):
    """The state of an activity when the server was lost."""

    DONE = "done"
    UNDER_WAY = "under way"
    NOT_BEGUN = "not begun"


@dataclass(frozen=True)
class Loss:
    """The server with index ``server`` is lost at ``at_s`` seconds.

    ``spans_s`` has the start and end of each stage, step and key without the loss, over all teams.
    """

    server: int
    at_s: float
    spans_s: Mapping[tuple[str, int, int], tuple[float, float]]  # by stage, step, key

    def progress(self, stage: str, step: int, key: int) -> ActivityProgress:
        """Return the progress of *stage* of *key* at the loss; DONE only if it was done for all teams."""
        start_s, end_s = self.spans_s.get((stage, step, key), (float("inf"), float("inf")))
        if end_s <= self.at_s:
            return ActivityProgress.DONE
        return ActivityProgress.UNDER_WAY if start_s < self.at_s else ActivityProgress.NOT_BEGUN

    def without(self, key: Key) -> Key:
        """Return *key* spread over the remaining servers."""
        left = len(key.shares_bytes) - 1
        more = key.shares_bytes[self.server] / left
        shares = tuple(0.0 if j == self.server else share + more for j, share in enumerate(key.shares_bytes))
        return replace(key, shares_bytes=shares)

    def only(self, key: Key) -> Key:
        """Return the lost server's part of *key*, spread over the remaining servers."""
        left = len(key.shares_bytes) - 1
        more = key.shares_bytes[self.server] / left
        return replace(key, shares_bytes=tuple(0.0 if j == self.server else more for j in range(left + 1)))
