"""Who did what, and when: what an executed plan leaves behind."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass

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

    __slots__ = ("_carried", "_n")

    def __init__(self, n: int, by_number: Mapping[int, float]) -> None:
        self._n = n
        self._carried = {number: by_number[number] for number in sorted(by_number) if by_number[number]}

    def carried(self) -> ItemsView[int, float]:
        """Return those that carried any, in order, with how many."""
        return self._carried.items()

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, number: int) -> float:  # type: ignore[override]  # nobody slices
        if not 0 <= number < self._n:
            raise IndexError(number)
        return self._carried.get(number, 0.0)

    def __iter__(self) -> Iterator[float]:
        return (self._carried.get(number, 0.0) for number in range(self._n))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moved) and (self._n, self._carried) == (other._n, other._carried)

    def __hash__(self) -> int:
        return hash((self._n, tuple(self._carried.items())))


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
