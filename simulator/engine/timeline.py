"""Who did what, and when: what an executed plan leaves behind."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from simulator.network.machine import Machine
from simulator.plan.plan import Plan

__all__ = ["Moved", "Span", "Timeline"]


@dataclass(frozen=True, slots=True)
class Span:
    """One task's time.

    ``round_s`` is the time of one round of a transfer (the first one); ``flow_ends_s`` when
    each of its flows had arrived, since the start of that round.
    """

    task: int
    start_s: float
    end_s: float
    round_s: float = 0.0
    flow_ends_s: tuple[float, ...] = ()


class Moved(Sequence[float]):
    """The bytes that each of *n* links or resources carried; of perhaps a million only those that did are kept."""

    __slots__ = ("_bytes", "_n", "_numbers")

    def __init__(self, n: int, by_number: Mapping[int, float]) -> None:
        self._n = n
        self._numbers = array("q", sorted([number for number, n_bytes in by_number.items() if n_bytes]))
        self._bytes = array("d", [by_number[number] for number in self._numbers])

    def carried(self) -> Iterator[tuple[int, float]]:
        """Yield those that carried any, in order, with how many."""
        return zip(self._numbers, self._bytes, strict=True)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, number: int) -> float:  # type: ignore[override]  # nobody slices
        if not 0 <= number < self._n:
            raise IndexError(number)
        at = bisect_left(self._numbers, number)
        return self._bytes[at] if at < len(self._numbers) and self._numbers[at] == number else 0.0

    def __iter__(self) -> Iterator[float]:
        passed = 0
        for number, n_bytes in self.carried():
            yield from repeat(0.0, number - passed)
            yield n_bytes
            passed = number + 1
        yield from repeat(0.0, self._n - passed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moved) and (self._n, self._numbers, self._bytes) == (
            other._n,
            other._numbers,
            other._bytes,
        )

    def __hash__(self) -> int:
        return hash((self._n, self._numbers.tobytes(), self._bytes.tobytes()))


@dataclass(frozen=True, slots=True)
class Timeline:
    """The result of an engine run; ``spans`` stand in the order of the plan's tasks."""

    machine: Machine
    plan: Plan
    spans: tuple[Span, ...]
    end_s: float
    link_bytes: Moved  # on the wire, by link
    resource_bytes: Moved  # by resource
    simulation_events: int
