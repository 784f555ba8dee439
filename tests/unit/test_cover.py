"""Each pair of values that occurs is covered, by fewer cases than there are."""

from __future__ import annotations

from itertools import combinations, product

from tests.cover import covering


def test_every_pair_that_occurs_is_covered_by_few() -> None:
    cases = {f"{a}{b}{c}{d}": (a, b, c, d) for a, b, c, d in product("ab", "ab", "abc", "abc")}
    chosen = covering(cases)
    assert len(chosen) <= 12 < len(cases)
    for i, j in combinations(range(4), 2):
        assert {(case[i], case[j]) for case in chosen} == {(case[i], case[j]) for case in cases}
    assert covering({"x": (1, 2), "y": (1, 2)}) == ["x"]
