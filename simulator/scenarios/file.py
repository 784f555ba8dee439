"""The YAML file of a scenario: its runs, and the expected values of their answers."""

import os
import re
import shlex
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.records import dataclass
from simulator.scenarios.expression import Expression, parse_expression
from simulator.topology.catalogue import kept_positions, validate_in_part
from simulator.topology.parts import Strict
from simulator.topology.yaml_source import YamlSource, read_yaml
from simulator.units import unit_names

WORDS = "words"  # the unit of an answer in words
_NEEDS = "a scenario needs schema_version, title, chapter, about, runs and answers"
_KINDS = ("ideal", "measured", "published")
_OUTPUTS = ("--json", "--plot", "--trace", "--quiet", "-q", "--debug", "--help", "-h", "--version")
_MOST_RUNS = 50
_SEVERAL = re.compile(r"(?P<low>.+?)\s+to\s+(?P<high>.+)|at least\s+(?P<least>.+)|at most\s+(?P<most>.+)", re.DOTALL)
_FOLDER = Path(__file__).parent / "files"
_SUFFIXES = (".yaml", ".yml")
_IS_SCENARIO = re.compile(r"^(?:runs|answers):", re.MULTILINE)


class AnswerSpec(Strict):
    """One answer; at most one of the keys ideal, measured and published holds its expected value."""

    name: str = Field(..., min_length=1)
    value: str | float
    unit: str = Field(..., min_length=1)
    ideal: str | float | None = None
    measured: str | float | None = None
    published: str | float | None = None
    within: str | None = None
    source: str | None = None
    falls_short: str | None = None


class ScenarioFile(Strict):
    """A scenario file."""

    schema_version: Literal[1]
    title: str = Field(..., min_length=1)
    chapter: str = Field(..., min_length=1)
    order: float = 0.0
    about: str = Field(..., min_length=1)
    assumed: str | None = None
    runs: dict[str, str] = Field(..., min_length=1)
    timeline: str | None = None
    answers: list[AnswerSpec] = Field(..., min_length=1)


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """One ``simulate`` command: its ``words`` as written, and its arguments."""

    name: str
    words: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExpectedValue:
    """What is expected, ``low`` to ``high`` (None: no bound) or words; ``within`` is the relative tolerance."""

    kind: str
    low: Expression | None
    high: Expression | None
    words: str | None
    source: str
    within: float | None

    @property
    def is_plain(self) -> bool:
        """Whether ``source`` adds nothing to the figure itself."""
        return not self.source or (self.low is not None and self.low.is_number and self.source == self.low.text)


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A requested answer; it is shown in ``unit``."""

    name: str
    value: Expression
    unit: str
    expected: ExpectedValue | None
    falls_short: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """A parsed file; ``timeline`` names the run to draw."""

    name: str
    path: Path
    source: YamlSource
    title: str
    chapter: str
    order: float
    about: str
    assumed: str
    runs: tuple[ScenarioRun, ...]
    timeline: str
    answers: tuple[AnswerRequest, ...]


def read_scenario(path: Path, shown_as: str | None = None) -> Scenario:
    """Return the scenario in the file *path*, called *shown_as* in messages; raises InputError with all its faults."""
    return scenario_from(read_yaml(path, shown_as, needs=_NEEDS, instead="write it out"), path)


def scenario_from(source: YamlSource, path: Path) -> Scenario:
    """Return the scenario in *source*, with its files beside *path*; raises InputError with all its faults."""
    spec, told = validate_in_part(source, ScenarioFile, ("runs", "answers"))
    return _Reader(source, spec, told).scenario(path)


class _Reader:
    """Reads what :func:`validate_in_part` left of a file, and adds its own *faults* to those found before."""

    def __init__(self, source: YamlSource, spec: ScenarioFile, told: InputError | None) -> None:
        self.source, self.spec = source, spec
        self.faults, self.more = (list(told.faults), told.more) if told is not None else (list[Fault](), 0)
        self.run_names = list(source.data["runs"]) if isinstance(source.data.get("runs"), dict) else []

    def scenario(self, path: Path) -> Scenario:
        spec = self.spec
        if len(spec.runs) > _MOST_RUNS:
            self.fault(("runs",), f"runs: a scenario has at most {_MOST_RUNS} runs; got {len(spec.runs)}")
        runs = [run for name, words in spec.runs.items() if (run := self.run(name, words)) is not None]
        timeline = spec.timeline if spec.timeline is not None else str(next(iter(self.run_names), ""))
        if timeline not in self.run_names:
            hint = nearest(timeline, map(str, self.run_names))
            self.fault(("timeline",), f"timeline: there is no run '{one_line(timeline, 40)}'; {hint}")
        places = kept_positions(self.source, ScenarioFile, "answers")
        answers = [self.answer(i, answer) for i, answer in zip(places, spec.answers, strict=True)]
        if self.faults:
            faults = sorted(dict.fromkeys(self.faults), key=lambda fault: (fault.line, fault.column))
            raise InputError(faults, self.more)
        title, told = one_line(spec.title, 200), (_paragraph(spec.about), _paragraph(spec.assumed))
        chapter, complete = spec.chapter.strip(), tuple(answer for answer in answers if answer is not None)
        head = path.stem, path, self.source, title, chapter, spec.order
        return Scenario(*head, *told, tuple(runs), timeline, complete)

    def run(self, name: str, words: str) -> ScenarioRun | None:
        place = ("runs", name)
        before = len(self.faults)
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            told = f"runs: '{one_line(name, 40)}' is not a name of letters, digits and _"
            self.faults.append(self.source.fault(place, told, key=True))
        try:
            arguments = shlex.split(words)
        except ValueError as error:
            self.fault(place, f"runs.{name}: cannot be read as a command: {one_line(error).lower()}")
            return None
        begin = one_line(arguments[0], 40) if arguments else "nothing"
        options = [word.partition("=")[0] for word in arguments]
        wrong = {
            f"a run is a command of simulate; got '{begin}'": arguments[:1] != ["simulate"],
            "a scenario is made of runs, not of scenarios": arguments[:2] == ["simulate", "scenario"],
            **{f"{option} says how an answer is shown; leave it out": option in _OUTPUTS for option in options},
            "--trust-code is for whoever runs the scenario; leave it out": "--trust-code" in arguments,
            "- is standard input, which a run has none of; name a file": "-" in arguments,
        }
        for why in (why for why, is_so in wrong.items() if is_so):
            self.fault(place, f"runs.{name}: {why}")
        return ScenarioRun(name, " ".join(words.split()), tuple(arguments)) if len(self.faults) == before else None

    def answer(self, number: int, spec: AnswerSpec) -> AnswerRequest | None:
        place = ("answers", number)
        before = len(self.faults)
        unit = spec.unit.strip()
        value = self.expression((*place, "value"), _text(spec.value), "value")
        expected = self.expected(place, spec, unit)
        if len(self.faults) > before or value is None:
            return None
        return AnswerRequest(one_line(spec.name, 120), value, unit, expected, _paragraph(spec.falls_short))

    def expected(self, place: tuple[str | int, ...], spec: AnswerSpec, unit: str) -> ExpectedValue | None:
        kinds = [kind for kind in _KINDS if getattr(spec, kind) is not None]
        if not kinds:
            for key in ("within", "source"):
                if getattr(spec, key) is not None:
                    self.fault((*place, key), f"{key}: is of a figure; add ideal, measured or published")
            return None
        kind = kinds[0]
        for other in kinds[1:]:
            self.fault((*place, other), f"{other}: {kind} is there too; write an answer of its own for each")
        if kind != "ideal" and spec.source is None:
            self.fault((*place, kind), f"{kind}: the key 'source' is missing: who says so")
        text = _text(getattr(spec, kind))
        within = None
        if spec.within is not None:
            match = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,6})?)\s*%\s*", spec.within, re.ASCII)
            within = float(match[1]) / 100 if match else None
            if match is None:
                told = f"write how far off it may be, for example 15 %; got '{one_line(spec.within, 20)}'"
                self.fault((*place, "within"), f"within: {told}")
        if unit == WORDS:
            return ExpectedValue(kind, None, None, text, spec.source or "", within)
        several = _SEVERAL.fullmatch(text)
        parts: tuple[str | None, str | None] = (text, text)
        if several is not None:
            parts = several["low"] or several["least"], several["high"] or several["most"]
        known = unit in unit_names()
        own = "" if known or unit in ("%", "1") else unit  # a word of the file
        low, high = (part and self.expression((*place, kind), part.removesuffix(own), kind) for part in parts)
        for end in (low, high):
            if end and known and end.is_number and end.unit is None and end.value({}) != 0:
                told = f"{one_line(end.text, 20)} needs a unit, for example {end.text} {unit}"
                self.fault((*place, kind), f"{kind}: {told}")
                break
        source = one_line(spec.source, 200) if spec.source else text
        return ExpectedValue(kind, low or None, high or None, None, source, within)

    def expression(self, place: tuple[str | int, ...], text: str, key: str) -> Expression | None:
        try:
            found = parse_expression(text)
        except ValueError as error:
            self.fault(place, f"{key}: {error}")
            return None
        for path in found.paths:
            if path.run not in self.run_names:
                hint = nearest(path.run, map(str, self.run_names))
                self.fault(place, f"{key}: there is no run '{one_line(path.run, 40)}'; {hint}")
        return found

    def fault(self, place: tuple[str | int, ...], message: str) -> None:
        self.faults.append(self.source.fault(place, message))


def _text(value: str | float) -> str:
    return " ".join(value.split()) if isinstance(value, str) else f"{value:g}"


def _paragraph(text: str | None) -> str:
    return " ".join((text or "").split())


@lru_cache(maxsize=1)
def builtin_scenarios() -> dict[str, Path]:
    """Return the files of the built-in scenarios by name; the folder also holds machines and programs."""
    files = sorted(_FOLDER.glob("*.yaml"))
    return {path.stem: path for path in files if _IS_SCENARIO.search(path.read_text(encoding="utf-8"))}


def find_scenario(name: str) -> Scenario:
    """Return the scenario of *name*, a path or built-in; raises InputError with the nearest name or all faults."""
    if name.endswith(_SUFFIXES) or os.sep in name:
        path = Path(name)
        if os.path.exists(name) or path.stem not in builtin_scenarios():
            return read_scenario(path, name)
        hint = f"did you mean '{path.stem}', which is built in?"
        raise InputError(Fault(f"cannot be read: no such file; {hint}", one_line(name)))
    path_of = builtin_scenarios()
    if name not in path_of:
        hint = nearest(name, path_of, listed=3)
        raise InputError(f"scenario {one_line(name, 60)}: no such scenario; {hint} (--list)")
    return read_scenario(path_of[name], path_of[name].name)


def in_order() -> list[Scenario]:
    """Return the built-in scenarios in course order: by chapter, then by the order in their files."""

    def place(scenario: Scenario) -> tuple[bool, str, tuple[int, ...], float, str]:
        """Numbered chapters come first, by book and number, then chapters without a number."""
        match = re.fullmatch(r"(\d+(?:\.\d+)*)\s*(.*)", scenario.chapter, re.ASCII)
        chapter, book = match.groups() if match else ("", scenario.chapter)
        numbers = tuple(map(int, chapter.split("."))) if chapter else ()
        return match is None, book, numbers, scenario.order, scenario.name

    return sorted((read_scenario(path, path.name) for path in builtin_scenarios().values()), key=place)


def needed_files(scenario: Scenario) -> Iterator[Path]:
    """Yield the files beside *scenario* that its runs need, directly or through other files, relative to its folder."""
    folder = scenario.path.parent
    words = {part for run in scenario.runs for word in run.arguments for part in re.split(r"[,=:@]", word) if part}
    found: dict[Path, None] = {}
    wanted = [_beside(folder, Path(), word) for word in sorted(words)]
    while wanted:
        path = wanted.pop(0)
        if path is None or path in found:
            continue
        found[path] = None
        if path.suffix in _SUFFIXES:  # names files too: nodes of a cluster, networks of a program
            named = dict.fromkeys(re.findall(r"[\w./-]+\.ya?ml\b", (folder / path).read_text(encoding="utf-8")))
            wanted += [_beside(folder, path.parent, word) for word in named]
    yield from found


def _beside(folder: Path, within: Path, word: str) -> Path | None:
    if os.path.isabs(word):
        return None
    path = Path(os.path.normpath(within / word))
    is_inside = ".." not in path.parts
    return path if is_inside and os.path.isfile(folder / path) else None  # no OSError for a name that no file can have
