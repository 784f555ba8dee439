"""Reads a program from a YAML file, whose user guide is ``docs/programs.md``: ``load_program``.

Each statement is read on its own, so that a fault in one hides none in the others.  Its first word is its verb;
``verbs.yaml`` lists the verbs, with the keys that each needs and may have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PlainValidator

from simulator.collectives.registry import strategy_names
from simulator.errors import Fault, InputError, nearest, one_line
from simulator.package_data import own_data
from simulator.programs import statements as s
from simulator.questions.options import POLICIES, StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.questions.where import Where
from simulator.questions.words import parse_question
from simulator.records import replace
from simulator.topology.parts import Strict
from simulator.topology.validation import validate
from simulator.topology.yaml_source import YamlSource, parse_yaml, read_yaml
from simulator.units import Duration, Size
from simulator.workload import COLLECTIVES
from simulator.workload.precision import ELEMENT_BYTES, Precision

MAX_COUNT = 10**9
Count = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]


def _names(value: Any) -> tuple[str, ...]:
    listed: list[Any] = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(name, str) and name.strip() for name in listed):
        raise ValueError(f"must be the name of a tensor, or a list of names; got {one_line(repr(value), 60)}")
    return tuple(str(name).strip() for name in listed)


Names = Annotated[tuple[str, ...], PlainValidator(_names)]


class TimesSpec(Strict):
    """The times of an operator whose times are known."""

    issue: Duration = Field(0.0, description="For which the host is busy")
    compute: Duration = Field(0.0, description="For which the device is")
    back: Duration = Field(0.0, alias="return", description="From its end until a host that waits goes on")


class SoftwareSpec(Strict):
    """The software that issues operators."""

    front_end: Literal["pytorch", "mxnet"] = Field("pytorch", description="Whose dispatch costs")
    cpu_queue: bool = Field(False, strict=True, description="Operators of CPUs are queued too, and run beside Python")
    depth: Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)] = Field(
        1024, description="Entries of a stream's queue; 0: without bound"
    )


class ProgramFile(Strict):
    """A program file; its statements are read one by one."""

    schema_version: Literal[1]
    name: str = "program"
    about: str = ""
    software: SoftwareSpec = SoftwareSpec()
    precision: Precision = Field("fp32", description="Of operators and tensors where nothing else is said")
    program: list[Any] = Field(min_length=1)


class StatementSpec(Strict):
    """A statement; ``VERBS`` says which keys go together."""

    run: str | dict[str, Any] | None = None
    tensor: str | None = None
    copy_: str | None = Field(None, alias="copy")
    move: str | None = None
    exchange: str | None = None
    read: str | None = None
    wait: str | None = None
    record: str | None = None
    hold: str | None = None
    python: Duration | None = None
    mark: str | None = None
    repeat: Count | None = None
    threads: list[list[Any]] | None = None
    device: str | None = None
    stream: str | None = None
    reads: Names | None = None
    gives: str | None = None
    holds: Size | None = None
    batch: Count | None = None
    mode: Literal["train", "inference", "forward", "backward"] | None = None
    precision: str | None = None
    optimizer: Literal["none", "sgd", "momentum", "adam"] | None = None
    compiled: Annotated[bool, Field(strict=True)] | None = None
    captured: Annotated[bool, Field(strict=True)] | None = None
    gpus: Count | None = None
    strategy: str | None = None
    shape: list[Count] | None = None
    size: Size | None = None
    to: str | None = None
    pinned: Annotated[bool, Field(strict=True)] | None = None
    blocking: Annotated[bool, Field(strict=True)] | None = None
    fresh: Annotated[bool, Field(strict=True)] | None = None
    form: Literal["number", "numpy", "print"] | None = None
    until: str | None = None
    do: list[Any] | None = None


VERBS: Mapping[str, Mapping[str, list[str]]] = own_data("simulator.programs", "verbs.yaml")
_NEEDS = "a program needs schema_version and program"
_INSTEAD = "write the statements again, or a list of them with repeat: 12"
_NAMES = ("tensor", "copy_", "move", "read", "wait", "record", "hold", "mark", "gives", "to", "until", "stream")


def load_program(path: str, text: str = "") -> s.Program:
    """Return the program of the file *path* or YAML *text*; raises InputError with all faults and their positions."""
    if text:
        source = parse_yaml(text.encode(), "<text>", needs=_NEEDS, instead=_INSTEAD)
    else:
        source = read_yaml(FilePath(path), path, needs=_NEEDS, instead=_INSTEAD)
    faults: list[Fault] = []
    spec: ProgramFile | None = None
    try:
        spec = validate(source, ProgramFile)
    except InputError as error:
        faults += error.faults
    found = source.data.get("program") if isinstance(source.data, dict) else None
    reader = _Reader(source, faults, spec.precision if spec else "fp32")
    body = reader.block(found, ("program",)) if isinstance(found, list) else ()
    if faults or spec is None:
        unique = {(f.line, f.column, f.message): f for f in faults}
        raise InputError([unique[place] for place in sorted(unique)])
    software = s.FrontEnd(spec.software.front_end, spec.software.cpu_queue, spec.software.depth)
    return s.Program(spec.name, software, body, source, spec.precision, spec.about)


class _Reader:
    """Reads statements one by one and collects their faults."""

    def __init__(self, source: YamlSource, faults: list[Fault], precision: Precision) -> None:
        self.source = source
        self.faults = faults
        self.precision = precision

    def block(self, found: Sequence[Any], path: s.Path) -> tuple[s.Statement, ...]:
        """Return those statements of the list *found* that have no fault."""
        read: list[s.Statement] = []
        for i, raw in enumerate(found):
            here = (*path, i)
            if not isinstance(raw, dict):
                self._fault(here, f"a statement is a mapping, such as 'wait: all'; got {one_line(repr(raw), 60)}")
                continue
            try:
                spec = validate(self.source.part(here, raw), StatementSpec)
            except InputError as error:
                self.faults += error.faults
                self._inner(raw, here)
                continue
            statement = self._statement(here, raw, spec)
            if statement is not None:
                read.append(statement)
        return tuple(read)

    def _inner(self, raw: dict[str, Any], here: s.Path) -> None:
        """Read the statements inside a faulty one, to collect their faults."""
        if isinstance(raw.get("do"), list):
            self.block(raw["do"], (*here, "do"))

    def _statement(self, here: s.Path, raw: dict[str, Any], spec: StatementSpec) -> s.Statement | None:
        verbs = [key for key in raw if key in VERBS]
        if len(verbs) != 1:
            self._fault(here, f"a statement needs one of {', '.join(VERBS)}; got {' and '.join(verbs) or 'none'}")
            self._inner(raw, here)
            return None
        verb = verbs[0]
        required, optional = (VERBS[verb].get(keys, []) for keys in ("needs", "may"))
        before = len(self.faults)
        for key in raw:
            if key != verb and key not in required and key not in optional:
                takes = ", ".join((*required, *optional)) or "nothing else"
                self._fault((*here, key), f"{key} does not apply to {verb}, which takes {takes}", key=True)
        for key in required:
            if key not in raw:
                self._fault(here, f"{verb} needs the key '{key}'")
        for key in _NAMES:
            value = getattr(spec, key)
            if value is not None and not value.strip():
                self._fault((*here, key.rstrip("_")), f"{key.rstrip('_')} must be a name")
        plain = _PLAIN.get(verb)
        made = plain(here, spec) if plain is not None else getattr(self, f"_{verb}")(here, spec)
        return made if len(self.faults) == before else None

    # -- one verb each -------------------------------------------------------------

    def _run(self, here: s.Path, spec: StatementSpec) -> s.RunStatement | None:
        known = spec.run
        common: dict[str, Any] = {
            "device": spec.device,
            "stream": spec.stream or "compute",
            "reads": spec.reads or (),
            "gives": spec.gives,
            "holds_bytes": spec.holds,
        }
        of_networks = ("batch", "mode", "optimizer", "compiled", "captured")
        if not isinstance(known, str):
            try:
                times = validate(self.source.part((*here, "run"), known), TimesSpec)
            except InputError as error:
                self.faults += error.faults
                return None
            self._refuse(here, spec, (*of_networks, "precision"), "is for operators and networks; here are times")
            return s.RunStatement(here, s.Times(times.issue, times.compute, times.back), **common)
        if known.startswith("op:"):
            self._refuse(here, spec, of_networks, "is for networks; write an operator's sizes and phase in its words")
            try:
                question = parse_question(known, Where(""))
            except InputError as error:
                self._fault((*here, "run"), error.spelt("value"))
                return None
            assert isinstance(question, OperatorQuestion)
            if "precision" not in known and spec.precision is None:
                precision = self.precision
            else:
                precision = self._precision(here, spec.precision) if spec.precision else question.precision
            return s.RunStatement(here, replace(question, precision=precision), **common)
        policy = spec.precision or self.precision
        if policy not in POLICIES:
            self._fault((*here, "precision"), f"there is no '{one_line(policy, 40)}'; {nearest(policy, POLICIES)}")
            return None
        options = StepOptions(
            mode=spec.mode or "inference",
            precision=policy,
            optimizer=spec.optimizer or "sgd",
            compiled=bool(spec.compiled),
            cuda_graph=bool(spec.captured),
        )
        is_file = known.endswith((".yaml", ".yml"))  # relative to the program's own file
        network = str(FilePath(self.source.file).parent / known) if is_file else known
        return s.RunStatement(here, network, batch=spec.batch or 1, options=options, **common)

    def _precision(self, here: s.Path, text: str) -> Precision:
        known = get_args(Precision)
        if text not in known:
            self._fault((*here, "precision"), f"there is no '{one_line(text, 40)}'; {nearest(text, known)}")
            return self.precision
        return text  # type: ignore[return-value]

    def _tensor(self, here: s.Path, spec: StatementSpec) -> s.MakeTensor | None:
        if (spec.shape is None) == (spec.size is None):
            self._fault(here, "tensor needs either shape ([1000, 1000]) or size (4 MB)")
            return None
        elements = 1
        for side in spec.shape or ():
            elements *= side
        size_bytes = spec.size if spec.size is not None else float(elements * ELEMENT_BYTES[self.precision])
        return s.MakeTensor(here, spec.tensor or "", size_bytes, spec.device)

    def _exchange(self, here: s.Path, spec: StatementSpec) -> s.CollectiveStatement | None:
        name = (spec.exchange or "").strip()
        if name not in COLLECTIVES:
            self._fault((*here, "exchange"), f"no collective '{one_line(name, 40)}'; {nearest(name, COLLECTIVES)}")
            return None
        strategy = spec.strategy or "nccl"
        if strategy not in (known := strategy_names()):
            self._fault((*here, "strategy"), f"no strategy '{one_line(strategy, 40)}'; {nearest(strategy, known)}")
            return None
        stream, size_bytes = spec.stream or "communication", spec.size or 0.0
        return s.CollectiveStatement(here, name, size_bytes, spec.gpus or 1, strategy, stream, spec.reads or ())

    def _repeat(self, here: s.Path, spec: StatementSpec) -> s.Repeat:
        if spec.do is not None and not spec.do:
            self._fault((*here, "do"), "do must have 1 or more statements; got []")
        return s.Repeat(here, min(spec.repeat or 1, MAX_COUNT), self.block(spec.do or (), (*here, "do")))

    def _threads(self, here: s.Path, spec: StatementSpec) -> s.Threads:
        bodies = tuple(self.block(body, (*here, "threads", i)) for i, body in enumerate(spec.threads or ()))
        return s.Threads(here, bodies)

    def _refuse(self, here: s.Path, spec: StatementSpec, keys: Sequence[str], why: str) -> None:
        for key in keys:
            if getattr(spec, key) is not None:
                self._fault((*here, key), f"{key} {why}", key=True)

    def _fault(self, path: s.Path, message: str, *, key: bool = False) -> None:
        self.faults.append(self.source.fault(path, message, key=key))


def _copied(here: s.Path, spec: StatementSpec, name: str) -> s.CopyTo:
    return s.CopyTo(
        here,
        name,
        spec.to or "",
        spec.gives or name,
        pinned=bool(spec.pinned),
        waits=spec.blocking,
        only_if_elsewhere=spec.move is not None,
        fresh=bool(spec.fresh),
        stream=spec.stream,
    )


# Verbs whose keys have no faults of their own.
_PLAIN: Mapping[str, Callable[[s.Path, StatementSpec], s.Statement]] = {
    "copy": lambda here, spec: _copied(here, spec, spec.copy_ or ""),
    "move": lambda here, spec: _copied(here, spec, spec.move or ""),
    "read": lambda here, spec: s.ReadTensor(here, spec.read or "", spec.form or "number"),
    "wait": lambda here, spec: s.Wait(here, spec.wait or ""),
    "record": lambda here, spec: s.RecordEvent(here, spec.record or "", spec.stream or ""),
    "hold": lambda here, spec: s.WaitEvent(here, spec.hold or "", spec.until or ""),
    "python": lambda here, spec: s.Python(here, spec.python or 0.0),
    "mark": lambda here, spec: s.MarkTime(here, spec.mark or ""),
}
