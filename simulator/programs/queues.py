"""The queue of one stream: which operator has which number, also of those that passed at once.

An entry is taken when the host issues an operator and given back when that is done, in order; so operator ``n`` of a
queue of ``depth`` entries cannot be issued before operator ``n - depth`` is done.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

__all__ = ["Entry", "StreamQueue"]


@dataclass(frozen=True, slots=True)
class Entry:
    """An operator: ``late_s`` after the end of the activity ``number``."""

    number: int
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Passed:
    """``times`` repetitions of the operators ``base``, each ``period_s`` after that before; from operator ``first``."""

    first: int
    base: tuple[Entry, ...]
    times: int
    period_s: float

    def at(self, number: int) -> Entry:
        again, place = divmod(number - self.first, len(self.base))
        base = self.base[place]
        return Entry(base.number, base.late_s + (again + 1) * self.period_s)


@dataclass(slots=True)
class StreamQueue:
    """Operators of a stream in the order of issue; ``count`` is how many there have been."""

    depth: int
    count: int = 0
    _written: dict[int, int] = field(default_factory=dict)  # operator -> activity
    _passed: list[_Passed] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Note that the activity *number* is the next operator."""
        self._written[self.count] = number
        self.count += 1

    def entry(self, operator: int) -> Entry:
        """Return when the operator of that number is done."""
        number = self._written.get(operator)
        if number is not None:
            return Entry(number)
        return next(passed for passed in reversed(self._passed) if passed.first <= operator).at(operator)

    def blocker(self) -> Entry | None:
        """Return what the next operator waits for; None where there is room."""
        if not self.depth or self.count < self.depth:
            return None
        return self.entry(self.count - self.depth)

    def skip(self, operators: int, times: int, period_s: float) -> None:
        """Note that the last *operators* came *times* more, each time *period_s* later."""
        if operators and times:
            base = tuple(self.entry(n) for n in range(self.count - operators, self.count))
            self._passed.append(_Passed(self.count, base, times, period_s))
            self.count += operators * times

    def pieces(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the operators from *first* to before *last* in pieces, within each of which times grow evenly.

        Each is its first and last number.  Those to come count as evenly too.
        """
        cuts = {first, last, min(max(self.count, first), last)}
        for passed in self._passed:
            cuts.update((passed.first, passed.first + len(passed.base) * passed.times))
        cuts.update(n for n in self._written)
        cuts.update(n + 1 for n in self._written)
        inside = sorted(cut for cut in cuts if first <= cut <= last)
        return [(a, b - 1) for a, b in itertools.pairwise(inside) if b > a]
