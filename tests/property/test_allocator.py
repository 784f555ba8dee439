"""The caching allocator against a slow one that only knows which bytes of each segment are whose."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.step.allocator import CachingAllocator, MemoryBlock, OutOfMemoryError
from tests.calls import at_most_calls

MIB = 2**20
Span = tuple[int, int]

_SIZES = st.one_of(
    st.integers(1, 2 * MIB),
    st.integers(1, 60 * MIB),
    st.sampled_from([1, 512, MIB, MIB + 1, 2 * MIB, 5 * MIB, 10 * MIB - 1, 10 * MIB, 11 * MIB, 20 * MIB, 40 * MIB]),
)
_EVENTS = st.lists(st.one_of(_SIZES, st.integers(-50, -1)), max_size=80)  # a size to take; or which block to give


class _Slow:
    """The segments, each a sorted list of the spans in use: what is free is what lies between them."""

    def __init__(self) -> None:
        self.segments: dict[bool, list[tuple[int, list[Span]]]] = {True: [], False: []}  # of the small, of the large

    def take(self, n_bytes: int) -> tuple[bool, int, Span]:
        size = max(1, (n_bytes + 511) // 512) * 512
        small = size <= MIB
        segments = self.segments[small]
        found = self._best(segments, size)
        if found is None:
            self._grow(segments, size, small)
            found = self._best(segments, size)
        assert found is not None
        place, (start, end) = found
        rest = end - start - size
        if rest >= 512 if small else rest > MIB:
            end = start + size
        segments[place][1].append((start, end))
        segments[place][1].sort()
        return small, place, (start, end)

    def give(self, small: bool, place: int, span: Span) -> None:
        self.segments[small][place][1].remove(span)

    def reserved(self) -> int:
        return sum(length for segments in self.segments.values() for length, _ in segments)

    def _best(self, segments: list[tuple[int, list[Span]]], size: int) -> tuple[int, Span] | None:
        fit = []
        for place, (length, used) in enumerate(segments):
            edges = [0, *(edge for span in used for edge in span), length]
            for start, end in zip(edges[::2], edges[1::2], strict=True):
                if end - start >= size:
                    fit.append((end - start, place, (start, end)))
        return min(fit)[1:] if fit else None

    def _grow(self, segments: list[tuple[int, list[Span]]], size: int, small: bool) -> None:
        page = 2 * MIB if small else 20 * MIB
        segments.append((page if size < 10 * MIB else (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB, []))


Held = list[tuple[MemoryBlock, tuple[bool, int, Span]]]


def _follow(events: list[int]) -> tuple[CachingAllocator, _Slow, Held]:
    """Let both allocators follow *events*, and return them with the blocks and spans that are in use at the end."""
    fast, slow, held, most = CachingAllocator(), _Slow(), Held(), 0
    for event in events:
        if event > 0:
            held.append((fast.take(event), slow.take(event)))
        elif held:
            block, (small, place, span) = held.pop(event % len(held))
            fast.give(block)
            slow.give(small, place, span)
        assert fast.reserved_bytes == slow.reserved() >= fast.allocated_bytes
        assert fast.allocated_bytes == sum(end - start for _, (_, _, (start, end)) in held)
        most = max(most, fast.allocated_bytes)
    assert (fast.most_allocated_bytes, fast.most_reserved_bytes) == (most, slow.reserved())
    return fast, slow, held


@given(_EVENTS)
def test_it_gives_the_bytes_that_the_slow_one_gives_and_none_twice(events: list[int]) -> None:
    _, slow, held = _follow(events)
    for block, (small, place, (start, end)) in held:
        before = sum(length for length, _ in slow.segments[small][:place])
        assert (block.start, block.size_bytes) == (before + start, end - start)
    for small in (True, False):
        spans = sorted((b.start, b.start + b.size_bytes) for b, (of_small, _, _) in held if of_small == small)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


class _SlowGrowing(_Slow):
    """One segment of each size, which grows by pages; what is free at its end is taken last."""

    def __init__(self) -> None:
        self.segments = {True: [(0, [])], False: [(0, [])]}

    def take(self, n_bytes: int) -> tuple[bool, int, Span]:
        size = max(1, (n_bytes + 511) // 512) * 512
        small = size <= MIB
        ((length, used),) = self.segments[small]
        edges = [0, *(edge for span in used for edge in span), length]
        *holes, (last, end) = zip(edges[::2], edges[1::2], strict=True)
        start = min(((e - s, s) for s, e in holes if e - s >= size), default=(0, last))[1]
        page = 2 * MIB if small else 20 * MIB
        while start == last and end - start < size:
            end += page
        self.segments[small] = [(end if start == last else length, sorted([*used, (start, start + size)]))]
        return small, 0, (start, start + size)


@given(_EVENTS)
def test_segments_that_grow_are_those_of_the_slow_one(events: list[int]) -> None:
    fast, slow, held = CachingAllocator(expandable=True), _SlowGrowing(), Held()
    for event in events:
        if event > 0:
            held.append((fast.take(event), slow.take(event)))
        elif held:
            block, (small, place, span) = held.pop(event % len(held))
            fast.give(block)
            slow.give(small, place, span)
        assert fast.reserved_bytes == slow.reserved()
        for block, (_, _, (start, end)) in held:
            assert (block.start, block.start + block.size_bytes) == (start, end)


@given(_EVENTS, st.integers(1, 200 * MIB))
def test_segments_that_grow_return_whole_pages_where_memory_is_scarce(events: list[int], most_bytes: int) -> None:
    """What is refused would not fit beside the pages that blocks in use touch, and it keeps apart what it gives."""
    fast, held, refused = CachingAllocator(most_bytes, expandable=True), list[MemoryBlock](), None
    for event in events:
        if event > 0:
            try:
                held.append(fast.take(event))
            except OutOfMemoryError as error:
                refused = error
                break
        elif held:
            fast.give(held.pop(event % len(held)))
        assert fast.allocated_bytes <= fast.reserved_bytes <= most_bytes
    for is_large, page in ((False, 2 * MIB), (True, 20 * MIB)):
        spans = sorted((b.start, b.start + b.size_bytes) for b in held if (b.size_bytes > MIB) == is_large)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        touched = {number for start, end in spans for number in range(start // page, -(-end // page))}
        if refused is not None and is_large == (event > MIB):
            assert refused.needed_bytes > most_bytes
            assert refused.needed_bytes <= fast.reserved_bytes + page * (len(touched) + 1) + event + page


@given(_EVENTS, st.randoms(use_true_random=False))
def test_what_is_given_back_merges_to_whole_segments(events: list[int], random: Random) -> None:
    allocator, slow, held = _follow(events)
    random.shuffle(held)
    for block, _ in held:
        allocator.give(block)
    assert allocator.allocated_bytes == 0
    reserved = allocator.reserved_bytes
    whole = sorted((length for length, _ in slow.segments[False]), reverse=True)
    for n_bytes in whole + [MIB] * sum(length // MIB for length, _ in slow.segments[True]):
        allocator.take(n_bytes)
    assert allocator.allocated_bytes == allocator.reserved_bytes == reserved


@given(_EVENTS, st.integers(1, 200 * MIB))
def test_where_memory_is_scarce_free_segments_go_back(events: list[int], most_bytes: int) -> None:
    """It holds no more than it may, and refuses only what would not fit beside the segments that are in use."""
    fast, plenty, held = CachingAllocator(most_bytes), CachingAllocator(), list[tuple[MemoryBlock, MemoryBlock]]()
    refused = None
    for event in events:
        if event > 0:
            try:
                held.append((fast.take(event), plenty.take(event)))
            except OutOfMemoryError as error:
                refused = error
                break
        elif held:
            for allocator, block in zip((fast, plenty), held.pop(event % len(held)), strict=True):
                allocator.give(block)
        assert fast.allocated_bytes <= fast.reserved_bytes <= fast.most_reserved_bytes <= most_bytes
    if plenty.most_reserved_bytes <= most_bytes:
        assert fast.most_reserved_bytes == plenty.most_reserved_bytes
    if refused is not None:
        assert refused.needed_bytes > most_bytes
        assert refused.needed_bytes - fast.allocated_bytes >= event


def test_segments_that_are_wholly_free_make_room_for_one_of_another_size() -> None:
    def run(most_bytes: int) -> CachingAllocator:
        allocator = CachingAllocator(most_bytes)
        first = allocator.take(30 * MIB)
        allocator.take(4 * MIB)  # of a segment of 20 MiB, which stays
        allocator.give(first)
        allocator.take(40 * MIB)
        return allocator

    assert run(90 * MIB).most_reserved_bytes == 90 * MIB
    assert run(89 * MIB).most_reserved_bytes == run(60 * MIB).most_reserved_bytes == 60 * MIB
    with pytest.raises(OutOfMemoryError) as refused:
        run(60 * MIB - 1)
    assert refused.value.needed_bytes == 60 * MIB


def test_a_long_run_is_quick() -> None:
    allocator = CachingAllocator()
    sizes = [512 + i * 7919 % (50 * MIB) for i in range(1000)]

    def run() -> None:
        held: list[MemoryBlock] = []
        for i in range(25):
            held += [allocator.take(size) for size in sizes]
            for block in held[i % 2 :: 2]:
                allocator.give(block)
            held = held[1 - i % 2 :: 2]

    with at_most_calls(1_000_000):
        run()
