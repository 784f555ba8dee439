"""The state of the writer of a program's plan: tensors, streams, queues, marks, and memory held."""

from __future__ import annotations

from simulator.programs.queues import StreamQueue
from simulator.records import dataclass, field


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
