"""Values in scenario files: units, arithmetic, and paths into answers (docs/decisions/engine.md)."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import add, mul, neg, sub, truediv
from typing import Any, TypeAlias

from simulator.errors import nearest, one_line
from simulator.records import dataclass
from simulator.units import in_si, unit_names

_LONGEST = 2000  # characters
_DEEPEST = 30  # nesting depth
_UNITS = "|".join(re.escape(unit) for unit in (*unit_names(), "%"))
_NUMBER = re.compile(
    rf"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{{1,3}})?)(?:\s*(?P<unit>{_UNITS})(?![\w%])(?!\s*\())?", re.ASCII
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_STEP = re.compile(
    r"""\.(?P<key>[A-Za-z_]\w*)|\[\s*(?:(?P<index>-?\d{1,9})|"(?P<quoted>[^"]*)"|(?P<by>\w+)=(?P<text>[^\]]*?))\s*\]""",
    re.ASCII,
)
_FUNCTIONS = ("min", "max", "count")
Step: TypeAlias = str | int | tuple[str, str]


class MissingPath(LookupError):  # noqa: N818  it describes a path
    """A path leads nowhere in the answer of a run; the message lists what exists there."""


@dataclass(frozen=True, slots=True)
class AnswerPath:
    """A path into the answer of *run*: keys, list positions, and (key, text) for the first entry with that value."""

    run: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return self.run + "".join(map(_shown, self.steps))

    def of(self, documents: Mapping[str, Any]) -> Any:
        """Return the value at this path; raises Missing with the nearest key."""
        found, place = documents[self.run], self.run
        for step in self.steps:
            found = _entry(found, step, place)
            place += _shown(step)
        return found


def _shown(step: Step) -> str:
    if isinstance(step, tuple):
        return f"[{step[0]}={step[1]}]"
    return f"[{step}]" if isinstance(step, int) else f".{step}" if _NAME.fullmatch(step) else f'["{step}"]'


def _entry(found: Any, step: Step, place: str) -> Any:
    if isinstance(step, str):
        if not isinstance(found, Mapping):
            raise MissingPath(f"{place} has no keys: it is {_kind(found)}")
        if step not in found:
            raise MissingPath(f"{place} has no '{one_line(step, 40)}'; {nearest(step, map(str, found))}")
        return found[step]
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise MissingPath(f"{place} is not a list: it is {_kind(found)}")
    if isinstance(step, int):
        if not -len(found) <= step < len(found):
            raise MissingPath(f"{place} has {len(found)} entries; there is no [{step}]")
        return found[step]
    key, text = step
    values = [entry.get(key) if isinstance(entry, Mapping) else None for entry in found]
    for entry, value in zip(found, values, strict=True):
        if _words(value) == text:
            return entry
    names = sorted({_words(value) for value in values if value is not None})
    raise MissingPath(f"{place} has no entry whose {key} is '{one_line(text, 40)}'; {nearest(text, names)}")


def _words(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, str | int | float):
        return one_line(repr(value), 40)
    return "nothing" if value is None else "a list"


Node: TypeAlias = "float | AnswerPath | tuple[str, tuple[Node, ...]]"


@dataclass(frozen=True, slots=True)
class Expression:
    """The parsed form of ``text``; ``unit`` is that of a single number."""

    text: str
    node: Node
    unit: str | None = None

    @property
    def paths(self) -> tuple[AnswerPath, ...]:
        """The paths that it reads."""
        return tuple(_paths(self.node))

    @property
    def is_number(self) -> bool:
        """Whether it is a single number, without arithmetic."""
        return isinstance(self.node, float)

    def value(self, documents: Mapping[str, Any]) -> float:
        """Return its SI value, given answers by name; raises MissingPath, or ValueError if no finite number."""
        value = _value(self.node, documents)
        if not math.isfinite(value):
            raise ValueError("is no finite number")
        return value

    def found(self, documents: Mapping[str, Any]) -> Any:
        """Return the data at its path if it is a single path, otherwise its value; raises as :meth:`value`."""
        return self.node.of(documents) if isinstance(self.node, AnswerPath) else self.value(documents)


def _paths(node: Node) -> Iterator[AnswerPath]:
    if isinstance(node, AnswerPath):
        yield node
    elif isinstance(node, tuple):
        for inner in node[1]:
            yield from _paths(inner)


def _value(node: Node, documents: Mapping[str, Any]) -> float:
    if isinstance(node, float):
        return node
    if isinstance(node, AnswerPath):
        found = node.of(documents)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ValueError(f"{node} is not a number: it is {_kind(found)}")
        return float(found)
    name, inner = node
    if name == "count":
        of = inner[0].of(documents) if isinstance(inner[0], AnswerPath) else None
        if not isinstance(of, Sequence | Mapping) or isinstance(of, str):
            raise ValueError("count is of a list")
        return float(len(of))
    values = [_value(each, documents) for each in inner]
    if name == "/" and values[1] == 0:
        raise ValueError("divides by zero")
    return _OPERATIONS[name](*values)


_OPERATIONS: dict[str, Callable[..., float]] = {"+": add, "-": sub, "*": mul, "/": truediv, "minus": neg}
_OPERATIONS |= {"min": lambda *values: min(values), "max": lambda *values: max(values)}


def parse_expression(text: str) -> Expression:
    """Return *text* as an expression; raises ValueError with the position of the fault."""
    if len(text) > _LONGEST:
        raise ValueError(f"is longer than {_LONGEST} characters")
    parser = _Parser(text)
    node = parser.binary(0)
    if not parser.taken("") and parser.at < len(text):
        raise parser.fault("an operator (+ - * /) or nothing is expected")
    return Expression(text.strip(), node, parser.unit if isinstance(node, float) else None)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.unit: str | None = None

    def binary(self, depth: int, signs: str = "+-") -> Node:
        part = partial(self.binary, depth, "*/") if signs == "+-" else partial(self.factor, depth)
        node = part()
        while sign := self.taken(signs):
            node = (sign, (node, part()))
        return node

    def factor(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise ValueError(f"has more than {_DEEPEST} parentheses within each other")
        if self.taken("-"):
            inner = self.factor(depth + 1)
            return -inner if isinstance(inner, float) else ("minus", (inner,))
        if self.taken("("):
            node = self.binary(depth + 1)
            self.needs(")")
            return node
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            self.at = number.end()
            self.unit = number["unit"]
            value = float(number["number"]) / (100 if self.unit == "%" else 1)
            if self.unit and self.unit != "%":
                value = in_si(number["number"], self.unit)
            if not math.isfinite(value):
                raise self.fault(f"{one_line(number['number'], 20)} is no finite number")
            return value
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise self.fault("a number, a path (RUN.key) or a parenthesis is needed")
        self.at = name.end()
        if not self.taken("("):
            return self.path(name[0])
        if name[0] not in _FUNCTIONS:
            self.at = name.start()
            raise self.fault(f"there is no function '{name[0]}'; {nearest(name[0], _FUNCTIONS)}")
        given = [self.binary(depth + 1)]
        while self.taken(","):
            given.append(self.binary(depth + 1))
        self.needs(")")
        if name[0] == "count" and len(given) != 1:
            raise self.fault("count is of one list")
        return (name[0], tuple(given))

    def path(self, run: str) -> AnswerPath:
        steps: list[Step] = []
        while (step := _STEP.match(self.text, self.at)) is not None:
            self.at = step.end()
            if step["index"] is not None:
                steps.append(int(step["index"]))
            elif step["by"] is not None:
                steps.append((step["by"], step["text"]))
            else:
                steps.append(step["key"] if step["key"] is not None else step["quoted"])
        return AnswerPath(run, tuple(steps))

    def taken(self, signs: str) -> str:
        """Move past blanks, and past the next character if it is one of *signs*; return that, or nothing."""
        self.at = len(self.text) - len(self.text[self.at :].lstrip())
        found = self.text[self.at : self.at + 1]
        self.at += bool(found) and found in signs
        return found if found in signs else ""

    def needs(self, sign: str) -> None:
        if not self.taken(sign):
            raise self.fault(f"'{sign}' is missing")

    def fault(self, why: str) -> ValueError:
        rest = self.text[self.at :].strip()
        return ValueError(f"{why} {f'before {one_line(rest, 30)!r}' if rest else 'at the end'}")
