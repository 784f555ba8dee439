"""Packing candidates beside each other: small cases by hand, what is taken first, and where the search ends."""

from __future__ import annotations

import pytest

from simulator.collectives.search.budget import Budget
from simulator.collectives.search.packing import pack


@pytest.mark.parametrize(
    ("candidates", "units", "bound", "taken"),
    [
        ([{"a": 1}], {"a": 3}, 5, [0, 0, 0]),
        ([{"a": 1}], {"a": 3}, 2, [0, 0]),
        ([{"a": 2}], {"a": 5}, 5, [0, 0]),
        ([{"a": 1, "b": 2}], {"a": 5, "b": 5}, 5, [0, 0]),  # the edge with least room decides
        ([{"b": 2, "a": 1}], {"a": 1, "b": 5}, 5, [0]),
        ([{"a": 1}], {"b": 1}, 1, []),  # an edge that is not there
        ([{"a": 2}], {"a": 1}, 1, []),
        ([], {"a": 1}, 1, []),
        ([{"a": 1}], {"a": 1}, 0, []),
        ([{"a": 1, "b": 1}, {"a": 1}, {"b": 1}], {"a": 1, "b": 1}, 2, [1, 2]),  # not the first that fits
        ([{"a": 1}, {"b": 1}], {"a": 2, "b": 2}, 2, [0, 0]),  # of equal answers that of fewer candidates
        ([{"a": 1}, {"b": 1}], {"a": 2, "b": 2}, 3, [0, 0, 1]),
        ([{"a": 1, "b": 1}, {"a": 1, "c": 1}, {"b": 1}], {"a": 2, "b": 2, "c": 1}, 3, [0, 1, 2]),  # once, not twice
        ([{"a": 3}, {"a": 2}], {"a": 4}, 2, [1, 1]),  # what was taken is given back whole
        ([{"a": 1, "b": 3}, {"a": 1, "b": 1}], {"a": 3, "b": 3}, 3, [1, 1, 1]),
    ],
)
def test_what_is_taken(candidates: list[dict[str, int]], units: dict[str, int], bound: int, taken: list[int]) -> None:
    before = dict(units)
    assert pack(candidates, units, bound) == taken
    assert units == before


class Watched(dict[int, int]):
    """A candidate that counts how often it is looked at."""

    def __init__(self, looked: list[int], needs: dict[int, int]) -> None:
        super().__init__(needs)
        self.looked = looked

    def items(self):  # type: ignore[no-untyped-def,override]
        self.looked[0] += 1
        return super().items()


@pytest.fixture
def looked() -> list[int]:
    return [0]


def of_pairs(n: int) -> list[dict[int, int]]:
    """Return candidates that each take one unit of two of *n* edges."""
    return [{a: 1, b: 1} for a in range(n) for b in range(a + 1, n)]


def test_a_search_that_comes_to_its_end_says_nothing() -> None:
    budget = Budget(1)
    assert len(pack(of_pairs(5), dict.fromkeys(range(5), 1), 3, budget)) == 2  # of three there is no answer
    assert not budget.ended


def test_a_search_that_does_not_end_has_the_best_so_far() -> None:
    """Of 31 edges 15 pairs are found at once, and no 16 in all the ways that there are."""
    budget = Budget(1)
    assert len(pack(of_pairs(31), dict.fromkeys(range(31), 1), 16, budget)) == 15
    assert budget.ended
    assert len(pack(of_pairs(31), dict.fromkeys(range(31), 1), 16)) == 15


def test_an_answer_as_large_as_the_bound_ends_it(looked: list[int]) -> None:
    candidates = [Watched(looked, pair) for pair in of_pairs(10)]
    assert len(pack(candidates, dict.fromkeys(range(10), 1), 5)) == 5
    assert looked[0] == 45 + 2 * 5  # each candidate once, and those that are taken once more and given back


def test_many_visits_end_it_before_many_candidates(looked: list[int]) -> None:
    budget = Budget(1)
    assert len(pack([Watched(looked, pair) for pair in of_pairs(11)], dict.fromkeys(range(11), 1), 6, budget)) == 5
    assert budget.ended
    assert looked[0] < 20_000  # by candidates alone it would be 100,000


def test_many_candidates_end_it_before_many_visits(looked: list[int]) -> None:
    candidates = [Watched(looked, {-1: 1, i: 1}) for i in range(1_000)]  # of which two never fit beside each other
    budget = Budget(1)
    assert pack(candidates, dict.fromkeys(range(-1, 1_000), 1), 2, budget) == [0]
    assert budget.ended
    assert looked[0] < 90_000  # each with all that follow it would be 500,000
