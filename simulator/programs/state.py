"""The state of the writer of a program's plan: tensors, streams, queues, marks, and memory held.

In the queue of a stream, the host takes an entry when it issues an operator, and the operator's end frees it, in order.
Operator ``n`` of a queue of ``depth`` entries thus cannot be issued before operator ``n - depth`` has ended.
"""

from __future__ import annotations

import itertools

from simulator.records import dataclass, field


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """The end of an operator: ``late_s`` seconds after the end of activity ``number``."""

    number: int
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Passed:
    """``times`` repetitions of the operators ``base`` at intervals of ``period_s``, numbered from ``first``."""

    first: int
    base: tuple[QueueEntry, ...]
    times: int
    period_s: float

    def at(self, number: int) -> QueueEntry:
        again, place = divmod(number - self.first, len(self.base))
        base = self.base[place]
        return QueueEntry(base.number, base.late_s + (again + 1) * self.period_s)


@dataclass(slots=True)
class StreamQueue:
    """The operators of a stream in order of issue; ``count`` is the number issued so far."""

    depth: int
    count: int = 0
    _written: dict[int, int] = field(default_factory=dict)  # operator -> activity
    _passed: list[_Passed] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Record the activity *number* as the next operator."""
        self._written[self.count] = number
        self.count += 1

    def entry(self, operator: int) -> QueueEntry:
        """Return the end of the operator with that number."""
        number = self._written.get(operator)
        if number is not None:
            return QueueEntry(number)
        return next(passed for passed in reversed(self._passed) if passed.first <= operator).at(operator)

    def blocker(self) -> QueueEntry | None:
        """Return the entry for which the next operator waits; None where the queue has room."""
        if not self.depth or self.count < self.depth:
            return None
        return self.entry(self.count - self.depth)

    def skip(self, operators: int, times: int, period_s: float) -> None:
        """Record *times* further repetitions of the last *operators*, each *period_s* after the one before."""
        if operators and times:
            base = tuple(self.entry(n) for n in range(self.count - operators, self.count))
            self._passed.append(_Passed(self.count, base, times, period_s))
            self.count += operators * times

    def pieces(self, first: int, last: int) -> list[tuple[int, int]]:
        """Split the operators from *first* to before *last* into ranges within which their ends are evenly spaced.

        Returns the first and last number of each range.  Operators yet to come count as evenly spaced.
        """
        cuts = {first, last, min(max(self.count, first), last)}
        for passed in self._passed:
            cuts.update((passed.first, passed.first + len(passed.base) * passed.times))
        cuts.update(n for n in self._written)
        cuts.update(n + 1 for n in self._written)
        inside = sorted(cut for cut in cuts if first <= cut <= last)
        return [(a, b - 1) for a, b in itertools.pairwise(inside) if b > a]


@dataclass(slots=True)
class DeviceTensor:
    """A tensor: its device, its bytes, and the activities after which it is ready."""

    device: str
    size_bytes: float
    ready: tuple[int, ...] = ()
    back_s: float = 0.0


@dataclass(slots=True)
class Stream:
    """A stream of a device: its last activity, further ones the next must wait for, and the delay of a wait for it."""

    device: str
    queue: StreamQueue
    last: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    back_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Repetitions:
    """``times`` repetitions, each ``issue_s`` later on the host and ``done_s`` later on the device than the last."""

    times: int
    issue_s: float
    done_s: float


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Memory that an operator holds from its issue until its end.

    ``again``: the skipped repetitions that it also stands for, itself not counted; the innermost loop comes first.
    """

    issued: int
    done: int
    size_bytes: float
    again: tuple[Repetitions, ...] = ()


@dataclass(slots=True)
class MarkState:
    """A mark: the activities that passed it, and their number."""

    numbers: list[int] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class State:
    """The whole state."""

    tensors: dict[str, DeviceTensor] = field(default_factory=dict)
    events: dict[str, tuple[int, ...]] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    held: list[HeldMemory] = field(default_factory=list)
    marks: dict[str, MarkState] = field(default_factory=dict)
    operators: int = 0
    copies: int = 0
