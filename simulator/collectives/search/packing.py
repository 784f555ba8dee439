"""Choose, among candidates that draw on shared units, a multiset that uses the most of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from simulator.collectives.search.budget import Budget

__all__ = ["pack"]

Edge = TypeVar("Edge", bound=Hashable)


def pack(candidates: Sequence[Mapping[Edge, int]], units: Mapping[Edge, int], bound: int, budget: Budget) -> list[int]:
    """Return indices into *candidates*, repeated as often as each is taken.

    Depth first, each candidate as often as it fits before less often, so that of two answers of equal size the one with
    fewer different candidates is found first.  A branch ends where all that is free would not make a better answer.
    The search stops at *bound* taken, or at the end of its budget with the best found so far.

    *candidates*: how many units of each edge a candidate takes; of one edge at least.
    *units*: how many units each of these edges has.
    *bound*: no answer is larger than this.
    *budget*: a step is a candidate for which there is no room, or an edge of one for which there is.
    """
    free = dict(units)
    needs = [list(one.items()) for one in candidates]
    sizes = [sum(one.values()) for one in candidates]
    least = list(accumulate(reversed(sizes), min))[::-1]  # from each candidate on
    best: list[int] = []
    taken: list[int] = []

    def following(start: int) -> Iterator[tuple[int, int]]:
        """Yield the candidates from *start* on that fit, with how often each does, while the budget lasts."""
        looked_at = start
        for i in range(start, len(needs)):
            times = bound - len(taken)
            for edge, need in needs[i]:
                fits = free[edge] // need
                if fits < times:
                    times = fits
                    if not fits:
                        break
            else:
                if not budget.spend(i - looked_at + len(needs[i])):
                    return
                looked_at = i + 1
                yield i, times
        budget.spend(len(needs) - looked_at)

    def visit(start: int, left: int) -> bool:
        """Go on with the candidates from *start* on, *left* units being free; True where the search is over."""
        nonlocal best
        if len(taken) > len(best):
            best = list(taken)
        if len(best) >= bound:
            return True
        for i, most in following(start):
            if len(taken) + left // least[i] <= len(best):
                break
            for times in range(most, 0, -1):
                for edge, need in needs[i]:
                    free[edge] -= need * times
                taken.extend([i] * times)
                over = visit(i + 1, left - sizes[i] * times)
                del taken[len(taken) - times :]
                for edge, need in needs[i]:
                    free[edge] += need * times
                if over:
                    return True
        return budget.ended

    visit(0, sum(free.values()))
    return best
