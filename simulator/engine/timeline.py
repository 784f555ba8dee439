"""The result of an executed plan: when each activity ran, and the bytes moved."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

from simulator.network.machine import Machine
from simulator.plan.plan import Activity, Plan
from simulator.records import dataclass, field


class Span(NamedTuple):
    """When a task ran, in seconds; of a transfer, the first round's length and when each flow arrived in it."""

    task: int
    start_s: float
    end_s: float
    round_s: float = 0.0
    flow_ends_s: tuple[float, ...] = ()

    @property
    def length_s(self) -> float:
        """Seconds from its start to its end."""
        return self.end_s - self.start_s


class LinkBytes(Sequence[float]):
    """The bytes moved over each of *n* links or resources; only nonzero entries are stored."""

    def __init__(
        self, n: int, by_number: Mapping[int, float], spread: Iterable[tuple[int, int, Sequence[int], float]] = ()
    ) -> None:
        """Store *by_number*, or *spread*: equal bytes on several hosts, as (number on host 0, stride, hosts, bytes)."""
        self._n = n
        self._spread = [each for each in spread if each[-1]]
        self._kept = None if self._spread else _in_order(by_number)

    def firsts(self) -> Iterator[tuple[int, float]]:
        """Yield (number, bytes) as :meth:`carried` does, but only the first of equal entries on equal hosts."""
        if not self._spread:
            return self.carried()
        return iter(sorted((zero + hosts[0] * stride, n_bytes) for zero, stride, hosts, n_bytes in self._spread))

    @property
    def _carried(self) -> tuple[array[int], array[float]]:
        if self._kept is None:
            on_all = {zero + host * stride: n_bytes for zero, stride, hosts, n_bytes in self._spread for host in hosts}
            self._kept = _in_order(on_all)
        return self._kept

    def carried(self) -> Iterator[tuple[int, float]]:
        """Yield (number, bytes) of all nonzero entries, in order."""
        return zip(*self._carried, strict=True)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, number: int) -> float:  # type: ignore[override]  # nobody slices
        if not 0 <= number < self._n:
            raise IndexError(number)
        if self._kept is None:
            for zero, stride, hosts, n_bytes in self._spread:
                if number == zero + hosts[0] * stride:
                    return n_bytes
        numbers, all_bytes = self._carried
        at = bisect_left(numbers, number)
        return all_bytes[at] if at < len(numbers) and numbers[at] == number else 0.0

    def __iter__(self) -> Iterator[float]:
        passed = 0
        for number, n_bytes in self.carried():
            yield from repeat(0.0, number - passed)
            yield n_bytes
            passed = number + 1
        yield from repeat(0.0, self._n - passed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkBytes) and (self._n, *self._carried) == (other._n, *other._carried)

    def __hash__(self) -> int:
        return hash((self._n, *(each.tobytes() for each in self._carried)))


def _in_order(by_number: Mapping[int, float]) -> tuple[array[int], array[float]]:
    numbers = array("q", sorted([number for number, n_bytes in by_number.items() if n_bytes]))
    return numbers, array("d", [by_number[number] for number in numbers])


@dataclass(frozen=True)
class Timeline:
    """An engine run's ``spans`` in the order of tasks; ``moved``: bytes of links (True) or resources, on demand."""

    machine: Machine
    plan: Plan
    spans: tuple[Span, ...]
    end_s: float
    simulation_events: int
    moved: Callable[[bool], LinkBytes] = field(compare=False)

    def ran(self, *about: type) -> Iterator[tuple[Activity, Span]]:
        """Yield each activity with when it ran; with types, only those that are about something of one of these."""
        pairs = zip(self.plan.tasks, self.spans, strict=True)
        return (pair for pair in pairs if isinstance(pair[0].about, about)) if about else pairs

    @cached_property
    def link_bytes(self) -> LinkBytes:
        """The bytes on the wire, by link."""
        return self.moved(True)

    @cached_property
    def resource_bytes(self) -> LinkBytes:
        """The bytes by resource."""
        return self.moved(False)
