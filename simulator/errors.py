"""Every fault that a user can meet, and how it is worded.

::

    TopocastError
    ├── InputError           what the user wrote cannot be used: exit status 2
    │   └── carries one or more Fault, each with its place
    ├── SimulationError      the model could not be run to its end: exit status 1
    └── MissingDependency    an optional library is needed and absent: exit status 4

A ``Fault`` is one line: ``file:line:column: what was found, what is allowed``.  All
faults of one input are collected before anything is raised.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "FAULTS_SHOWN",
    "Fault",
    "InputError",
    "MissingDependency",
    "SimulationError",
    "TopocastError",
    "escaped",
    "nearest",
    "one_line",
]

FAULTS_SHOWN = 20  # of one input; the others are counted
_LONGEST_FAULT = 600  # characters of its line
_COMPARED = 1_000  # names; of more only those that stand near, or differ in one character
_A_SLIP = 0.8  # as like as a name with a letter or two amiss
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-._"


def escaped(text: str) -> str:
    r"""Return *text* with what a terminal would obey or hide written as ``\x1b``; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: object, limit: int = 120) -> str:
    """Return *text* without line breaks, control characters escaped, cut to *limit* characters."""
    flat = escaped(" ".join(str(text)[: 8 * limit].split()))
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def nearest(found: str, allowed: Iterable[str], listed: int = 12, words: Mapping[str, str] | None = None) -> str:
    """Say what would have been right in place of *found*.

    Returns ``did you mean 'x'?`` where a name is close, or up to three that hold all words of *found* in their name or
    in what *words* says of them; otherwise the allowed names (at most *listed* of them), otherwise an empty string.
    """
    names = sorted(dict.fromkeys(allowed))  # quick where they are sorted already
    wanted = found.lower()[:_LONGEST_FAULT]
    lowered = {name.lower(): name for name in (names if len(names) <= _COMPARED else _around(wanted, names))}
    close = difflib.get_close_matches(wanted, list(lowered), n=8, cutoff=0.6)
    slips = [name for name in close if not name.startswith(wanted) or len(name) == len(wanted) + 1]
    alike = [name for name in slips if difflib.SequenceMatcher(None, name, wanted).ratio() > _A_SLIP]
    alike += [name for name in close if len(name) > 3 and wanted.startswith(name)]
    if wanted not in lowered and wanted in {word for name in lowered for word in _words_of(name)}:
        alike = []  # a word of some names, as a100 is, and no slip of a10
    meant = [] if alike or len(names) > _COMPARED else _by_words(wanted, names, words or {})
    if meant:
        quoted = [f"'{name}'" for name in meant[:3]]
        return f"did you mean {' or '.join(filter(None, [', '.join(quoted[:-1]), quoted[-1]]))}?"
    if close:
        # What goes on after all that was written comes first: h200-sxm and not b200 for h200.  Of equally close
        # names the one that begins alike: cpu0 and not gpu1 for cpu1.
        def likeness(name: str) -> tuple[bool, float, int]:
            ratio = difflib.SequenceMatcher(None, name, wanted).ratio()
            alike = sum(name[: i + 1] == wanted[: i + 1] for i in range(len(name)))
            return name.startswith(wanted), round(ratio, 6), alike

        return f"did you mean '{lowered[max(close, key=likeness)]}'?"
    if not names:
        return ""
    shown = ", ".join(names[:listed])
    more = f", ... ({len(names)} in all)" if len(names) > listed else ""
    return f"allowed: {shown}{more}"


def _by_words(wanted: str, names: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """Return those of *names* that hold every word of *wanted*, the name with the fewest others first."""
    asked = _words_of(wanted)
    found = []
    for name in names:
        own = _words_of(name.lower())
        every = own + _words_of(words.get(name, "").lower())
        if asked and all(_holds(every, ask) for ask in asked):
            in_name = sum(_holds(own, ask) for ask in asked)
            found.append((-in_name, len(own), len(name), name))
    return [name for *_, name in sorted(found)]


def _holds(words: Sequence[str], asked: str) -> bool:
    """Whether one of *words* is the number, or begins with the word, that was *asked* for."""
    return any(word == asked if asked.isdigit() else word.startswith(asked) for word in words)


def _words_of(text: str) -> list[str]:
    """Return the words of *text*; ``8xh100`` is 8 and h100, ``25gbit`` 25 and gbit."""
    pieces = re.findall(r"\d+(?=[a-z])|[a-z][a-z0-9]*|\d+", text)
    split = (re.sub(r"^x(?=[a-z])", "", piece) for piece in pieces)
    return [word for word in split if word != "x"]


def _around(wanted: str, names: Sequence[str]) -> list[str]:
    """Return, of many sorted *names*, those beside *wanted* and those that differ from it in one character."""
    known = set(names)
    halves = [(wanted[:i], wanted[i:]) for i in range(min(len(wanted), 80) + 1)]
    one_off = {a + b[1:] for a, b in halves} | {
        a + letter + rest for a, b in halves for letter in _LETTERS for rest in (b, b[1:])
    }
    place = bisect_left(names, wanted)
    near = names[max(0, place - _COMPARED // 4) : place + _COMPARED // 4]
    return sorted({*near, *(one_off & known)})


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake and its place.  Lines and columns count from 1; 0 means not known."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = one_line(self.file)
        if self.line:
            place += f":{self.line}:{self.column}"
        line = f"{place}: {self.message}" if place else self.message
        return line if len(line) <= _LONGEST_FAULT else line[: _LONGEST_FAULT - 3] + "..."


class TopocastError(Exception):
    """Root of all errors that this project raises on purpose."""

    exit_status = 1


class InputError(TopocastError):
    """The user's input holds one or more faults: ``faults`` has the first, ``more`` says how many others there are."""

    exit_status = 2

    def __init__(self, faults: Sequence[Fault] | Fault | str, more: int = 0) -> None:
        if isinstance(faults, str):
            faults = Fault(faults)
        if isinstance(faults, Fault):
            faults = [faults]
        self.faults: tuple[Fault, ...] = tuple(faults[:FAULTS_SHOWN])
        self.more = more + len(faults) - len(self.faults)
        rest = [f"and {self.more} more"] if self.more else []
        super().__init__("\n".join([*map(str, self.faults), *rest]))

    def __reduce__(self) -> tuple[type[InputError], tuple[tuple[Fault, ...], int]]:
        """As another process is told it."""
        return type(self), (self.faults, self.more)

    def changed(self, change: Callable[[Fault], Fault]) -> InputError:
        """Return the error with each fault as *change* makes of it."""
        return InputError([change(fault) for fault in self.faults], self.more)


class SimulationError(TopocastError):
    """The engine found a state that it cannot continue from."""


class MissingDependency(TopocastError):  # noqa: N818  the name says the fault
    """An optional library is needed for what was asked."""

    exit_status = 4
