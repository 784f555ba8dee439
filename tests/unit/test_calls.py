"""The limit of function calls ends what would never end, and counts calls of Python and C functions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pytest

from tests.calls import CountedCalls, TooManyCallsError, at_most_calls


def _doubled(numbers: Iterable[int]) -> None:
    for n in numbers:
        _twice(n)


def _twice(n: int) -> int:
    return abs(n) + abs(n)


def test_calls_of_both_kinds_are_counted() -> None:
    with CountedCalls() as counted:
        _doubled(range(100))
    assert 300 <= counted.so_far < 320


def test_more_calls_than_allowed_fail() -> None:
    with at_most_calls(320):
        _doubled(range(100))
    with pytest.raises(TooManyCallsError, match="more than 280 calls"), at_most_calls(280):
        _doubled(range(100))


def test_calls_without_an_end_are_ended() -> None:
    with pytest.raises(TooManyCallsError), at_most_calls(1000):
        _doubled(count())
