"""The share of lines that a cache keeps when they are used cyclically, each once before the first is used again.

Such a walk always misses in a set that more lines map to than it has ways: the least recently used line, which is
evicted, is the one needed next.  The addresses of lines decide which set they map to.  Within a page they are spread
evenly; so is the whole walk if one way of the cache is no larger than a page.  Otherwise the operating system places
pages at random, and some sets get more lines than others (Kessler and Hill, Page Placement Algorithms for Large
Real-Indexed Caches, 1992).
"""

from __future__ import annotations

import math


def cyclic_share(size_bytes: float, ways: int, working_set_bytes: float, page_bytes: float) -> float:
    """Return the share of the lines of *working_set_bytes* that a cache of *size_bytes* serves."""
    colours = size_bytes / (ways * page_bytes)  # page colours: pages of different colours share no set
    if colours <= 1.0:
        return min(1.0, max(0.0, 1.0 - (working_set_bytes / size_bytes - 1.0) * ways))
    others = max(0, math.ceil(working_set_bytes / page_bytes) - 1)
    return _at_most(ways - 1, others, 1.0 / colours)


def _at_most(most: int, trials: int, chance: float) -> float:
    """Return the probability of at most *most* successes in *trials* trials of probability *chance* each."""
    total = 0.0
    for count in range(min(most, trials) + 1):
        ordered = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
        total += math.exp(ordered + count * math.log(chance) + (trials - count) * math.log1p(-chance))
    return min(1.0, total)
