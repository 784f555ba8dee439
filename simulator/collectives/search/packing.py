"""Choose, among candidates that draw on shared units, a multiset that uses the most of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from simulator.collectives.search.budget import Budget

__all__ = ["pack"]

Edge = TypeVar("Edge", bound=Hashable)
_MAX_VISITS = 2_000
_MAX_TRIED = 80_000  # candidates for which room was looked for


def pack(
    candidates: Sequence[Mapping[Edge, int]], units: Mapping[Edge, int], bound: int, budget: Budget | None = None
) -> list[int]:
    """Return indices into *candidates*, repeated as often as each is taken.

    Depth first, each candidate as often as it fits before less often, so that of two answers of equal size the one with
    fewer different candidates is found first.  Stops at *bound* taken, or after a fixed number of visits and of
    candidates tried with the best found so far; all are deterministic.

    *candidates*: how many units of each edge a candidate takes.
    *units*: how many units each edge has.
    *bound*: no answer is larger than this.
    *budget*: is told where the search did not come to its end.
    """
    free = dict(units)
    best: list[int] = []
    taken: list[int] = []
    visits = tried = 0

    def room(index: int) -> int:
        least = bound
        for edge, need in candidates[index].items():
            fits = free.get(edge, 0) // need
            if not fits:
                return 0
            least = min(least, fits)
        return least

    def visit(start: int) -> bool:
        nonlocal best, visits, tried
        visits += 1
        if len(taken) > len(best):
            best = list(taken)
        if len(best) >= bound:
            return True
        if visits > _MAX_VISITS or tried > _MAX_TRIED:
            if budget is not None:
                budget.ended = True
            return True
        tried += len(candidates) - start
        for index in range(start, len(candidates)):
            fits = room(index)
            for times in range(min(fits, bound - len(taken)), 0, -1):
                for edge, need in candidates[index].items():
                    free[edge] -= need * times
                taken.extend([index] * times)
                done = visit(index + 1)
                del taken[len(taken) - times :]
                for edge, need in candidates[index].items():
                    free[edge] += need * times
                if done:
                    return True
        return False

    visit(0)
    return best
