"""What is known while a program is written as a plan: tensors, streams, queues, marks, what is held."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.programs.queues import StreamQueue

__all__ = ["Again", "Held", "Noted", "State", "Stream", "Tensor"]


@dataclass(slots=True)
class Tensor:
    """Where it is, its bytes, and the activities after which it is there."""

    device: str
    size_bytes: float
    ready: tuple[int, ...] = ()
    back_s: float = 0.0


@dataclass(slots=True)
class Stream:
    """A stream of a device: its last activity, what the next one waits for besides, and what a wait then costs."""

    device: str
    queue: StreamQueue
    last: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    back_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Again:
    """So many ``times`` more, each ``issue_s`` later on the host and ``done_s`` on the device than that before."""

    times: int
    issue_s: float
    done_s: float


@dataclass(frozen=True, slots=True)
class Held:
    """Memory that an operator holds from its issue until it is done.

    ``again``: it stands for repetitions that passed at once, not itself among them; the innermost loop comes first.
    """

    issued: int
    done: int
    size_bytes: float
    again: tuple[Again, ...] = ()


@dataclass(slots=True)
class Noted:
    """A mark: the activities at which it was passed, and how often."""

    numbers: list[int] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class State:
    """All of it."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    events: dict[str, tuple[int, ...]] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    marks: dict[str, Noted] = field(default_factory=dict)
    operators: int = 0
    copies: int = 0
