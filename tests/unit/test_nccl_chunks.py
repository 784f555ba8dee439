"""Chunk sizes of NVLS, compared with NCCL's rules applied by hand."""

from __future__ import annotations

import pytest

from simulator.collectives.nccl.kernels import largest_chunk, rounds_from


@pytest.mark.parametrize(
    ("size", "largest", "tree", "expected"),
    [
        (64 * 128 * 2**17, 2**17, False, [(2**30, 64)]),
        (2**30 - 1, 2**17, False, [(2**30 - 1, 128), (2**30, 64)]),
        (2**26, 2**17, False, [(2**26, 8), (2**30, 64)]),
        (2**20, 2**17, False, [(2**20, 0.5), (2**23, 2), (2**26, 8), (2**30, 64)]),
        (2**26, 2**17, True, [(2**26, 4)]),
        (2**26, 2**16, True, [(2**26, 8)]),
        (2**22, 2**17, True, [(2**22, 1), (2**23, 1), (2**26, 4)]),
    ],
)
def test_chunks_are_smaller_where_rounds_would_be_few(
    size: int, largest: int, tree: bool, expected: list[tuple[float, float]]
) -> None:
    """By hand, for 16 channels and 8 heads; NVIDIA/nccl src/enqueue.cc, calcCollChunking."""
    found = rounds_from(size, 128, largest, tree=tree)
    assert [pair for each in found for pair in each] == pytest.approx([pair for each in expected for pair in each])


def test_from_four_machines_on_trees_have_chunks_of_half_the_size() -> None:
    assert [largest_chunk(tree=True, n_hosts=n, on_efa=False) for n in (2, 3, 4)] == [2**17, 2**17, 2**16]
    assert largest_chunk(tree=True, n_hosts=4, on_efa=True) == 2**19
