"""Reads a program from a YAML file (docs/programs.md), statement by statement; ``verbs.yaml`` lists their verbs."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
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
from simulator.topology.catalogue import validate
from simulator.topology.parts import Strict
from simulator.topology.yaml_source import YamlSource, parse_yaml, read_yaml
from simulator.units import Duration, Size
from simulator.workload import COLLECTIVES
from simulator.workload.precision import ELEMENT_BYTES, Precision

Count = Annotated[int, Field(strict=True, ge=1, le=s.MAX_COUNT)]
Flag = Annotated[bool, Field(strict=True)]


def _names(value: Any) -> tuple[str, ...]:
    listed: list[Any] = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(name, str) and name.strip() for name in listed):
        raise ValueError(f"must be the name of a tensor, or a list of names; got {one_line(repr(value), 60)}")
    return tuple(str(name).strip() for name in listed)


Names = Annotated[tuple[str, ...], PlainValidator(_names)]


class ProgramFile(Strict):
    """A program file; its statements are read one by one."""

    schema_version: Literal[1]
    name: str = "program"
    about: str = ""
    software: s.FrontEnd = s.FrontEnd()
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
    compiled: Flag | None = None
    captured: Flag | None = None
    gpus: Count | None = None
    strategy: str | None = None
    shape: list[Count] | None = None
    size: Size | None = None
    to: str | None = None
    pinned: Flag | None = None
    blocking: Flag | None = None
    fresh: Flag | None = None
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
    return s.Program(spec.name, spec.software, body, source, spec.precision, spec.about)


class _Reader:
    """Reads statements one by one and collects their faults."""

    def __init__(self, source: YamlSource, faults: list[Fault], precision: Precision) -> None:
        self.source, self.faults, self.precision = source, faults, precision
        self.here: s.Path = ()  # of the statement that is read

    def block(self, found: Sequence[Any], path: s.Path) -> tuple[s.Statement, ...]:
        """Return those statements of the list *found* that have no fault."""
        read: list[s.Statement] = []
        for i, raw in enumerate(found):
            self.here = here = (*path, i)
            if not isinstance(raw, dict):
                self._fault(f"a statement is a mapping, such as 'wait: all'; got {one_line(repr(raw), 60)}")
                continue
            verbs = [key for key in raw if key in VERBS]
            statement = None
            try:
                spec = validate(self.source.part(here, raw), StatementSpec)
                if len(verbs) == 1:
                    statement = self._statement(verbs[0], raw, spec)
                else:
                    got = " and ".join(verbs) or "none"
                    self._fault(f"a statement needs one of {', '.join(VERBS)}; got {got}")
            except InputError as error:
                self.faults += error.faults
                verbs = []
            if statement is not None:
                read.append(statement)
            elif len(verbs) != 1 and isinstance(raw.get("do"), list):  # a faulty one has others inside
                self.block(raw["do"], (*here, "do"))
        return tuple(read)

    def _statement(self, verb: str, raw: dict[str, Any], spec: StatementSpec) -> s.Statement | None:
        required, optional = (VERBS[verb].get(keys, []) for keys in ("needs", "may"))
        before = len(self.faults)
        for key in raw:
            if key != verb and key not in required and key not in optional:
                takes = ", ".join((*required, *optional)) or "nothing else"
                self._fault(f"{key} does not apply to {verb}, which takes {takes}", key, of_key=True)
        for key in required:
            if key not in raw:
                self._fault(f"{verb} needs the key '{key}'")
        for key in _NAMES:
            value = getattr(spec, key)
            if value is not None and not value.strip():
                self._fault(f"{key.rstrip('_')} must be a name", key.rstrip("_"))
        here = self.here
        made: s.Statement | None
        match verb:
            case "run":
                made = self._run(here, spec)
            case "tensor":
                made = self._tensor(here, spec)
            case "exchange":
                made = self._exchange(here, spec)
            case "repeat":
                if spec.do is not None and not spec.do:
                    self._fault("do must have 1 or more statements; got []", "do")
                made = s.Repeat(here, min(spec.repeat or 1, s.MAX_COUNT), self.block(spec.do or (), (*here, "do")))
            case "threads":
                bodies = enumerate(spec.threads or ())
                made = s.Threads(here, tuple(self.block(body, (*here, "threads", i)) for i, body in bodies))
            case _:
                made = _PLAIN[verb](here, spec)
        return made if len(self.faults) == before else None

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
            times = validate(self.source.part((*here, "run"), known), s.Times)
            self._refuse(spec, (*of_networks, "precision"), "is for operators and networks; here are times")
            return s.RunStatement(here, times, **common)
        if known.startswith("op:"):
            self._refuse(spec, of_networks, "is for networks; write an operator's sizes and phase in its words")
            try:
                question = parse_question(known, Where(""))
            except InputError as error:
                self._fault(error.spelt("value"), "run")
                return None
            assert isinstance(question, OperatorQuestion)
            if spec.precision and spec.precision not in get_args(Precision):
                self._unknown("", "precision", spec.precision, get_args(Precision))
            if spec.precision or "precision" not in known:
                question = replace(question, precision=spec.precision or self.precision)  # type: ignore[arg-type]
            return s.RunStatement(here, question, **common)
        policy = spec.precision or self.precision
        if policy not in POLICIES:
            self._unknown("", "precision", policy, POLICIES)
            return None
        mode, update, graph = spec.mode or "inference", spec.optimizer or "sgd", bool(spec.captured)
        how: dict[str, Any] = {"compiled": bool(spec.compiled), "cuda_graph": graph}
        options = StepOptions(mode=mode, precision=policy, optimizer=update, **how)
        is_file = known.endswith((".yaml", ".yml"))  # relative to the program's own file
        network = str(FilePath(self.source.file).parent / known) if is_file else known
        return s.RunStatement(here, network, batch=spec.batch or 1, options=options, **common)

    def _tensor(self, here: s.Path, spec: StatementSpec) -> s.MakeTensor | None:
        if (spec.shape is None) == (spec.size is None):
            self._fault("tensor needs either shape ([1000, 1000]) or size (4 MB)")
            return None
        n_bytes = float(prod(spec.shape or ()) * ELEMENT_BYTES[self.precision])
        return s.MakeTensor(here, spec.tensor or "", n_bytes if spec.size is None else spec.size, spec.device)

    def _exchange(self, here: s.Path, spec: StatementSpec) -> s.CollectiveStatement | None:
        name, strategy = (spec.exchange or "").strip(), spec.strategy or "nccl"
        if name not in COLLECTIVES:
            self._unknown("collective ", "exchange", name, COLLECTIVES)
            return None
        if strategy not in (known := strategy_names()):
            self._unknown("strategy ", "strategy", strategy, known)
            return None
        stream, size_bytes = spec.stream or "communication", spec.size or 0.0
        return s.CollectiveStatement(here, name, size_bytes, spec.gpus or 1, strategy, stream, spec.reads or ())

    def _unknown(self, what: str, key: str, found: str, known: Sequence[str]) -> None:
        begins = f"no {what}" if what else "there is no "
        self._fault(f"{begins}'{one_line(found, 40)}'; {nearest(found, known)}", key)

    def _refuse(self, spec: StatementSpec, keys: Sequence[str], why: str) -> None:
        for key in keys:
            if getattr(spec, key) is not None:
                self._fault(f"{key} {why}", key, of_key=True)

    def _fault(self, message: str, *keys: str, of_key: bool = False) -> None:
        self.faults.append(self.source.fault((*self.here, *keys), message, key=of_key))


def _copied(here: s.Path, spec: StatementSpec) -> s.CopyTo:
    name, is_move = spec.copy_ or spec.move or "", spec.move is not None
    to, gives, pinned = spec.to or "", spec.gives or name, bool(spec.pinned)
    return s.CopyTo(here, name, to, gives, pinned, spec.blocking, is_move, bool(spec.fresh), spec.stream)


# Verbs whose keys have no faults of their own.
_PLAIN: Mapping[str, Callable[[s.Path, StatementSpec], s.Statement]] = {
    "copy": _copied,
    "move": _copied,
    "read": lambda here, spec: s.ReadTensor(here, spec.read or "", spec.form or "number"),
    "wait": lambda here, spec: s.Wait(here, spec.wait or ""),
    "record": lambda here, spec: s.EventStatement(here, spec.stream or "", spec.record or ""),
    "hold": lambda here, spec: s.EventStatement(here, spec.hold or "", spec.until or "", waits=True),
    "python": lambda here, spec: s.Python(here, spec.python or 0.0),
    "mark": lambda here, spec: s.MarkTime(here, spec.mark or ""),
}
