"""Parsing of option values; a value that cannot be parsed gets a one-line error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

from simulator.collectives.registry import find_strategy, strategy_names
from simulator.errors import Fault, InputError, MissingDependency, nearest, one_line, refused
from simulator.network.machine import Machine
from simulator.questions.where import NCCL_TODAY, Month, month_of
from simulator.spelling import mention
from simulator.workload.collective import COLLECTIVES, Collective
from simulator.workload.precision import precision_named

_BEST = "best:"
_MAX_DIGITS = 18
_SYNONYMS = {"adamw": "adam"}
T = TypeVar("T", bound=str)
PLOT_SUFFIXES = (".svg", ".png", ".pdf")


def refuse(given: Mapping[str, bool], why: str) -> None:
    """Raise InputError for the options in *given* that were set, because nothing would read them."""
    faults = [Fault(f"{option}: {why}") for option, written in given.items() if written]
    if faults:
        raise InputError(faults)


def check_outputs(files: Mapping[str, str | None]) -> None:
    """Check the output files: all different, and a ``--plot`` that can be drawn.

    Raises InputError, or MissingDependency if matplotlib is needed and missing.
    """
    places: dict[str, str] = {}
    for option, path in files.items():
        other = places.setdefault(os.path.realpath(path), option) if path else option
        if other != option:
            raise InputError(f"{option} {one_line(path)}: is the file of {other} too")
    if files.get("--trace") == "-":
        raise InputError("--trace -: standard output has the result; name a file, for example --trace trace.json")
    plot = files.get("--plot")
    if plot is None:
        return
    if not plot.lower().endswith(PLOT_SUFFIXES):
        name = plot.rsplit("/", 1)[-1]
        found = "." + name.rsplit(".", 1)[1] if "." in name else "no suffix"
        hint = nearest(found.lower(), PLOT_SUFFIXES)
        raise InputError(f"--plot {one_line(plot, 60)}: {one_line(found, 20)} cannot be drawn; {hint}")
    if find_spec("matplotlib") is None:
        raise MissingDependency("--plot needs matplotlib; pip install matplotlib")


def parse_collective(text: str) -> Collective:
    """Return the collective called *text*, with ``-`` or ``_`` between its words; raises InputError."""
    name = text.strip().lower().replace("_", "-")
    for collective in COLLECTIVES:
        if name in (collective, collective.replace("-", "")):
            return collective
    raise refused("collective", f"no such collective; {nearest(name, COLLECTIVES)}", one_line(text, 60))


def parse_count(name: str, text: str) -> int:
    """Return the whole number *text* of the option *name*; raises InputError."""
    number = re.fullmatch(r"(-?)0*(\d+)", text.strip(), re.ASCII)
    if number is None:
        raise InputError(f"{mention(name, one_line(text, 60))}: must be a whole number")
    if len(number[2]) > _MAX_DIGITS:
        raise InputError(f"{mention(name, one_line(text, 60))}: is too {'small' if number[1] else 'large'}")
    return int(number[0])


def parse_choice(name: str, text: str, allowed: Sequence[T]) -> T:
    """Return the one of *allowed* that *text* of the option *name* names; raises InputError."""
    said = text.strip().lower()
    for choice in allowed:
        if choice in (said, said.replace("-", "_"), _SYNONYMS.get(said), precision_named(said)):
            return choice
    raise InputError(f"{mention(name, one_line(text, 40))}: no such choice; {nearest(said, allowed)}")


def parse_month(text: str) -> Month:
    """Return the month *text* of the kernel libraries, as in 2020-10; raises InputError."""
    month = month_of(text)
    if month is None:
        raise refused("libraries", "a month is needed, such as 2020-10", one_line(text, 40))
    return month


def parse_nccl(text: str) -> tuple[int, int]:
    """Return the version *text* of NCCL; raises InputError."""
    match = re.fullmatch(r"\s*(\d{1,2})\.(\d{1,3})(?:\.\d{1,3})?\s*", text, re.ASCII)
    if match is None or int(match[1]) < 2:
        why = "a version such as 2.18 is needed, from 2.0 on"
        if re.fullmatch(r"\s*\d{1,2}\s*", text, re.ASCII):
            why = f"the minor version is missing; {why}"
        elif marked := re.fullmatch(r"\s*[vV](\d{1,2}\.\d{1,3}(?:\.\d{1,3})?)\s*", text, re.ASCII):
            why = f"write it without the {text.strip()[0]}: {marked[1]}"
        raise refused("nccl", why, one_line(text, 40))
    return int(match[1]), int(match[2])


def software_notes(nccl: str | None) -> list[str]:
    """Return notes on an NCCL version newer than the known ones; raises as :func:`parse_nccl`."""
    if nccl is None or parse_nccl(nccl) <= NCCL_TODAY:
        return []
    major, minor = NCCL_TODAY
    return [f"{mention('nccl', nccl)} is not known yet: it chooses and takes what {major}.{minor} does"]


def read_all(*readers: Callable[[], Any]) -> list[Any]:
    """Return the results of all *readers*; raises InputError with the faults of all of them."""
    found: list[Any] = []
    faults: list[Fault] = []
    more = 0
    for read in readers:
        try:
            found.append(read())
        except InputError as error:
            faults += error.faults
            more += error.more
    if faults:
        raise InputError(faults, more)
    return found


def parse_list(name: str, text: str, read: Callable[[str], Any], example: str, *, repeats: bool = False) -> list[Any]:
    """Return the results of *read* for the comma-separated words of *text*; raises InputError.

    Repetitions are left out, unless *repeats*: two jobs may be alike.
    """
    words = [word.strip() for word in re.split(r",(?![^\[\]]*\])", text)]  # a range has commas too: gpu[0,2]
    if not all(words):
        raise InputError(f"{mention(name, one_line(text, 60))}: a name is missing; write for example {example}")
    found = read_all(*(partial(read, word) for word in words))
    return list(found if repeats else dict.fromkeys(found))


def parse_strategies(text: str) -> list[str]:
    """Return the strategies in *text*, without repetitions; ``all`` means every strategy; raises InputError."""

    def names(word: str) -> tuple[str, ...]:
        if word == "all":
            return tuple(strategy_names())
        find_strategy(word)
        return (word,)

    return list(dict.fromkeys(name for found in parse_list("strategy", text, names, "ring,tree") for name in found))


def wants_best(text: str | None) -> bool:
    """Whether ``--gpus`` asks for the fastest GPUs (``best:4``)."""
    return text is not None and text.strip().startswith(_BEST)


def parse_gpus(text: str | None, machine: Machine) -> Sequence[int]:
    """Return the GPUs of *machine* that are the ranks; raises InputError.

    ``4`` means the first four, ``0-4`` five GPUs, ``0,2,5`` three; ``best:4`` means four GPUs that are still to be
    found, and the first four until then.
    """
    total = len(machine.gpus)
    return range(total) if text is None else gpus_among(text, total, machine.name)


def gpus_among(text: str, total: int, name: str) -> Sequence[int]:
    """Return the GPUs that *text* chooses as :func:`parse_gpus` reads it, of the *total* GPUs that *name* has."""
    if wants_best(text):
        text = text.strip()[len(_BEST) :]
        if re.fullmatch(r"\d{1,18}", text, re.ASCII) is None:
            raise refused("gpus", f"write how many, for example {_BEST}4", _BEST + one_line(text, 60))
    shown = mention("gpus", one_line(text, 60))
    has = f"{name} has {total} GPU{'s' if total != 1 else ''}"
    words = [word.strip() for word in text.split(",")]
    if len(words) == 1 and re.fullmatch(r"\d{1,18}", words[0], re.ASCII):
        count = int(words[0])
        if count > total:
            raise InputError(f"{shown}: {has}")
        if count == 0:
            raise InputError(f"{shown}: at least one GPU takes part")
        return range(count)
    chosen: dict[int, None] = {}
    for word in words:
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", word, re.ASCII)
        if match is None:
            raise InputError(f"{shown}: write how many (4), a range (0-4), a list (0,2,5), or best:4")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise InputError(f"{shown}: the smaller number comes first; did you mean {last}-{first}?")
        if last >= total:
            raise InputError(f"{shown}: {has}, 0 to {total - 1}")
        for gpu in range(first, last + 1):
            if gpu in chosen:
                raise InputError(f"{shown}: GPU {gpu} is named twice")
            chosen[gpu] = None
    return tuple(chosen)
