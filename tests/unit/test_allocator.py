"""The caching allocator against sums done by hand."""

from __future__ import annotations

import pytest

from simulator.step.allocator import CachingAllocator

MIB = 2**20


@pytest.mark.parametrize(
    ("n_bytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # what is left over, 1 MiB, stays with the block
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),  # and a little more is split off
        (100 * MIB + 1, 100 * MIB + 512, 102 * MIB),
    ],
)
def test_one_request(n_bytes: int, allocated: int, reserved: int) -> None:
    allocator = CachingAllocator()
    block = allocator.take(n_bytes)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (allocated, reserved)
    allocator.give(block)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, reserved)
    assert (allocator.most_allocated_bytes, allocator.most_reserved_bytes) == (allocated, reserved)


def test_small_requests_share_a_segment_and_large_ones_another() -> None:
    allocator = CachingAllocator()
    for _ in range(4096):  # 512 B each, 2 MiB
        allocator.take(100)
    assert allocator.reserved_bytes == 2 * MIB
    allocator.take(1)
    assert allocator.reserved_bytes == 4 * MIB
    for _ in range(4):  # 5 MiB each, 20 MiB
        allocator.take(5 * MIB)
    assert allocator.reserved_bytes == 24 * MIB


def test_freed_neighbours_are_no_use_to_a_larger_request() -> None:
    allocator = CachingAllocator()
    first, second = allocator.take(40 * MIB), allocator.take(40 * MIB)
    allocator.give(first)
    allocator.give(second)
    allocator.take(120 * MIB)
    assert allocator.reserved_bytes == 200 * MIB


def test_the_smallest_block_that_fits_is_taken_and_the_rest_of_it_used() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.take(size * MIB) for size in (60, 40, 50)]
    for block in blocks:
        allocator.give(block)
    assert allocator.take(39 * MIB).size_bytes == 40 * MIB
    assert allocator.take(45 * MIB).size_bytes == 45 * MIB  # of the 50
    assert allocator.take(4 * MIB).size_bytes == 5 * MIB  # the rest of these
    assert allocator.reserved_bytes == 150 * MIB


def test_what_is_not_in_use_is_not_returned() -> None:
    allocator = CachingAllocator()
    block = allocator.take(1)
    allocator.give(block)
    with pytest.raises(ValueError, match="not in use"):
        allocator.give(block)
