"""Thread blocks of attention on the SMs of a GPU: the length of each, and the end of the last.

A block owns rows of queries (backward: of keys) and loops over the keys in steps.  Under a causal mask each block is
longer than the one before; it computes the whole tile on the diagonal.  In a window it skips the tiles of keys that
none of its queries sees, and computes the whole of every other tile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from simulator.devices.kernels import FusedAttention

ROWS = 128
_COLUMNS = 64
_MOST_SEEN = 100_000  # blocks of windows that are looked at one by one
_GROUPS = 64  # blocks of one batch-head pair are grouped into at most this many lengths; more add no accuracy


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of ``rows`` by ``columns`` per step; ``lengths``: each length in steps, longest first, with its count."""

    rows: int
    columns: int
    lengths: tuple[tuple[float, float], ...]

    @property
    def count(self) -> float:
        """Number of blocks."""
        return sum(count for _, count in self.lengths)

    @property
    def steps(self) -> float:
        """Total steps of all blocks."""
        return sum(length * count for length, count in self.lengths)


@lru_cache(maxsize=4096)
def blocks_of(kernel: FusedAttention, *, rows: int = ROWS, packs: bool = False) -> Blocks:
    """Return the blocks of *kernel*, of *rows* rows each.

    With *packs*, the rows of all heads that share keys fill one tile, so that it is full even for short sequences
    (FlashAttention 3, ``pack_gqa``).
    """
    owned, passed = kernel.query_length, kernel.key_length
    if kernel.direction == "bwd":
        owned, passed = passed, owned
    group = kernel.heads // kernel.kv_heads if packs and kernel.direction == "fwd" else 1
    pairs = kernel.batch * kernel.heads // group
    blocks = ceil(owned * group / rows)
    whole = float(ceil(passed / _COLUMNS))
    if not kernel.causal or kernel.query_length != kernel.key_length:
        return Blocks(rows, _COLUMNS, ((whole, float(pairs * blocks)),))
    if kernel.window:
        return _windowed(rows, blocks, rows / group, min(passed, kernel.window), passed, pairs)
    groups = min(blocks, _GROUPS)
    step = blocks / groups
    lengths = []
    for i in reversed(range(groups)):
        seen = min((i * step + (step + 1.0) / 2.0) * rows / group, passed)  # by the middle block of the group
        lengths.append((min(whole, max(1.0, seen / _COLUMNS if step > 1.0 else ceil(seen / _COLUMNS))), pairs * step))
    return Blocks(rows, _COLUMNS, tuple(lengths))


def _windowed(rows: int, blocks: int, owned: float, window: int, passed: int, pairs: int) -> Blocks:
    """Return blocks that own so many tokens each, and pass tiles from the first key of their first query's window.

    Backward it is the other way round, to the last query that sees their last key: as many tiles, in another order.
    """
    lengths: Counter[float] = Counter()
    alike = 1 + blocks // _MOST_SEEN
    for i in range(0, blocks, alike):
        first, end = max(0.0, i * owned + 1 - window), min((i + 1) * owned, passed)
        lengths[float(ceil(end / _COLUMNS) - int(first / _COLUMNS))] += min(alike, blocks - i)
    return Blocks(
        rows, _COLUMNS, tuple((length, float(pairs * n)) for length, n in sorted(lengths.items(), reverse=True))
    )


def spread_over(
    blocks: Blocks, sms: int, step_clocks: float, block_clocks: float, *, alone: float, last: float
) -> float:
    """Return the clocks until the last block ends, as a lower bound on any schedule plus a wait at the end.

    For any k, some SM runs at least its even share, rounded up, of the k longest blocks; and no schedule ends before
    an even share of all work.  *alone* is the number of blocks that saturates an SM; fewer take as long as that many.
    *last* is the share of the longest block for which other SMs wait at the end, where it is not started first.
    """
    slots = sms * alone
    least, before = 0.0, 0.0
    for length, count in blocks.lengths:
        before += count
        clocks = alone * (length * step_clocks + block_clocks)
        least = max(least, ceil(before / slots) * clocks)
    even = (blocks.steps * step_clocks + blocks.count * block_clocks) / sms
    longest = blocks.lengths[0][0] * step_clocks + block_clocks
    waiting = last * longest * min(1.0, max(0.0, blocks.count / sms - 1.0))
    return max(least, even + waiting)
