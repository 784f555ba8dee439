"""The fields of a question as options say them: :func:`fields_of`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

from simulator.cli.later import later
from simulator.cli.options import (
    parse_choice,
    parse_collective,
    parse_count,
    parse_list,
    parse_month,
    parse_nccl,
    read_all,
)
from simulator.cli.written import CommandOptions
from simulator.errors import InputError, one_line, refused
from simulator.questions.checks import field_rules
from simulator.questions.where import Neighbour, SlowLink
from simulator.spelling import mention, option_of
from simulator.units import parse_quantity

ASYNC = "async"
T = TypeVar("T")
_OF_WAYS = ("accumulation", "bucket_bytes", "gpus", "layout", "strategy", "workload")
_OF_SEVERAL = ("batch", "divided", "helpers", "recompute", "recompute_parts", "sizes")
_APART = (*_OF_WAYS, *_OF_SEVERAL)  # what these say depends on other options, or is of several ways


def fields_of(written: CommandOptions, cls: Any) -> dict[str, Any]:
    """Return the fields of *cls*, a question or its options, that options of the same name say, by their types.

    Raises InputError with the faults of all of them.
    """
    said = {each.name: getattr(written, option_of(each.name), None) for each in fields(cls) if each.name not in _APART}
    given = {name: value for name, value in said.items() if value is not None}
    values = read_all(*(partial(_read, cls, name, value) for name, value in given.items()))
    return dict(zip(given, values, strict=True))


def _read(cls: Any, name: str, said: str | bool) -> Any:
    if isinstance(said, bool):
        return said
    if name in _READERS:
        return _READERS[name](said)
    rule = field_rules(cls).get(name)
    if name.endswith("_s"):
        return _seconds(name, said)
    if rule is None:
        return said
    return (
        parse_choice(name, said, [each for each in rule.choices if each]) if rule.choices else parse_count(name, said)
    )


def _epoch(text: str) -> int:
    value = parse_count("epoch_samples", text)
    if value < 1:
        raise refused("epoch_samples", "must be at least 1", value)
    return value


def _pairs(text: str) -> tuple[tuple[int, ...], ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"\d{1,6}>\d{1,6}", word, re.ASCII) for word in words):
        raise refused("pairs", "write for example 0>1,2>3", one_line(text, 60))
    return tuple(tuple(int(end) for end in word.split(">")) for word in words)


def parse_slow_links(text: str | None) -> tuple[SlowLink, ...]:
    """Return the slow links in *text*, each with its remaining bandwidth fraction and times; raises InputError."""

    def one(word: str) -> SlowLink:
        said, at, when = word.partition("@")
        ends, factor = _times("slow_links", said, "gpu0-gpu1:0.5x")
        start, _, end = when.partition("..")
        try:
            from_s = parse_quantity(start, "time") if at else 0.0
            until_s = parse_quantity(end, "time") if end else math.inf
        except ValueError as error:
            raise refused("slow_links", f"{error}; for example {ends}:0x@10ms..50ms", one_line(word, 60)) from None
        return SlowLink(ends, factor, from_s, until_s)

    return _each("slow_links", text, one, "gpu0-gpu1:0.5x")


def parse_neighbours(text: str | None) -> tuple[Neighbour, ...]:
    """Return the other jobs in *text*; raises InputError."""

    def one(word: str) -> Neighbour:
        ends, _, rate = word.rpartition(":")
        try:
            rate_Bps = parse_quantity(rate, "bandwidth")
        except ValueError as error:
            raise refused("neighbours", str(error), one_line(word, 60)) from None
        return Neighbour(ends, rate_Bps)

    return _each("neighbours", text, one, "gpu0-gpu1:5GB/s")


def parse_stragglers(text: str | None) -> tuple[tuple[str, float], ...]:
    """Return the slow devices in *text*, each with the factor on its times; raises InputError."""
    return _each("stragglers", text, lambda word: _times("stragglers", word, "gpu3:1.5x"), "gpu3:1.5x")


def _each(name: str, text: str | None, one: Callable[[str], T], example: str) -> tuple[T, ...]:
    """Return what *one* reads in each word of *text*, in which words may be alike; raises InputError."""
    return () if text is None else tuple(parse_list(name, text, one, example, repeats=True))


def parse_servers(text: str | None) -> tuple[str, ...]:
    """Return the places of parameter servers in *text*; raises InputError."""
    return () if text is None else tuple(parse_list("servers", text, str, "node4.cpu0,node5.cpu0"))


def parse_staleness(text: str) -> int | None:
    """Return the number of steps that a worker may be ahead, or None if it never waits; raises InputError."""
    if text.strip().lower() == ASYNC:
        return None
    try:
        return parse_count("staleness", text)
    except InputError:
        raise refused("staleness", "must be a whole number, or async", one_line(text, 60)) from None


def parse_divide(text: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether the batch is divided so that all finish together, and the CPUs that help; raises InputError."""
    how, *helpers = (word.strip() for word in text.split(","))
    return parse_choice("divided", how, ("even", "best")) == "best", tuple(helpers)


def parse_loss(text: str | None) -> tuple[str, float] | None:
    """Return the server that fails and the seconds after the start of a step, or None; raises InputError."""
    if text is None:
        return None
    name, sign, time = text.strip().rpartition("@")
    if not sign or not name:
        raise refused("lost", "write for example node4.cpu0@100ms", one_line(text, 60))
    return name, _seconds("lost", time, positive=False)


def _seconds(name: str, text: str, *, positive: bool = True) -> float:
    try:
        return parse_quantity(text, "time", positive=positive)
    except ValueError as error:
        raise InputError(f"{mention(name, one_line(text, 60))}: {error}") from None


def _times(name: str, word: str, example: str) -> tuple[str, float]:
    """Return the name and the factor in ``gpu3:1.5x``; raises InputError."""
    match = re.fullmatch(r"(.+):\s*(\d{1,6}(?:\.\d{1,9})?)\s*x", word.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise InputError(f"{mention(name, one_line(word, 60))}: write for example {example}")
    return match[1].strip(), float(match[2])


_READERS: Mapping[str, Callable[[str], Any]] = {
    "collective": parse_collective,
    "epoch_samples": _epoch,
    "input": later("simulator.questions.input_file:parse_input"),
    "libraries": parse_month,
    "lost": parse_loss,
    "nccl": parse_nccl,
    "pairs": _pairs,
    "servers": parse_servers,
    "staleness": parse_staleness,
    "stragglers": parse_stragglers,
}
