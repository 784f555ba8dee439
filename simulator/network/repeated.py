"""Devices and links of equal hosts, derived from the first host on demand: :class:`Repeated`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["Repeated"]

F = TypeVar("F")
T = TypeVar("T")
U = TypeVar("U")


class Repeated(Sequence[T], Generic[F, T]):
    """Elements in runs: of each run every host in turn has as many as the first.

    Thousands of hosts of which nothing is asked cost nothing: an element is made when it is first asked for.

    Parameters
    ----------
    make : callable
        Returns an element from what the first host of the run has in its place, its number, and how many hosts after
        that first one its own is.
    """

    def __init__(self, make: Callable[[F, int, int], T]) -> None:
        self._make = make
        self._runs: list[tuple[int, int, list[F]]] = []  # first number, hosts, what the first host has
        self._hosts: list[int] = []  # of each run, its first host
        self._made: dict[int, T] = {}

    def begin(self, hosts: int, first: int = 0) -> None:
        """Begin a run of what each of *hosts* has, of which the *first* is so called."""
        self._runs.append((len(self), hosts, []))
        self._hosts.append(first)

    def add(self, first: F) -> int:
        """Add to the run what the *first* host has; return its number."""
        start, _, run = self._runs[-1]
        run.append(first)
        return start + len(run) - 1

    def firsts(self) -> list[F]:
        """Return, for all elements, what the first host has in their place."""
        return [first for _, hosts, run in self._runs for first in run * hosts]

    def stride(self, number: int) -> int:
        """Return how far off the element *number* is that of the next host; 0 where one is for all."""
        _, hosts, run = self._runs[self._at(number)]
        return len(run) if hosts > 1 else 0

    def hosts(self, number: int) -> range:
        """Return the hosts that have one as the element *number* each."""
        at = self._at(number)
        return range(self._hosts[at], self._hosts[at] + self._runs[at][1])

    def host(self, number: int) -> int:
        """Return which host has the element *number*."""
        at = self._at(number)
        start, _, run = self._runs[at]
        return self._hosts[at] + (number - start) // len(run)

    def otherwise(self, make: Callable[[F, int, int], U]) -> Repeated[F, U]:
        """Return another element for each: what *make* returns."""
        other = Repeated(make)
        other._runs, other._hosts = self._runs, self._hosts
        return other

    def _at(self, number: int) -> int:
        """Return which run has the element *number*."""
        for at in reversed(range(len(self._runs))):
            if self._runs[at][0] <= number and self._runs[at][2]:
                return at
        raise IndexError(number)

    def __len__(self) -> int:
        start, hosts, run = self._runs[-1] if self._runs else (0, 0, [])
        return start + hosts * len(run)

    def __getitem__(self, number: int) -> T:  # type: ignore[override]  # nobody slices
        made = self._made.get(number)
        if made is None:
            start, hosts, run = self._runs[self._at(number)]
            host, place = divmod(number - start, len(run))
            if host >= hosts:
                raise IndexError(number)
            made = self._made[number] = self._make(run[place], number, host)
        return made
