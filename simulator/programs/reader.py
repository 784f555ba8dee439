"""Reads a program from a YAML file (docs/programs.md), statement by statement; ``verbs.yaml`` lists their verbs."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path as FilePath
from typing import Any, Literal, assert_never, get_args

from pydantic import Field

from simulator.collectives.registry import strategy_names
from simulator.errors import Fault, InputError, nearest, one_line
from simulator.programs import statements as s
from simulator.questions.options import POLICIES, StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.questions.where import Where
from simulator.questions.words import parse_question
from simulator.records import own_data, replace
from simulator.topology.catalogue import validate
from simulator.topology.parts import Strict
from simulator.topology.yaml_source import YamlSource, parse_yaml, read_yaml
from simulator.workload import COLLECTIVES
from simulator.workload.precision import ELEMENT_BYTES, Precision


class ProgramFile(Strict):
    """A program file; its statements are read one by one."""

    schema_version: Literal[1]
    name: str = "program"
    about: str = ""
    software: s.FrontEnd = s.FrontEnd()
    precision: Precision = Field("fp32", description="Of operators and tensors where nothing else is said")
    program: list[Any] = Field(min_length=1)


VERBS: Mapping[s.Verb, Mapping[str, list[str]]] = own_data("simulator.programs", "verbs.yaml")
_NEEDS = "a program needs schema_version and program"
_INSTEAD = "write the statements again, or a list of them with repeat: 12"
_NAMES = ("tensor", "copy", "move", "read", "wait", "record", "hold", "mark", "gives", "to", "until", "stream")
_OF_NETWORKS = ("batch", "mode", "optimizer", "compiled", "captured")
_KEYS = {field.alias or name for name, field in s.Keys.model_fields.items()}


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
                given = {key: value for key, value in raw.items() if value is not None or key not in _KEYS}
                keys = validate(self.source.part(here, given), s.Keys)
                if len(verbs) == 1:
                    statement = self._statement(verbs[0], raw, keys)
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

    def _statement(self, verb: s.Verb, raw: dict[str, Any], keys: s.Keys) -> s.Statement | None:
        required, optional = (VERBS[verb].get(each, []) for each in ("needs", "may"))
        before = len(self.faults)
        for key in raw:
            if key != verb and key not in required and key not in optional:
                takes = ", ".join((*required, *optional)) or "nothing else"
                self._fault(f"{key} does not apply to {verb}, which takes {takes}", key, of_key=True)
        for key in [key for key in required if key not in raw]:
            self._fault(f"{verb} needs the key '{key}'")
        for key in _NAMES:
            if isinstance(raw.get(key), str) and not raw[key].strip():
                self._fault(f"{key} must be a name", key)
        here = self.here
        made: s.Statement | None
        match verb:
            case "run":
                made = self._run(here, raw, keys)
            case "tensor":
                if (keys.shape is None) == (keys.size is None):
                    self._fault("tensor needs either shape ([1000, 1000]) or size (4 MB)")
                n_bytes = float(prod(keys.shape or ()) * ELEMENT_BYTES[self.precision])
                made = s.Statement(here, verb, keys, size_bytes=n_bytes if keys.size is None else keys.size)
            case "exchange":
                made = self._exchange(here, keys)
            case "repeat":
                if keys.do is not None and not keys.do:
                    self._fault("do must have 1 or more statements; got []", "do")
                made = s.Statement(here, verb, keys, bodies=(self.block(keys.do or (), (*here, "do")),))
            case "threads":
                bodies = (self.block(body, (*here, "threads", i)) for i, body in enumerate(keys.threads or ()))
                made = s.Statement(here, verb, keys, bodies=tuple(bodies))
            case "copy" | "move" | "read" | "wait" | "record" | "hold" | "python" | "mark":
                made = s.Statement(here, verb, keys)
            case _:
                assert_never(verb)
        return made if len(self.faults) == before else None

    def _run(self, here: s.Path, raw: dict[str, Any], keys: s.Keys) -> s.Statement | None:
        known = keys.run
        if not isinstance(known, str):
            times = validate(self.source.part((*here, "run"), known), s.Times)
            self._refuse(raw, (*_OF_NETWORKS, "precision"), "is for operators and networks; here are times")
            return s.Statement(here, "run", keys, times)
        if known.startswith("op:"):
            self._refuse(raw, _OF_NETWORKS, "is for networks; write an operator's sizes and phase in its words")
            try:
                question = parse_question(known, Where(""))
            except InputError as error:
                self._fault(error.spelt("value"), "run")
                return None
            assert isinstance(question, OperatorQuestion)
            if keys.precision and keys.precision not in get_args(Precision):
                self._unknown("", "precision", keys.precision, get_args(Precision))
            if keys.precision or "precision" not in known:
                question = replace(question, precision=keys.precision or self.precision)  # type: ignore[arg-type]
            return s.Statement(here, "run", keys, question)
        policy = keys.precision or self.precision
        if policy not in POLICIES:
            self._unknown("", "precision", policy, POLICIES)
            return None
        compiled: dict[str, Any] = {"compiled": keys.compiled, "cuda_graph": keys.captured}
        options = StepOptions(mode=keys.mode, precision=policy, optimizer=keys.optimizer, **compiled)
        is_file = known.endswith((".yaml", ".yml"))  # relative to the program's own file
        network = str(FilePath(self.source.file).parent / known) if is_file else known
        return s.Statement(here, "run", keys, network, options)

    def _exchange(self, here: s.Path, keys: s.Keys) -> s.Statement | None:
        if keys.exchange not in COLLECTIVES:
            self._unknown("collective ", "exchange", keys.exchange, COLLECTIVES)
            return None
        if keys.strategy not in (known := strategy_names()):
            self._unknown("strategy ", "strategy", keys.strategy, known)
            return None
        return s.Statement(here, "exchange", keys, size_bytes=keys.size or 0.0)

    def _unknown(self, what: str, key: str, found: str, known: Sequence[str]) -> None:
        begins = f"no {what}" if what else "there is no "
        self._fault(f"{begins}'{one_line(found, 40)}'; {nearest(found, known)}", key)

    def _refuse(self, raw: dict[str, Any], keys: Sequence[str], why: str) -> None:
        for key in keys:
            if raw.get(key) is not None:
                self._fault(f"{key} {why}", key, of_key=True)

    def _fault(self, message: str, *keys: str, of_key: bool = False) -> None:
        self.faults.append(self.source.fault((*self.here, *keys), message, key=of_key))
