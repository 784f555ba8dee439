"""Results that are found once."""

from __future__ import annotations

import pytest

from simulator.errors import InputError
from simulator.kept import Kept


def test_errors_are_kept_and_raised_anew() -> None:
    kept, asked = Kept(), []

    def refused() -> int:
        asked.append(1)
        raise InputError("no such thing")

    errors = []
    for _ in range(3):
        with pytest.raises(InputError, match="no such thing") as found:
            kept.once("a", refused)
        errors.append(found.value)
    assert len(asked) == 1
    assert errors[1] is not errors[2]  # so that no traceback grows


def test_of_many_results_the_last_used_stay() -> None:
    kept, found = Kept(most=2), []

    def once(key: int) -> int:
        return kept.once(key, lambda: found.append(key) or 10 * key)  # type: ignore[func-returns-value]

    assert [once(key) for key in (1, 2, 1, 3, 1, 2, 4, 1)] == [10, 20, 10, 30, 10, 20, 40, 10]
    assert found == [1, 2, 3, 4]
    for key in range(5, 15):
        once(key)
    assert once(1) == 10
    assert found.count(1) == 2


def test_a_copy_lacks_some() -> None:
    kept = Kept()
    assert [kept.once(key, lambda key=key: key) for key in (1, 2)] == [1, 2]
    other = kept.without(2)
    assert [other.once(key, lambda: 0) for key in (1, 2)] == [1, 0]
    assert kept.once(2, lambda: 0) == 2
