"""Packing: choose a largest multiset of candidates that share limited units."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from simulator.collectives.search.budget import Budget

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
    packing = _Packing([list(one.items()) for one in candidates], dict(units), bound, budget)
    packing.visit(0, sum(units.values()))
    return packing.best


class _Packing(Generic[Edge]):
    """The state of the search: the ``taken`` candidates, the units still ``free``, and the best answer so far."""

    def __init__(self, needs: list[list[tuple[Edge, int]]], free: dict[Edge, int], bound: int, budget: Budget) -> None:
        self._needs, self._free, self._bound, self._budget = needs, free, bound, budget
        self._sizes = [sum(need for _, need in one) for one in needs]
        self._least = list(accumulate(reversed(self._sizes), min))[::-1]  # smallest size from each candidate on
        self._taken: list[int] = []
        self.best: list[int] = []

    def visit(self, start: int, left: int) -> bool:
        """Extend the current answer with candidates from *start* on, *left* units being free; return True to stop."""
        if len(self._taken) > len(self.best):
            self.best = list(self._taken)
        if len(self.best) >= self._bound:
            return True
        for i, most in self._following(start):
            if len(self._taken) + left // self._least[i] <= len(self.best):
                break
            for times in range(most, 0, -1):
                self._take(i, times)
                self._taken.extend([i] * times)
                over = self.visit(i + 1, left - self._sizes[i] * times)
                del self._taken[len(self._taken) - times :]
                self._take(i, -times)
                if over:
                    return True
        return self._budget.ended

    def _take(self, i: int, times: int) -> None:
        for edge, need in self._needs[i]:
            self._free[edge] -= need * times

    def _following(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield (index, multiplicity) of the candidates from *start* on that fit, while the budget lasts."""
        needs, free, budget = self._needs, self._free, self._budget
        looked_at = start
        for i in range(start, len(needs)):
            times = self._bound - len(self._taken)
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
