"""What a cache keeps of lines that are used in turn, each once before the first is used again.

Such a walk finds nothing in a set of the cache that is to hold more lines than it has ways: what was not used for
longest, and so goes, is what comes next.  Which lines fall into one set depends on their addresses.  Within a page they
are spread evenly.  Where all sets together are no larger than a page a way, the whole walk is; otherwise pages lie as
the system happened to place them, and some sets are to hold more than others (Kessler and Hill, Page Placement
Algorithms for Large Real-Indexed Caches, 1992).
"""

from __future__ import annotations

import math

__all__ = ["cyclic_share"]


def cyclic_share(size_bytes: float, ways: int, working_set_bytes: float, page_bytes: float) -> float:
    """Return the share of the lines of *working_set_bytes* that a cache of that size serves."""
    colours = size_bytes / (ways * page_bytes)  # into which pages fall that meet no line of each other
    if colours <= 1.0:
        return min(1.0, max(0.0, 1.0 - (working_set_bytes / size_bytes - 1.0) * ways))
    others = max(0, math.ceil(working_set_bytes / page_bytes) - 1)
    return _at_most(ways - 1, others, 1.0 / colours)


def _at_most(most: int, trials: int, chance: float) -> float:
    """Return how likely at most so many of *trials* come out, each with that *chance*."""
    total = 0.0
    for count in range(min(most, trials) + 1):
        ordered = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
        total += math.exp(ordered + count * math.log(chance) + (trials - count) * math.log1p(-chance))
    return min(1.0, total)
