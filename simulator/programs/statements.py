"""What a program consists of: statements, one dataclass each, and :class:`Program`.

``path`` is where a statement stands in its file, so that a fault in it can be told with its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.operator import OperatorQuestion
from simulator.questions.options import USUAL, StepOptions
from simulator.topology.yaml_source import YamlSource
from simulator.workload.precision import Precision

__all__ = [
    "CopyTo",
    "Exchanges",
    "Hold",
    "Make",
    "Mark",
    "Path",
    "Program",
    "Python",
    "Read",
    "Record",
    "Repeat",
    "Run",
    "Software",
    "Statement",
    "Threads",
    "Times",
    "Wait",
]

Path = tuple[str | int, ...]
Form = Literal["number", "numpy", "print"]


@dataclass(frozen=True, slots=True)
class Times:
    """An operator of which the seconds are known: to issue it, to compute it, and until the host learns of its end."""

    issue_s: float = 0.0
    compute_s: float = 0.0
    back_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """Issues an operator, or all that a network issues, to a stream of a device."""

    path: Path
    what: Times | OperatorQuestion | str  # a network by its name or file
    device: str | None = None
    stream: str = "compute"
    reads: tuple[str, ...] = ()
    gives: str | None = None
    batch: int = 1
    options: StepOptions = USUAL
    holds_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Make:
    """A tensor that is there when the program begins, and costs nothing."""

    path: Path
    name: str
    size_bytes: float
    device: str | None = None


@dataclass(frozen=True, slots=True)
class CopyTo:
    """Copies a tensor to a device; *only_if_elsewhere*: nothing happens where it is there already (``x.to``)."""

    path: Path
    name: str
    to: str
    gives: str
    pinned: bool = False
    waits: bool | None = None  # None: as the front end does where nothing is said
    only_if_elsewhere: bool = False
    fresh: bool = False
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Waits for a tensor and has the host look at it: one number, all of it as an array, or printed."""

    path: Path
    name: str
    form: Form = "number"


@dataclass(frozen=True, slots=True)
class Wait:
    """The host waits: for all, or for a device, a stream of it (``gpu0/copies``), a tensor or an event."""

    path: Path
    what: str


@dataclass(frozen=True, slots=True)
class Record:
    """Records an event behind what a stream has been given so far."""

    path: Path
    event: str
    stream: str


@dataclass(frozen=True, slots=True)
class Exchanges:
    """GPUs exchange: a collective of ``size_bytes``, as nccl-tests counts them, among the first so many GPUs."""

    path: Path
    collective: str
    size_bytes: float
    gpus: int
    strategy: str = "nccl"
    stream: str = "communication"
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """A stream waits for an event; the host does not."""

    path: Path
    stream: str
    event: str


@dataclass(frozen=True, slots=True)
class Python:
    """Work of the interpreter alone."""

    path: Path
    seconds: float


@dataclass(frozen=True, slots=True)
class Mark:
    """Notes the time under a name; costs nothing."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Statements that run *count* times."""

    path: Path
    count: int
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Threads:
    """Lists of statements, each on a thread of its own; one interpreter lock for all."""

    path: Path
    bodies: tuple[tuple[Statement, ...], ...]


Statement = Run | Make | CopyTo | Exchanges | Read | Wait | Record | Hold | Python | Mark | Repeat | Threads


@dataclass(frozen=True, slots=True)
class Software:
    """What issues: the front end, where it has a queue, and how many entries that has.

    ``queue``: operators of CPUs are queued as those of GPUs are, and run beside the front end.  ``depth``: of one
    stream's queue; an operator more waits until one is done.  0: without bound.
    """

    front_end: Literal["pytorch", "mxnet"] = "pytorch"
    cpu_queue: bool = False
    depth: int = 1024


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program, and the file that it is from."""

    name: str
    software: Software
    body: tuple[Statement, ...]
    source: YamlSource
    precision: Precision = "fp32"
    about: str = ""
