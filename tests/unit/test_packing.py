"""Packing candidates together: small cases by hand, the order of choice, and the end of the search."""

from __future__ import annotations

import pytest

from simulator.collectives.search import Budget, pack


@pytest.mark.parametrize(
    ("candidates", "units", "bound", "taken"),
    [
        ([{"a": 1}], {"a": 3}, 5, [0, 0, 0]),
        ([{"a": 1}], {"a": 3}, 2, [0, 0]),
        ([{"a": 2}], {"a": 5}, 5, [0, 0]),
        ([{"a": 1, "b": 2}], {"a": 5, "b": 5}, 5, [0, 0]),  # the edge with the least room decides
        ([{"b": 2, "a": 1}], {"a": 1, "b": 5}, 5, [0]),
        ([{"a": 2}], {"a": 1}, 1, []),
        ([], {"a": 1}, 1, []),
        ([{"a": 1}], {"a": 1}, 0, []),
        ([{"a": 1, "b": 1}, {"a": 1}, {"b": 1}], {"a": 1, "b": 1}, 2, [1, 2]),  # not the first that fits
        ([{"a": 1}, {"b": 1}], {"a": 2, "b": 2}, 2, [0, 0]),  # of equally good answers, the one with fewer candidates
        ([{"a": 1}, {"b": 1}], {"a": 2, "b": 2}, 3, [0, 0, 1]),
        ([{"a": 1, "b": 1}, {"a": 1, "c": 1}, {"b": 1}], {"a": 2, "b": 2, "c": 1}, 3, [0, 1, 2]),  # once, not twice
        ([{"a": 3}, {"a": 2}], {"a": 4}, 2, [1, 1]),  # backtracking restores all units
        ([{"a": 1, "b": 3}, {"a": 1, "b": 1}], {"a": 3, "b": 3}, 3, [1, 1, 1]),
    ],
)
def test_what_is_taken(candidates: list[dict[str, int]], units: dict[str, int], bound: int, taken: list[int]) -> None:
    before = dict(units)
    assert pack(candidates, units, bound, Budget(100)) == taken
    assert units == before


def of_pairs(n: int) -> list[dict[int, int]]:
    """Return candidates that each take one unit of two of *n* edges."""
    return [{a: 1, b: 1} for a in range(n) for b in range(a + 1, n)]


def test_a_search_that_comes_to_its_end_says_nothing() -> None:
    budget = Budget(1_000)
    assert len(pack(of_pairs(5), dict.fromkeys(range(6), 1), 3, budget)) == 2  # three do not fit
    assert not budget.ended


def test_what_is_left_cannot_make_more_and_ends_a_branch() -> None:
    """With 31 edges, 15 pairs are found at once; 16 would take 32 edges, so nothing else is tried."""
    budget = Budget(1_000)
    assert len(pack(of_pairs(31), dict.fromkeys(range(31), 1), 16, budget)) == 15
    assert not budget.ended


def test_a_search_that_does_not_end_has_the_best_so_far() -> None:
    """With one more edge, which no pair uses, every combination would be tried."""
    budget = Budget(5_000)
    assert len(pack(of_pairs(31), dict.fromkeys(range(32), 1), 16, budget)) == 15
    assert budget.ended


def test_an_answer_as_large_as_the_bound_ends_it() -> None:
    """Each of the five pairs found costs two steps, and each of the 40 misfits between them one."""
    assert len(pack(of_pairs(10), dict.fromkeys(range(10), 1), 5, Budget(5 * 2 + 40))) == 5
    budget = Budget(5 * 2 + 39)
    assert len(pack(of_pairs(10), dict.fromkeys(range(10), 1), 5, budget)) == 4
    assert budget.ended


def test_candidates_without_room_cost_too() -> None:
    """Of a thousand candidates no two fit together: after the first, all others are checked."""
    candidates = [{-1: 1, i: 1} for i in range(1_000)]
    units = dict.fromkeys(range(-1, 1_000), 1)
    budget = Budget(900)
    assert pack(candidates, units, 2, budget) == [0]
    assert budget.ended
