"""All errors that a user can meet, their wording and places; faults of an input are raised together.

They name a field of a question by :func:`mention`; each door spells ``mention("bucket_bytes", 0)`` as its users write
it.
"""

import difflib
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal, TypeVar

from simulator.records import dataclass, own_data

T = TypeVar("T")
FAULTS_SHOWN = 20  # faults of one input; the others are counted
_LONGEST_FAULT = 600  # characters per line
_COMPARED = 1_000  # names; of more, only neighbours and those with one other character are compared
_A_SLIP = 0.8  # similarity of a name with one or two wrong letters
_TRIED = 100_000  # divisors of a number
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-._"
Door = Literal["field", "python", "command", "value"]
"""Who reads a message: one who made the question, or asks in Python or by a command; or where values stand alone."""
_OPTIONS: Mapping[str, str] = own_data("simulator", "spelling.json")["options"]
"""Options whose name is not that of their field, by field."""
_WORDS: Mapping[str, str] = own_data("simulator", "spelling.json")["words"]
"""Options that are keywords or names in Python, by what they are called there."""
_NUMBER = r"-?\d[\w.+-]*"
# Control characters, which errors escape in everything that a user wrote.
_MARK = re.compile("\x0e([^\x1f]*)\x1f([^\x0f]*)\x0f")


def mention(field: str, value: object = "") -> str:
    """Return the place of *field* in a message, with the *value* that was said; True and False are a switch's."""
    return f"\x0e{field}\x1f{value}\x0f"


def option_of(field: str) -> str:
    """Return the option that says *field*, as Python names it."""
    return _OPTIONS.get(field, field)


def word_of(option: str) -> str:
    """Return *option* as the command line spells it: ``--global-batch``."""
    return f"--{_WORDS.get(option, option).replace('_', '-')}"


def spelt(text: str, door: Door = "field") -> str:
    """Return *text* with its fields spelt as those write them who ask by *door*."""
    return _MARK.sub(lambda mark: _spelt(mark[1], mark[2], door), text) if "\x0e" in text else text


def _spelt(field: str, value: str, door: Door) -> str:
    if door == "value":
        return value
    name = field if door == "field" else option_of(field)
    if door != "command":
        if field == "sizes" and "=" in value and door == "python":
            key, _, size = value.partition("=")
            return f"{name}={{{key!r}: {size if re.fullmatch(_NUMBER, size) else repr(size)}}}"
        plain = value in ("", "True", "False", "None") or re.fullmatch(_NUMBER, value)
        return f"{name}={value if plain else repr(value)}" if value else name
    if value == "False":
        return f"--no-{name.replace('_', '-')}"
    return word_of(name) if value in ("", "True") else f"{word_of(name)} {value}"


def escaped(text: str) -> str:
    r"""Return *text* with characters that a terminal would obey or hide written as ``\x1b``; newlines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: object, limit: int = 120) -> str:
    """Return *text* without line breaks, control characters escaped, cut to *limit* characters."""
    flat = escaped(" ".join(str(text)[: 8 * limit].split()))
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def counted(count: int, what: str) -> str:
    """Return *count* of *what*, a word in the singular: 1 GPU, 8 GPUs."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def nearest(
    found: str,
    allowed: Iterable[str],
    listed: int = 12,
    words: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    first: Collection[str] = (),
) -> str:
    """Return a hint at the right word: a similar one (or what it is an alias of), up to three by *words*, or a list."""
    names = sorted(dict.fromkeys(allowed))  # fast if already sorted
    if aliases:
        hint = nearest(found, [*names, *aliases], 0, words)
        listed_names = list(dict.fromkeys(aliases.get(name, name) for name in re.findall("'([^']+)'", hint)))
        return _did_you_mean(listed_names) if listed_names else nearest(found, names, listed, words)
    wanted = found.lower()[:_LONGEST_FAULT]
    lowered = {name.lower(): name for name in (names if len(names) <= _COMPARED else _around(wanted, names))}
    close = difflib.get_close_matches(wanted, list(lowered), n=8, cutoff=0.6)
    slips = [name for name in close if not name.startswith(wanted) or len(name) == len(wanted) + 1]
    alike = [name for name in slips if difflib.SequenceMatcher(None, name, wanted).ratio() > _A_SLIP]
    alike += [name for name in close if len(name) > 3 and wanted.startswith(name)]
    if wanted not in lowered and wanted in {word for name in lowered for word in _words_of(name)}:
        alike = []  # a whole word of some names, like a100, is no typo of another
    meant = [] if alike or len(names) > _COMPARED else _by_words(wanted, names, words or {})
    if meant:
        return _did_you_mean(meant[:3])
    if close:
        # First the names that continue the text (h200-sxm, not b200, for h200); among equally similar ones, the longest
        # common start (cpu0, not gpu1, for cpu1).
        def likeness(name: str) -> tuple[bool, float, int]:
            ratio = difflib.SequenceMatcher(None, name, wanted).ratio()
            alike = sum(name[: i + 1] == wanted[: i + 1] for i in range(len(name)))
            return name.startswith(wanted), round(ratio, 6), alike

        return _did_you_mean([lowered[max(close, key=likeness)]])
    if not names:
        return ""
    shown = ", ".join(sorted(names, key=lambda name: name not in first)[:listed])
    more = f", ... ({len(names)} in all)" if len(names) > listed else ""
    return f"allowed: {shown}{more}"


def _did_you_mean(names: Sequence[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return f"did you mean {' or '.join(filter(None, [', '.join(quoted[:-1]), quoted[-1]]))}?"


def _by_words(wanted: str, names: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """Return the *names* that contain every word of *wanted*, those with the fewest other words first."""
    asked = _words_of(wanted)
    found = []
    for name in names:
        own = _words_of(name.lower())
        every = own + _words_of(words.get(name, "").lower())
        if asked and all(_holds(every, ask) for ask in asked):
            found.append((-sum(_holds(own, ask) for ask in asked), len(own), len(name), name))
    return [name for *_, name in sorted(found)]


def _holds(words: Sequence[str], asked: str) -> bool:
    """Whether one of *words* equals the number *asked*, or starts with the word *asked*."""
    return any(word == asked if asked.isdigit() else word.startswith(asked) for word in words)


def _words_of(text: str) -> list[str]:
    pieces = re.findall(r"\d+(?=[a-z])|[a-z][a-z0-9]*|\d+", text)
    split = (re.sub(r"^x(?=[a-z])", "", piece) for piece in pieces)
    return [word for word in split if word != "x"]


def _around(wanted: str, names: Sequence[str]) -> list[str]:
    """Return those of many sorted *names* that are close to *wanted* in order, or differ from it in one character."""
    known = set(names)
    halves = [(wanted[:i], wanted[i:]) for i in range(min(len(wanted), 80) + 1)]
    one_off = {a + letter + rest for a, b in halves for letter in ("", *_LETTERS) for rest in (b, b[1:])}
    place = bisect_left(names, wanted)
    near = names[max(0, place - _COMPARED // 4) : place + _COMPARED // 4]
    return sorted({*near, *(one_off & known)})


def first_of(notes: Iterable[str]) -> list[str]:
    """Return the first ``FAULTS_SHOWN`` of *notes*, each once, and the number of the others."""
    found = list(dict.fromkeys(notes))
    more = [f"and {len(found) - FAULTS_SHOWN:,} more"] if len(found) > FAULTS_SHOWN else []
    return [*found[:FAULTS_SHOWN], *more]


def few(names: Collection[str], listed: int = 12) -> str:
    """Return the first of *names*, and how many there are if these are not all."""
    shown = ", ".join(one_line(name, 40) for name in islice(names, listed))
    return f"{shown}, ... ({len(names):,} in all)" if len(names) > listed else shown


def some(texts: Sequence[str], most: int) -> str:
    """Return the first *most* of *texts*, and how many more there are."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def divisors(number: int, listed: int = 40) -> str:
    """Return the divisors of *number*, at most *listed*, as a hint at what would divide it."""
    small = [d for d in range(1, min(math.isqrt(number), _TRIED) + 1) if number % d == 0]
    found = [*small, *(number // d for d in reversed(small) if d * d != number)]
    return ", ".join(map(str, found[:listed])) + (", ..." if len(found) > listed else "")


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake and its place.  Lines and columns count from 1; 0 means unknown."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return self.spelt("field")

    def spelt(self, door: Door) -> str:
        """Return the line with the names of what was asked as those write them who ask by *door*."""
        line = spelt(self.unspelt, door)
        return line if len(line) <= _LONGEST_FAULT else line[: _LONGEST_FAULT - 3] + "..."

    @property
    def unspelt(self) -> str:
        """The line, in which the names of what was asked are not spelt yet."""
        place = self.file if self.file.startswith("\x0e") else one_line(self.file)
        if self.line:
            place += f":{self.line}:{self.column}"
        return f"{place}: {self.message}" if place else self.message


class TopocastError(Exception):
    """Base class of all errors that this project raises on purpose."""

    exit_status = 1

    def spelt(self, door: Door) -> str:
        """Return the message as those read it who ask by *door*; ``value``: without the names of what was asked."""
        return spelt(super().__str__(), door)

    def __str__(self) -> str:
        return self.spelt("field")


class InputError(TopocastError):
    """One or more faults in the user's input: the first ones in ``faults``, and the number of others in ``more``."""

    exit_status = 2

    def __init__(self, faults: Sequence[Fault] | Fault | str, more: int = 0) -> None:
        if isinstance(faults, str):
            faults = Fault(faults)
        if isinstance(faults, Fault):
            faults = [faults]
        self.faults: tuple[Fault, ...] = tuple(faults[:FAULTS_SHOWN])
        self.more = more + len(faults) - len(self.faults)
        super().__init__(self.faults, self.more)

    def spelt(self, door: Door) -> str:
        """Return the faults, one on each line, as those read them who ask by *door*."""
        lines = [fault.spelt(door) for fault in self.faults] + ([f"and {self.more} more"] if self.more else [])
        return "\n".join(lines if door != "value" else [line.removeprefix(": ") for line in lines])

    def __reduce__(self) -> "tuple[type[InputError], tuple[tuple[Fault, ...], int]]":
        return type(self), (self.faults, self.more)

    def changed(self, change: Callable[[Fault], Fault]) -> "InputError":
        """Return the error with *change* applied to each fault."""
        return InputError([change(fault) for fault in self.faults], self.more)


def refused(field: str, why: str, value: object = "") -> InputError:
    """Return the error that *field* of what was asked is refused; *value*: what was said."""
    return InputError(f"{mention(field, value)}: {why}")


def stated(value: T | None, missing: str) -> T:
    """Return *value*; raises InputError, which says what is *missing*, where it is None."""
    if value is None:
        raise InputError(missing)
    return value


class SimulationError(TopocastError):
    """The engine reached a state that it cannot continue from."""


class MissingDependency(TopocastError):  # noqa: N818  the name says the fault
    """An optional library is needed but not installed."""

    exit_status = 4
