"""The statements of a program, one dataclass each, and their check in the order of execution, loops twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from simulator.errors import Fault, InputError, counted, nearest, one_line
from simulator.places import Places
from simulator.questions.options import USUAL, StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.records import dataclass
from simulator.topology.parts import Strict
from simulator.topology.yaml_source import YamlSource
from simulator.units import Duration
from simulator.workload.precision import Precision

MAX_COUNT = 10**9
Path = tuple[str | int, ...]  # of a statement in its file, by which an error names it
Form = Literal["number", "numpy", "print"]


class Times(Strict):
    """An operator with known times."""

    issue: Duration = Field(0.0, description="For which the host is busy")
    compute: Duration = Field(0.0, description="For which the device is")
    back: Duration = Field(0.0, alias="return", description="From its end until a host that waits goes on")


class FrontEnd(Strict):
    """The software that issues operators."""

    front_end: Literal["pytorch", "mxnet"] = Field("pytorch", description="Whose dispatch costs")
    cpu_queue: bool = Field(False, strict=True, description="Operators of CPUs are queued too, and run beside Python")
    depth: Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)] = Field(
        1024, description="Entries of a stream's queue; 0: without bound"
    )


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
class EventStatement:
    """Record an event behind the work that a stream has been given so far; if it *waits*, the stream waits for one."""

    path: Path
    stream: str
    event: str
    waits: bool = False


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


_OfData = RunStatement | MakeTensor | CopyTo | CollectiveStatement | ReadTensor
Statement = _OfData | Wait | EventStatement | Python | MarkTime | Repeat | Threads


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program, and its source file."""

    name: str
    software: FrontEnd
    body: tuple[Statement, ...]
    source: YamlSource
    precision: Precision = "fp32"
    about: str = ""


_MOST_STREAMS = 256  # a GPU runs up to 128 kernels at a time
_WALKED_TWICE = 6  # loops within each other; deeper ones have been walked often by then


def check_program(program: Program, places: Places, default: str | None) -> None:
    """Raise InputError for unknown devices, tensors, streams and events, and for arithmetic across devices."""
    walk = _Walk(program, places, default)
    walk.block(program.body)
    if walk.faults:
        raise InputError([walk.faults[place] for place in sorted(walk.faults)])


class _Walk:
    def __init__(self, program: Program, places: Places, default: str | None) -> None:
        self.source, self.places, self.machine = program.source, places, places.machine
        self.default = places.find(default).name
        self.faults: dict[tuple[int, int], Fault] = {}  # one a position, as loops are walked twice
        self.tensors: dict[str, str] = {}
        self.events: set[str] = set()
        self.streams: dict[str, set[Path]] = {}  # the threads that use each stream
        self.all_streams: set[str] = set()
        self.path: Path = ()  # of the statement
        self.thread: Path = ()
        self.depth = 0

    def block(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.path = statement.path
            match statement:
                case MakeTensor():
                    self.tensors[statement.name] = self.device(statement.device, "device")
                case RunStatement():
                    self.run(statement)
                case CopyTo():
                    self.known([statement.name], "move" if statement.only_if_elsewhere else "copy")
                    self.tensors[statement.gives] = self.device(statement.to, "to")
                case CollectiveStatement():
                    has, some = len(self.machine.gpus), "an exchange is among 2 or more of them"
                    if not 1 < statement.gpus <= has:
                        self.fault(f"{self.machine.name} has {counted(has, 'GPU')}; {some}", "gpus")
                    self.known(statement.reads, "reads", each=True)
                case ReadTensor():
                    self.known([statement.name], "read")
                    if not any(node.kind == "cpu" for node in self.machine.nodes_of(0)):
                        self.fault(f"{self.machine.name} has no CPU that could look at it", "read")
                case Wait():
                    self.wait(statement.what)
                case EventStatement(waits=False):
                    self.events.add(statement.event)
                    self.stream(statement.stream, "stream")
                case EventStatement():
                    self.stream(statement.stream, "hold")
                    if statement.event not in self.events:
                        hint = nearest(statement.event, self.events) or "record one first (record: done)"
                        self.fault(f"no event '{one_line(statement.event, 40)}'; {hint}", "until")
                case Repeat():
                    self.depth += 1
                    self.block(statement.body * (min(statement.count, 2) if self.depth <= _WALKED_TWICE else 1))
                    self.depth -= 1
                case Threads():
                    self.threads(statement)

    def run(self, statement: RunStatement) -> None:
        on: dict[str, str] = {}
        for name in self.known(statement.reads, "reads", each=True):
            on.setdefault(self.tensors[name], name)
        first, a = next(iter(on.items()), ("", ""))
        if len(on) > 1:
            second, b = list(on.items())[1]
            message = f"arithmetic needs all tensors on one device: '{a}' is on {first} and '{b}' on {second}"
            self.fault(f"{message}; write first 'move: {b}' with 'to: {first}'", "reads")
        device = self.device(statement.device or next(iter(on), None), "device")
        if on and statement.device is not None and device not in on:
            message = f"arithmetic on {device} needs its tensors there: '{a}' is on {first}"
            self.fault(f"{message}; write first 'move: {a}' with 'to: {device}'", "device")
        if statement.gives is not None:
            self.tensors[statement.gives] = device
        stream = f"{device}/{statement.stream}"
        self.streams.setdefault(stream, set()).add(self.thread)
        self.all_streams.add(stream)
        if len(self.all_streams) == _MOST_STREAMS + 1:
            self.fault(f"more than {_MOST_STREAMS} streams are not simulated", "stream")

    def wait(self, what: str) -> None:
        if what == "all" or what in self.tensors or what in self.events:
            return
        device, slash, _ = what.partition("/")
        try:
            self.places.find(device)
        except InputError:
            names = [node.name for node in self.machine.nodes_of(0) if node.kind in ("gpu", "cpu")]
            message = f"no device '{one_line(device, 40)}'; {nearest(device, names)}"
            if not slash:
                message = f"wait is for all, a device, a stream, a tensor or an event; got '{one_line(what, 40)}'; "
                message += nearest(what, ["all", *names, *self.tensors, *self.events])
            self.fault(message, "wait")

    def threads(self, statement: Threads) -> None:
        if self.thread:
            self.fault("threads within a thread are not simulated; write them side by side")
            return
        self.streams = {}
        for i, body in enumerate(statement.bodies):
            self.thread = (*statement.path, "threads", i)
            self.block(body)
        self.thread = ()
        for name, users in self.streams.items():
            if len(users) > 1:
                self.path = sorted(users, key=str)[1]
                chance = "whose order would depend on chance; give each a stream of its own"
                self.fault(f"two threads issue to {name}, {chance}")

    def known(self, names: Sequence[str], key: str, *, each: bool = False) -> list[str]:
        """Return those of *names* under *key* that are tensors; *each* has a place of its own in a list."""
        for i, name in enumerate(names):
            if name not in self.tensors:
                hint = nearest(name, self.tensors) or "a tensor begins with 'tensor: NAME' or as what 'run' gives"
                self.fault(f"there is no tensor '{one_line(name, 40)}' here; {hint}", key, *([i] if each else []))
        return [name for name in names if name in self.tensors]

    def device(self, name: str | None, key: str) -> str:
        try:
            return self.default if name is None else self.places.find(name).name
        except InputError as error:
            self.fault(error.spelt("value").removeprefix(f"{name}: "), key)
            return self.default

    def stream(self, name: str, key: str) -> None:
        device, slash, stream = name.partition("/")
        if slash and stream:
            self.device(device, key)
        else:
            self.fault(f"a stream is a device and a name, for example gpu0/copies; got '{one_line(name, 40)}'", key)

    def fault(self, message: str, *keys: str | int) -> None:
        found = self.source.fault((*self.path, *keys), message)
        self.faults.setdefault((found.line, found.column), found)
