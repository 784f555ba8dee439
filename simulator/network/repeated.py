"""Sequences of devices or links of equal hosts, created on demand from the first host's: :class:`Repeated`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

F = TypeVar("F")
T = TypeVar("T")
U = TypeVar("U")


class Repeated(Sequence[T], Generic[F, T]):
    """Elements in runs: within a run, every host has the same number of elements as the first.

    Elements are created on first access, so thousands of unused hosts cost nothing.

    Parameters
    ----------
    make : callable
        Returns an element, given the first host's element in that place, the element's number, and the host's offset
        from the first host of the run.
    """

    def __init__(self, make: Callable[[F, int, int], T]) -> None:
        self._make = make
        self._runs: list[tuple[int, int, list[F]]] = []  # first number, count of hosts, the first host's elements
        self._hosts: list[int] = []  # the first host of each run
        self._made: dict[int, T] = {}

    def begin(self, hosts: int, first: int = 0) -> None:
        """Begin a run of *hosts* equal hosts; *first* is the number of the first one."""
        self._runs.append((len(self), hosts, []))
        self._hosts.append(first)

    def add(self, first: F) -> int:
        """Add an element of the *first* host to the run; return its number."""
        start, _, run = self._runs[-1]
        run.append(first)
        return start + len(run) - 1

    def firsts(self) -> list[F]:
        """Return, for every element, the first host's element in that place."""
        return [first for _, hosts, run in self._runs for first in run * hosts]

    def stride(self, number: int) -> int:
        """Return the difference to the number of the next host's element; 0 if there is only one host."""
        _, hosts, run = self._runs[self._at(number)]
        return len(run) if hosts > 1 else 0

    def hosts(self, number: int) -> range:
        """Return the hosts that have an element corresponding to *number*."""
        at = self._at(number)
        return range(self._hosts[at], self._hosts[at] + self._runs[at][1])

    def host(self, number: int) -> int:
        """Return the host of element *number*."""
        at = self._at(number)
        start, _, run = self._runs[at]
        return self._hosts[at] + (number - start) // len(run)

    def otherwise(self, make: Callable[[F, int, int], U]) -> Repeated[F, U]:
        """Return a sequence of the same shape with elements created by *make*."""
        other = Repeated(make)
        other._runs, other._hosts = self._runs, self._hosts
        return other

    def _at(self, number: int) -> int:
        """Return the index of the run that contains element *number*.  Raises IndexError if there is none."""
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
