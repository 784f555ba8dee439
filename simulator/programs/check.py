"""Checks of a program against the machine: unknown devices and tensors, arithmetic across devices.

The program is walked in the order of execution, with each loop twice, so that a tensor's device is known at every use.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import Fault, InputError, counted, nearest, one_line
from simulator.places import Places
from simulator.programs.statements import (
    CollectiveStatement,
    CopyTo,
    MakeTensor,
    Path,
    Program,
    ReadTensor,
    RecordEvent,
    Repeat,
    RunStatement,
    Statement,
    Threads,
    Wait,
    WaitEvent,
)


def check_program(program: Program, places: Places, default: str | None) -> None:
    """Raise InputError with every fault of *program* on the machine of *places*, each with its position."""
    walk = _Walk(program, places, default)
    walk.block(program.body)
    if walk.faults:
        unique = {(f.line, f.column, f.message): f for f in walk.faults}
        raise InputError([unique[place] for place in sorted(unique)])


_MOST_STREAMS = 256  # a GPU runs up to 128 kernels at a time
_WALKED_TWICE = 6  # loops within each other; deeper ones have been walked often by then


class _Walk:
    def __init__(self, program: Program, places: Places, default: str | None) -> None:
        self.source = program.source
        self.places = places
        self.default = places.find(default).name
        self.faults: list[Fault] = []
        self.tensors: dict[str, str] = {}
        self.events: set[str] = set()
        self.streams: dict[str, set[Path]] = {}  # the threads that use each stream
        self.all_streams: set[str] = set()
        self.thread: Path = ()
        self.depth = 0

    def block(self, body: Sequence[Statement]) -> None:
        for statement in body:
            match statement:
                case MakeTensor():
                    self.tensors[statement.name] = self.device((*statement.path, "device"), statement.device)
                case RunStatement():
                    self.run(statement)
                case CopyTo():
                    self.known((*statement.path, "move" if statement.only_if_elsewhere else "copy"), statement.name)
                    self.tensors[statement.gives] = self.device((*statement.path, "to"), statement.to)
                case CollectiveStatement():
                    self.exchange(statement)
                case ReadTensor():
                    self.known((*statement.path, "read"), statement.name)
                    machine = self.places.machine
                    if not any(node.kind == "cpu" for node in machine.nodes_of(0)):
                        self.fault((*statement.path, "read"), f"{machine.name} has no CPU that could look at it")
                case Wait():
                    self.wait(statement)
                case RecordEvent():
                    self.events.add(statement.event)
                    self.stream((*statement.path, "stream"), statement.stream)
                case WaitEvent():
                    self.stream((*statement.path, "hold"), statement.stream)
                    if statement.event not in self.events:
                        hint = nearest(statement.event, self.events) or "record one first (record: done)"
                        self.fault((*statement.path, "until"), f"no event '{one_line(statement.event, 40)}'; {hint}")
                case Repeat():
                    self.depth += 1
                    for _ in range(min(statement.count, 2) if self.depth <= _WALKED_TWICE else 1):
                        self.block(statement.body)
                    self.depth -= 1
                case Threads():
                    self.threads(statement)
                case _:
                    pass

    def run(self, statement: RunStatement) -> None:
        on: dict[str, str] = {}
        for i, name in enumerate(statement.reads):
            if self.known((*statement.path, "reads", i), name):
                on.setdefault(self.tensors[name], name)
        if len(on) > 1:
            (first, a), (second, b) = list(on.items())[:2]
            message = f"arithmetic needs all tensors on one device: '{a}' is on {first} and '{b}' on {second}"
            self.fault((*statement.path, "reads"), f"{message}; write first 'move: {b}' with 'to: {first}'")
        device = self.device((*statement.path, "device"), statement.device or next(iter(on), None))
        if on and statement.device is not None and device not in on:
            (first, a) = next(iter(on.items()))
            message = f"arithmetic on {device} needs its tensors there: '{a}' is on {first}"
            self.fault((*statement.path, "device"), f"{message}; write first 'move: {a}' with 'to: {device}'")
        if statement.gives is not None:
            self.tensors[statement.gives] = device
        used = self.streams.setdefault(f"{device}/{statement.stream}", set())
        used.add(self.thread)
        self.all_streams.add(f"{device}/{statement.stream}")
        if len(self.all_streams) == _MOST_STREAMS + 1:
            self.fault((*statement.path, "stream"), f"more than {_MOST_STREAMS} streams are not simulated")

    def exchange(self, statement: CollectiveStatement) -> None:
        has = len(self.places.machine.gpus)
        if not 1 < statement.gpus <= has:
            name = self.places.machine.name
            self.fault(
                (*statement.path, "gpus"), f"{name} has {counted(has, 'GPU')}; an exchange is among 2 or more of them"
            )
        for i, name in enumerate(statement.reads):
            self.known((*statement.path, "reads", i), name)

    def wait(self, statement: Wait) -> None:
        what = statement.what
        if what == "all" or what in self.tensors or what in self.events:
            return
        device, slash, _ = what.partition("/")
        try:
            self.places.find(device)
        except InputError:
            names = [node.name for node in self.places.machine.nodes_of(0) if node.kind in ("gpu", "cpu")]
            if slash:
                self.fault((*statement.path, "wait"), f"no device '{one_line(device, 40)}'; {nearest(device, names)}")
                return
            known = ["all", *names, *self.tensors, *self.events]
            self.fault(
                (*statement.path, "wait"),
                f"wait is for all, a device, a stream, a tensor or an event; got '{one_line(what, 40)}'; "
                f"{nearest(what, known)}",
            )

    def threads(self, statement: Threads) -> None:
        if self.thread:
            self.fault(statement.path, "threads within a thread are not simulated; write them side by side")
            return
        self.streams = {}
        for i, body in enumerate(statement.bodies):
            self.thread = (*statement.path, "threads", i)
            self.block(body)
        self.thread = ()
        for name, users in self.streams.items():
            if len(users) > 1:
                self.fault(
                    sorted(users, key=str)[1],
                    f"two threads issue to {name}, whose order would depend on chance; give each a stream of its own",
                )

    def known(self, path: Path, name: str) -> bool:
        if name in self.tensors:
            return True
        hint = nearest(name, self.tensors) or "a tensor begins with 'tensor: NAME' or as what 'run' gives"
        self.fault(path, f"there is no tensor '{one_line(name, 40)}' here; {hint}")
        return False

    def device(self, path: Path, name: str | None) -> str:
        if name is None:
            return self.default
        try:
            return self.places.find(name).name
        except InputError as error:
            self.fault(path, error.spelt("value").removeprefix(f"{name}: "))
            return self.default

    def stream(self, path: Path, name: str) -> None:
        device, slash, stream = name.partition("/")
        if not (slash and stream):
            self.fault(path, f"a stream is a device and a name, for example gpu0/copies; got '{one_line(name, 40)}'")
            return
        self.device(path, device)

    def fault(self, path: Path, message: str) -> None:
        """Keep a fault, once per position, as loops are walked twice."""
        found = self.source.fault(path, message)
        if all((found.line, found.column) != (known.line, known.column) for known in self.faults):
            self.faults.append(found)
