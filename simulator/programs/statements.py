"""The statements of a program, one dataclass each, and :class:`Program`.

``path`` is a statement's position in its file, so that an error can name it.
"""

from __future__ import annotations

from typing import Literal

from simulator.questions.options import USUAL, StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.records import dataclass
from simulator.topology.yaml_source import YamlSource
from simulator.workload.precision import Precision

Path = tuple[str | int, ...]
Form = Literal["number", "numpy", "print"]


@dataclass(frozen=True, slots=True)
class Times:
    """An operator with known times: to issue it, to compute it, and from its end until the host learns of it."""

    issue_s: float = 0.0
    compute_s: float = 0.0
    back_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RunStatement:
    """Issue an operator, or all operators of a network, to a stream of a device."""

    path: Path
    what: Times | OperatorQuestion | str  # str: a network by its name or file
    device: str | None = None
    stream: str = "compute"
    reads: tuple[str, ...] = ()
    gives: str | None = None
    batch: int = 1
    options: StepOptions = USUAL
    holds_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class MakeTensor:
    """A tensor that exists when the program begins, at no cost."""

    path: Path
    name: str
    size_bytes: float
    device: str | None = None


@dataclass(frozen=True, slots=True)
class CopyTo:
    """Copy a tensor to a device; *only_if_elsewhere*: a no-op where it is already there (``x.to``)."""

    path: Path
    name: str
    to: str
    gives: str
    pinned: bool = False
    waits: bool | None = None  # None: the front end's default
    only_if_elsewhere: bool = False
    fresh: bool = False
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class ReadTensor:
    """Wait for a tensor and read it on the host: one number, the whole as an array, or printed."""

    path: Path
    name: str
    form: Form = "number"


@dataclass(frozen=True, slots=True)
class Wait:
    """The host waits for everything, a device, a stream of it (``gpu0/copies``), a tensor or an event."""

    path: Path
    what: str


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Record an event behind the work that a stream has been given so far."""

    path: Path
    event: str
    stream: str


@dataclass(frozen=True, slots=True)
class CollectiveStatement:
    """A collective of ``size_bytes``, as nccl-tests counts them, among the first ``gpus`` GPUs."""

    path: Path
    collective: str
    size_bytes: float
    gpus: int
    strategy: str = "nccl"
    stream: str = "communication"
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitEvent:
    """A stream waits for an event; the host does not."""

    path: Path
    stream: str
    event: str


@dataclass(frozen=True, slots=True)
class Python:
    """Work of the Python interpreter alone."""

    path: Path
    seconds: float


@dataclass(frozen=True, slots=True)
class MarkTime:
    """Record the time under a name, at no cost."""

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
    """Lists of statements, each run by its own thread; all threads share one interpreter lock."""

    path: Path
    bodies: tuple[tuple[Statement, ...], ...]


Statement = (
    RunStatement
    | MakeTensor
    | CopyTo
    | CollectiveStatement
    | ReadTensor
    | Wait
    | RecordEvent
    | WaitEvent
    | Python
    | MarkTime
    | Repeat
    | Threads
)


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The software that issues operators: the front end, and the queues of its streams.

    ``cpu_queue``: operators on CPUs are queued like those on GPUs and run beside the front end.  ``depth``: the entries
    of a stream's queue; with all taken, the next operator waits until one has ended.  0: unbounded.
    """

    front_end: Literal["pytorch", "mxnet"] = "pytorch"
    cpu_queue: bool = False
    depth: int = 1024


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program, and its source file."""

    name: str
    software: FrontEnd
    body: tuple[Statement, ...]
    source: YamlSource
    precision: Precision = "fp32"
    about: str = ""
