"""PyTorch's caching allocator: what it holds, given the tensors that come and go (docs/decisions/step-models.md)."""

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

    def __init__(self, start: int, size_bytes: int, before: "MemoryBlock | None", after: "MemoryBlock | None") -> None:
        self.start, self.size_bytes, self.before, self.after = start, size_bytes, before, after
        self.is_free = False
        self.pool: _Pool | None = None


class _Pool:
    """The segments of small or large requests; free blocks, by size and place; ``last``: the end of one that grows."""

    def __init__(self, page_bytes: int, least_rest_bytes: int) -> None:
        self.page_bytes, self.least_rest_bytes = page_bytes, least_rest_bytes
        self.free: list[tuple[int, int, MemoryBlock]] = []
        self.last: MemoryBlock | None = None
        self.end = 0  # places are not used again

    def put(self, block: MemoryBlock) -> None:
        block.is_free = True
        insort(self.free, (block.size_bytes, block.start, block))

    def remove(self, block: MemoryBlock) -> None:
        block.is_free = False
        del self.free[bisect_left(self.free, (block.size_bytes, block.start))]

    def fitting(self, size_bytes: int) -> MemoryBlock | None:
        """Take the smallest free block that is large enough, of several the first; the last only if no other is."""
        free, place = self.free, bisect_left(self.free, (size_bytes,))
        if place < len(free) and free[place][2] is self.last:
            place += place + 1 < len(free)
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
        other = MemoryBlock(block.start + size_bytes, block.size_bytes - size_bytes, block, block.after)
        if block.after is not None:
            block.after.before = other
        block.size_bytes, block.after = size_bytes, other
        if block is self.last:
            self.last = other
        self.put(other)

    def give(self, block: MemoryBlock) -> None:
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
        if after is self.last:
            self.last = block


class _GrowingPool(_Pool):
    """A pool that is one segment, which grows at its end; free blocks are split to the last unit."""

    def __init__(self, page_bytes: int) -> None:
        super().__init__(page_bytes, _UNIT_BYTES)

    def grown(self, size_bytes: int) -> tuple[MemoryBlock, int]:
        """Return the last block, or a new one after it, of at least *size_bytes*, and the bytes of new pages."""
        last = self.last
        if last is not None and last.is_free:
            self.remove(last)
            block = last
        else:
            block = MemoryBlock(self.end, 0, last, None)
            if last is not None:
                last.after = block
        more = _whole(size_bytes - block.size_bytes, self.page_bytes)
        block.size_bytes += more
        self.end += more
        self.last = block
        return block, more

    def released(self) -> int:
        """Return the whole pages within free blocks to the driver, and their bytes."""
        blocks, n_bytes = [block for _, _, block in self.free], 0
        for block in blocks:
            start, end = block.start, block.start + block.size_bytes
            first, last = _whole(start, self.page_bytes), end // self.page_bytes * self.page_bytes
            if first >= last:
                continue
            self.remove(block)
            n_bytes += last - first
            before, after = block.before, block.after
            head = MemoryBlock(start, first - start, before, None) if first > start else None
            tail = MemoryBlock(last, end - last, None, after) if end > last else None
            if before is not None:
                before.after = head
            if after is not None:
                after.before = tail
            for rest in filter(None, (head, tail)):
                self.put(rest)
            if block is self.last:
                self.last = tail
        return n_bytes


class OutOfMemoryError(Exception):
    """A request does not fit.  ``needed_bytes`` would be reserved if it did."""

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(needed_bytes)
        self.needed_bytes = needed_bytes


class CachingAllocator:
    """Keeps blocks for later requests; *most_bytes* of segments; *expandable* ones grow."""

    def __init__(self, most_bytes: float = inf, *, expandable: bool = False) -> None:
        self._most_bytes = most_bytes
        small, large = 2 * _MIB, 20 * _MIB
        self._small: _Pool = _GrowingPool(small) if expandable else _Pool(small, _UNIT_BYTES)
        self._large: _Pool = _GrowingPool(large) if expandable else _Pool(large, _SMALL_BYTES + _UNIT_BYTES)
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
        self.allocated_bytes = allocated = self.allocated_bytes + block.size_bytes
        if allocated > self.most_allocated_bytes:  # noqa: PLR1730  a call takes three times as long
            self.most_allocated_bytes = allocated
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
