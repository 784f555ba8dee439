"""Options for special circumstances: slow devices and links, other jobs, places of servers, failures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from simulator.cli.options import parse_choice, parse_count, parse_list, refuse
from simulator.cli.written import Written
from simulator.errors import InputError, one_line, refused
from simulator.questions.where import Neighbour, SlowLink
from simulator.spelling import mention
from simulator.units import parse_quantity

if TYPE_CHECKING:
    from simulator.questions.step import CheckpointQuestion

ASYNC = "async"
T = TypeVar("T")


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


def parse_checkpoints(written: Written) -> CheckpointQuestion | None:
    """Return the question about failures and checkpoints, or None; raises InputError."""
    if written.mtbf is None:
        others = {
            mention("every_steps"): written.checkpoint_every is not None,
            mention("write_s"): written.checkpoint_time is not None,
            mention("restart_s"): written.restart_time is not None,
        }
        refuse(others, f"is about failures; add {mention('mtbf_s')}, for example {mention('mtbf_s', '24h')}")
        return None
    from simulator.questions.step import CheckpointQuestion

    every = None if written.checkpoint_every is None else parse_count("every_steps", written.checkpoint_every)
    return CheckpointQuestion(
        mtbf_s=_seconds("mtbf_s", written.mtbf),
        every_steps=every,
        write_s=None if written.checkpoint_time is None else _seconds("write_s", written.checkpoint_time),
        restart_s=0.0 if written.restart_time is None else _seconds("restart_s", written.restart_time),
    )


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
