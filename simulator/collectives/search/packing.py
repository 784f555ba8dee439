"""Packing: choose a largest multiset of candidates that share limited units."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from simulator.collectives.search.budget import Budget

__all__ = ["pack"]

Edge = TypeVar("Edge", bound=Hashable)


def pack(candidates: Sequence[Mapping[Edge, int]], units: Mapping[Edge, int], bound: int, budget: Budget) -> list[int]:
    """Return indices into *candidates*, each repeated as often as the candidate is taken.

    The search is depth first and tries the highest multiplicity of each candidate first, so of two answers of equal
    size it finds the one with fewer distinct candidates first.  It prunes a branch if all free units together could not
    improve on the best answer.  It stops with *bound* candidates taken, or at the end of the budget with the best
    answer so far.

    *candidates*: the units of each edge that a candidate takes; at least one edge each.
    *units*: the available units of each edge.
    *bound*: the largest possible answer.
    *budget*: a step is a candidate that does not fit, or an edge of one that fits.
    """
    free = dict(units)
    needs = [list(one.items()) for one in candidates]
    sizes = [sum(one.values()) for one in candidates]
    least = list(accumulate(reversed(sizes), min))[::-1]  # smallest size from each candidate on
    best: list[int] = []
    taken: list[int] = []

    def following(start: int) -> Iterator[tuple[int, int]]:
        """Yield (index, multiplicity) of the candidates from *start* on that fit, while the budget lasts."""
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
        """Extend the current answer with candidates from *start* on, *left* units being free; return True to stop."""
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
