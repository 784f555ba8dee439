"""PyTorch's caching allocator of device memory: what it holds, given the tensors that come and go.

Reference: pytorch, c10/cuda/CUDACachingAllocator.cpp (``round_size``, ``get_allocation_size``, ``get_free_block``,
``should_split``, ``try_merge_blocks``, ``release_cached_blocks``), with its default settings: segments do not expand.
Of one stream.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import inf

_MIB = 2**20
_UNIT_BYTES = 512  # all sizes are multiples
_SMALL_BYTES = _MIB  # larger requests are of the other pool
_OWN_BYTES = 10 * _MIB  # from this size on, a segment is made to measure, in units of the next
_OWN_UNIT_BYTES = 2 * _MIB


def _whole(n_bytes: int, unit_bytes: int) -> int:
    return -(-n_bytes // unit_bytes) * unit_bytes


class MemoryBlock:
    """A part of a segment: in use, of a ``pool``, or free and in its list.  Neighbours of free blocks are in use."""

    __slots__ = ("after", "before", "is_free", "pool", "size_bytes", "start")

    def __init__(self, start: int, size_bytes: int, before: MemoryBlock | None, after: MemoryBlock | None) -> None:
        self.start, self.size_bytes, self.before, self.after = start, size_bytes, before, after
        self.is_free = False
        self.pool: _Pool | None = None


class _Pool:
    """The segments of small or large requests; the free blocks, by size and place."""

    def __init__(self, page_bytes: int, least_rest_bytes: int) -> None:
        self.page_bytes, self.least_rest_bytes = page_bytes, least_rest_bytes
        self.free: list[tuple[int, int, MemoryBlock]] = []
        self.end = 0  # places are not used again

    def put(self, block: MemoryBlock) -> None:
        """Make *block* a free one."""
        block.is_free = True
        insort(self.free, (block.size_bytes, block.start, block))

    def remove(self, block: MemoryBlock) -> None:
        """Take *block*, a free one, from the list."""
        block.is_free = False
        del self.free[bisect_left(self.free, (block.size_bytes, block.start))]

    def fitting(self, size_bytes: int) -> MemoryBlock | None:
        """Take the smallest free block that is large enough, of several the first."""
        free, place = self.free, bisect_left(self.free, (size_bytes,))
        if place == len(free):
            return None
        block = free.pop(place)[2]
        block.is_free = False
        return block

    def grown(self, size_bytes: int) -> tuple[MemoryBlock, int]:
        """Return a block that is a new segment and the bytes by which the pool has grown."""
        more = self.page_bytes if size_bytes < _OWN_BYTES else _whole(size_bytes, _OWN_UNIT_BYTES)
        block = MemoryBlock(self.end, more, None, None)
        self.end += more
        return block, more

    def released(self) -> int:
        """Return the segments that are wholly free to the driver, and their bytes."""
        kept = [each for each in self.free if each[2].before is not None or each[2].after is not None]
        n_bytes = sum(size for size, _, _ in self.free) - sum(size for size, _, _ in kept)
        self.free = kept
        return n_bytes

    def split(self, block: MemoryBlock, size_bytes: int) -> None:
        """Free what *block* has beyond *size_bytes*."""
        other = MemoryBlock(block.start + size_bytes, block.size_bytes - size_bytes, block, block.after)
        if block.after is not None:
            block.after.before = other
        block.size_bytes, block.after = size_bytes, other
        self.put(other)

    def give(self, block: MemoryBlock) -> None:
        """Free *block*, as one with its free neighbours."""
        before, after = block.before, block.after
        if after is not None and after.is_free:
            self.remove(after)
            self._join(block, after)
        if before is not None and before.is_free:
            self.remove(before)
            self._join(before, block)
            block = before
        self.put(block)

    def _join(self, block: MemoryBlock, after: MemoryBlock) -> None:
        block.size_bytes += after.size_bytes
        block.after = after.after
        if after.after is not None:
            after.after.before = block


class OutOfMemoryError(Exception):
    """A request does not fit.  ``needed_bytes`` would be reserved if it did."""

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(needed_bytes)
        self.needed_bytes = needed_bytes


class CachingAllocator:
    """Gives out blocks of device memory and keeps what comes back for later requests.

    When it holds *most_bytes* it returns segments that are wholly free to the driver, and goes on.

    ``allocated_bytes`` are those of the blocks in use, ``reserved_bytes`` those of all segments, as
    ``torch.cuda.memory_allocated`` and ``memory_reserved`` count them; ``most_`` is the highest so far.
    """

    def __init__(self, most_bytes: float = inf) -> None:
        self._most_bytes = most_bytes
        self._small = _Pool(2 * _MIB, _UNIT_BYTES)
        self._large = _Pool(20 * _MIB, _SMALL_BYTES + _UNIT_BYTES)
        self.allocated_bytes = self.reserved_bytes = self.most_allocated_bytes = self.most_reserved_bytes = 0

    def take(self, n_bytes: int) -> MemoryBlock:
        """Return a block of at least *n_bytes* (more than 0); raises OutOfMemoryError."""
        size = -(-n_bytes // _UNIT_BYTES) * _UNIT_BYTES
        pool = self._small if size <= _SMALL_BYTES else self._large
        block = pool.fitting(size)
        if block is None:
            block, more = pool.grown(size)
            self._reserve(more)
        if block.size_bytes - size >= pool.least_rest_bytes:
            pool.split(block, size)
        block.pool = pool
        self.allocated_bytes += block.size_bytes
        self.most_allocated_bytes = max(self.most_allocated_bytes, self.allocated_bytes)
        return block

    def _reserve(self, n_bytes: int) -> None:
        if self.reserved_bytes + n_bytes > self._most_bytes:
            self.reserved_bytes -= self._small.released() + self._large.released()
        self.reserved_bytes += n_bytes
        if self.reserved_bytes > self._most_bytes:
            raise OutOfMemoryError(self.reserved_bytes)
        self.most_reserved_bytes = max(self.most_reserved_bytes, self.reserved_bytes)

    def give(self, block: MemoryBlock) -> None:
        """Return *block* to the allocator; raises ValueError if it is not in use."""
        pool, block.pool = block.pool, None
        if pool is None:
            raise ValueError("the block is not in use")
        self.allocated_bytes -= block.size_bytes
        pool.give(block)
