"""The statements of a program, and their check in the order of execution, loops twice."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, assert_never

from pydantic import Field, PlainValidator

from simulator.errors import Fault, InputError, counted, nearest, one_line
from simulator.places import Places
from simulator.questions.options import USUAL, StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.records import dataclass
from simulator.topology.parts import Strict
from simulator.topology.yaml_source import YamlSource
from simulator.units import Duration, Size
from simulator.workload.precision import Precision

MAX_COUNT = 10**9
Path = tuple[str | int, ...]  # of a statement in its file, by which an error names it
STREAM = "compute"  # on which operators run unless another is named
_STREAMS = {"run": STREAM, "exchange": "communication"}


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


def _names(value: Any) -> tuple[str, ...]:
    listed: list[Any] = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(name, str) and name.strip() for name in listed):
        raise ValueError(f"must be the name of a tensor, or a list of names; got {one_line(repr(value), 60)}")
    return tuple(str(name).strip() for name in listed)


Count = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]
Flag = Annotated[bool, Field(strict=True)]
Names = Annotated[tuple[str, ...], PlainValidator(_names)]


class Keys(Strict):
    """The keys of a statement, of which ``verbs.yaml`` says which go together; the first are its verbs."""

    run: str | dict[str, Any] | None = None  # an operator, or all operators of a network, issued to a stream
    tensor: str = ""  # it exists when the program begins, at no cost
    copy_: str = Field("", alias="copy")
    move: str = ""  # a copy, or nothing where it is there already (x.to)
    exchange: str = ""  # a collective of size bytes, as nccl-tests counts them, among the first gpus
    read: str = ""  # the host waits for a tensor and looks at it: one number, the whole as an array, or printed
    wait: str = ""  # the host, for everything, a device, a stream of it (gpu0/copies), a tensor or an event
    record: str = ""  # an event behind the work that a stream has been given so far
    hold: str = ""  # a stream, until an event
    python: Duration = 0.0  # work of the interpreter alone
    mark: str = ""  # a name for the time, at no cost
    repeat: Count = 1
    threads: list[list[Any]] | None = None  # each list is run by its own thread; all share one interpreter lock
    device: str | None = None
    stream: str = ""
    reads: Names = ()
    gives: str | None = None
    holds: Size | None = None
    batch: Count = 1
    mode: Literal["train", "inference", "forward", "backward"] = "inference"
    precision: str | None = None
    optimizer: Literal["none", "sgd", "momentum", "adam"] = "sgd"
    compiled: Flag = False
    captured: Flag = False
    gpus: Count = 1
    strategy: str = "nccl"
    shape: list[Count] | None = None
    size: Size | None = None
    to: str = ""
    pinned: Flag = False
    blocking: Flag | None = None  # None: the front end's default
    fresh: Flag = False
    form: Literal["number", "numpy", "print"] = "number"
    until: str = ""
    do: list[Any] | None = None


Verb = Literal[
    "run", "copy", "move", "exchange", "tensor", "read", "wait", "record", "hold", "python", "mark", "repeat", "threads"
]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement: its verb and its keys, what runs, a tensor's bytes, or the statements inside.

    An operator, or all operators of the network ``what``, by its name or file, are issued to a stream of a device,
    without one that of the tensors read.  ``bodies`` are of each thread, or of a loop.
    """

    path: Path
    verb: Verb
    keys: Keys
    what: Times | OperatorQuestion | str = ""
    options: StepOptions = USUAL
    size_bytes: float = 0.0
    bodies: "tuple[tuple[Statement, ...], ...]" = ()

    @property
    def stream(self) -> str:
        """The stream of its device; "" where a copy or an event names none."""
        return self.keys.stream or _STREAMS.get(self.verb, "")


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
            self.statement(statement, statement.keys)

    def statement(self, statement: Statement, keys: Keys) -> None:
        match statement.verb:
            case "run":
                self.run(statement, keys)
            case "copy" | "move":
                tensor = keys.copy_ or keys.move
                self.known([tensor], statement.verb)
                self.tensors[keys.gives or tensor] = self.device(keys.to, "to")
            case "exchange":
                has, some = len(self.machine.gpus), "an exchange is among 2 or more of them"
                if not 1 < keys.gpus <= has:
                    self.fault(f"{self.machine.name} has {counted(has, 'GPU')}; {some}", "gpus")
                self.known(keys.reads, "reads", each=True)
            case "tensor":
                self.tensors[keys.tensor] = self.device(keys.device, "device")
            case "read":
                self.known([keys.read], "read")
                if not any(node.kind == "cpu" for node in self.machine.nodes_of(0)):
                    self.fault(f"{self.machine.name} has no CPU that could look at it", "read")
            case "wait":
                self.wait(keys.wait)
            case "record":
                self.events.add(keys.record)
                self.stream(keys.stream, "stream")
            case "hold":
                self.stream(keys.hold, "hold")
                if keys.until not in self.events:
                    hint = nearest(keys.until, self.events) or "record one first (record: done)"
                    self.fault(f"no event '{one_line(keys.until, 40)}'; {hint}", "until")
            case "python" | "mark":
                pass  # they name nothing
            case "repeat":
                self.depth += 1
                self.block(statement.bodies[0] * (min(keys.repeat, 2) if self.depth <= _WALKED_TWICE else 1))
                self.depth -= 1
            case "threads":
                self.threads(statement)
            case _:
                assert_never(statement.verb)

    def run(self, run: Statement, keys: Keys) -> None:
        on: dict[str, str] = {}
        for name in self.known(keys.reads, "reads", each=True):
            on.setdefault(self.tensors[name], name)
        first, a = next(iter(on.items()), ("", ""))
        if len(on) > 1:
            second, b = list(on.items())[1]
            message = f"arithmetic needs all tensors on one device: '{a}' is on {first} and '{b}' on {second}"
            self.fault(f"{message}; write first 'move: {b}' with 'to: {first}'", "reads")
        device = self.device(keys.device or next(iter(on), None), "device")
        if on and keys.device is not None and device not in on:
            message = f"arithmetic on {device} needs its tensors there: '{a}' is on {first}"
            self.fault(f"{message}; write first 'move: {a}' with 'to: {device}'", "device")
        if keys.gives is not None:
            self.tensors[keys.gives] = device
        stream = f"{device}/{run.stream}"
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

    def threads(self, statement: Statement) -> None:
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
