"""Attention's thread blocks on SMs, compared with starting each block on the SM that is free first."""

from __future__ import annotations

import heapq
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.devices.gpu.attention import ROWS, Blocks, blocks_of, spread_over
from simulator.workload.operators import FusedAttention

STEP, BLOCK = 700.0, 3000.0


def kernel(batch: int, heads: int, length: int, *, kv_heads: int = 0, causal: bool = True) -> FusedAttention:
    return FusedAttention("fwd", batch, heads, kv_heads or heads, length, length, 128, causal, "bf16")


def all_steps(asked: FusedAttention) -> list[int]:
    """Return the number of steps of each block, the longest first."""
    found = []
    for row in range(0, asked.query_length, ROWS):
        seen = min(row + ROWS, asked.query_length) if asked.causal else asked.key_length
        found += [ceil(seen / 64)] * (asked.batch * asked.heads)
    return sorted(found, reverse=True)


def simulated(steps: list[int], sms: int) -> float:
    """Return the end of the last block, each started on the SM that is free first."""
    free = [0.0] * sms
    for count in steps:
        heapq.heappush(free, heapq.heappop(free) + count * STEP + BLOCK)
    return max(free)


@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 40), st.booleans(), st.integers(1, 40))
def test_the_longest_first_end_no_sooner_and_hardly_later(
    batch: int, heads: int, rows: int, causal: bool, sms: int
) -> None:
    asked = kernel(batch, heads, rows * ROWS, causal=causal)
    predicted = spread_over(blocks_of(asked), sms, STEP, BLOCK, alone=1.0, last=0.0)
    found = simulated(all_steps(asked), sms)
    assert predicted <= found * (1 + 1e-9)
    assert found <= 4 / 3 * predicted  # Graham, "Bounds on multiprocessing timing anomalies", 1969


@given(st.integers(1, 8), st.integers(1, 16), st.integers(1, 20000), st.booleans())
def test_lengths_in_groups_are_those_of_all_blocks(batch: int, heads: int, length: int, causal: bool) -> None:
    asked = kernel(batch, heads, length, causal=causal)
    blocks, steps = blocks_of(asked), all_steps(asked)
    assert blocks.count == pytest.approx(len(steps))
    assert blocks.steps == pytest.approx(sum(steps), rel=0.02)
    lengths = [length for length, _ in blocks.lengths]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == pytest.approx(steps[0], rel=0.02)


@given(st.integers(1, 64), st.sampled_from([2, 4, 8]), st.integers(1, 64))
def test_packed_heads_never_make_more_blocks_or_steps(batch: int, group: int, length: int) -> None:
    asked = kernel(batch, 8, length, kv_heads=8 // group)
    packed, apart = blocks_of(asked, packs=True), blocks_of(asked)
    assert packed.count <= apart.count
    assert packed.steps <= apart.steps
    assert packed.count == batch * asked.kv_heads * ceil(length * group / ROWS)


def test_equal_blocks_go_in_waves() -> None:
    equal = Blocks(ROWS, 64, ((10.0, 133.0),))
    once = 10 * STEP + BLOCK
    assert spread_over(equal, 132, STEP, BLOCK, alone=1.0, last=0.0) == pytest.approx(2 * once)
    assert spread_over(equal, 133, STEP, BLOCK, alone=1.0, last=0.0) == pytest.approx(once)
    assert spread_over(equal, 133, STEP, BLOCK, alone=1.5, last=0.0) == pytest.approx(1.5 * once)


def test_one_that_starts_last_is_waited_for() -> None:
    equal = Blocks(ROWS, 64, ((10.0, 264.0),))
    once = 10 * STEP + BLOCK
    assert spread_over(equal, 132, STEP, BLOCK, alone=1.0, last=0.5) == pytest.approx(2.5 * once)


def test_gradients_are_shared_out_by_keys() -> None:
    asked = FusedAttention("bwd", 2, 4, 4, 128, 1024, 64, False, "bf16")
    assert blocks_of(asked) == Blocks(ROWS, 64, ((2.0, 64.0),))
