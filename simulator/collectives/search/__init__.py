"""Searches for rings and trees in the link graph of a machine, and how many of them its links carry at once (packing).

Packing chooses a largest multiset of candidates that share limited units, within a :class:`Budget` of steps.  Budgets
are counted in steps instead of seconds so that equal inputs give equal results everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Generic, TypeVar


class Budget:
    """A number of steps.  ``ended`` tells whether they ran out; a search then returns its best result so far."""

    def __init__(self, steps: int, whole: Budget | None = None) -> None:
        self._left = steps
        self._whole = whole
        self.ended = False

    def part(self, steps: int) -> Budget:
        """Return a budget of *steps* for one of several searches that share this budget; it ends when either ends."""
        return Budget(steps, self)

    def spend(self, steps: int = 1) -> bool:
        """Take *steps*; return False if none are left."""
        self._left -= steps
        if self._left < 0 or (self._whole is not None and not self._whole.spend(steps)):
            self.ended = True
        return not self.ended


def say_ended(notes: list[str], whole: Sequence[bool]) -> None:
    """Add a note, once, if any of the searches ended at its budget; *whole* tells for each whether it was complete."""
    said = "the search for rings ended at its budget of steps: these are the best found, others may be faster"
    if not all(whole) and said not in notes:
        notes.append(said)


def greedy_order(start: int, among: Sequence[int], distance: Callable[[int, int], Any]) -> tuple[int, ...]:
    """Return the order of *among* from *start* on in which each is followed by the nearest remaining one."""
    order, left = [start], [each for each in among if each != start]
    while left:
        order.append(min(left, key=partial(distance, order[-1])))
        left.remove(order[-1])
    return tuple(order)


Edge = TypeVar("Edge", bound=Hashable)


def pack(candidates: Sequence[Mapping[Edge, int]], units: Mapping[Edge, int], bound: int, budget: Budget) -> list[int]:
    """Return indices into *candidates* (the units of each edge that one takes), as often as each is taken of *units*.

    The search is depth first and tries the highest multiplicity of each candidate first, so of two answers of equal
    size it finds the one with fewer distinct candidates first.  It prunes a branch if all free units together could not
    improve on the best answer, and stops with *bound* taken, or at the end of the *budget*, of which a candidate that
    does not fit, or an edge of one that fits, is a step.
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
