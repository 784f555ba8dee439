"""Options for special circumstances: slow devices and links, other jobs, places of servers, failures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from simulator.cli.options import parse_choice, parse_count, parse_list, refuse
from simulator.cli.written import Written
from simulator.collectives.servers import OWN, WORKERS
from simulator.errors import InputError, one_line
from simulator.questions.checkpoints import CheckpointQuestion
from simulator.questions.step import check_loss, check_straggler
from simulator.questions.where import Neighbour, SlowLink
from simulator.units import parse_quantity

__all__ = [
    "parse_checkpoints",
    "parse_divide",
    "parse_loss",
    "parse_neighbours",
    "parse_servers",
    "parse_slow_links",
    "parse_staleness",
    "parse_stragglers",
]

ASYNC = "async"
T = TypeVar("T")


def parse_slow_links(text: str | None) -> tuple[SlowLink, ...]:
    """Return the slow links in *text*, each with its remaining bandwidth fraction and times; raises InputError."""

    def one(word: str) -> SlowLink:
        said, at, when = word.partition("@")
        ends, factor = _times("--slow-link", said, "gpu0-gpu1:0.5x")
        start, _, end = when.partition("..")
        try:
            from_s = parse_quantity(start, "time") if at else 0.0
            until_s = parse_quantity(end, "time") if end else math.inf
        except ValueError as error:
            raise InputError(f"--slow-link {one_line(word, 60)}: {error}; for example {ends}:0x@10ms..50ms") from None
        return SlowLink(ends, factor, from_s, until_s)

    return _each("--slow-link", text, one, "gpu0-gpu1:0.5x")


def parse_neighbours(text: str | None) -> tuple[Neighbour, ...]:
    """Return the other jobs in *text*; raises InputError."""

    def one(word: str) -> Neighbour:
        ends, _, rate = word.rpartition(":")
        try:
            rate_Bps = parse_quantity(rate, "bandwidth")
        except ValueError as error:
            raise InputError(f"--neighbour {one_line(word, 60)}: {error}") from None
        return Neighbour(ends, rate_Bps)

    return _each("--neighbour", text, one, "gpu0-gpu1:5GB/s")


def parse_stragglers(text: str | None) -> tuple[tuple[str, float], ...]:
    """Return the slow devices in *text*, each with the factor on its times; raises InputError."""

    def one(word: str) -> tuple[str, float]:
        name, factor = _times("--straggler", word, "gpu3:1.5x")
        check_straggler(name, factor)
        return name, factor

    return _each("--straggler", text, one, "gpu3:1.5x")


def _each(option: str, text: str | None, one: Callable[[str], T], example: str) -> tuple[T, ...]:
    """Return what *one* reads in each word of *text*, in which words may be alike; raises InputError."""
    return () if text is None else tuple(parse_list(option, text, one, example, repeats=True))


def parse_servers(text: str | None, strategies: Sequence[str]) -> tuple[str, ...]:
    """Return the places of parameter servers in *text*; raises InputError."""
    if text is None:
        return ()
    if not any(name.startswith("parameter-server") for name in strategies):
        raise InputError("--servers: is for --strategy parameter-server")
    places = tuple(parse_list("--servers", text, str, "node4.cpu0,node5.cpu0"))
    if len(places) > 1 and {OWN, WORKERS}.intersection(places):
        raise InputError(f"--servers {one_line(text, 60)}: own and workers stand alone")
    return places


def parse_staleness(text: str) -> int | None:
    """Return the number of steps that a worker may be ahead, or None if it never waits; raises InputError."""
    if text.strip().lower() == ASYNC:
        return None
    try:
        number = parse_count("--staleness", text)
    except InputError:
        raise InputError(f"--staleness {one_line(text, 60)}: must be a whole number, or async") from None
    if number < 0:
        raise InputError(f"--staleness {number}: must be at least 0, or async")
    return number


def parse_checkpoints(written: Written) -> CheckpointQuestion | None:
    """Return the question about failures and checkpoints, or None; raises InputError."""
    if written.mtbf is None:
        others = {
            "--checkpoint-every": written.checkpoint_every is not None,
            "--checkpoint-time": written.checkpoint_time is not None,
            "--restart-time": written.restart_time is not None,
        }
        refuse(others, "is about failures; add --mtbf, for example --mtbf 24h")
        return None
    every = None if written.checkpoint_every is None else parse_count("--checkpoint-every", written.checkpoint_every)
    if every is not None and every < 1:
        raise InputError(f"--checkpoint-every {every}: must be at least 1")
    return CheckpointQuestion(
        mtbf_s=_seconds("--mtbf", written.mtbf),
        every_steps=every,
        write_s=None if written.checkpoint_time is None else _seconds("--checkpoint-time", written.checkpoint_time),
        restart_s=0.0 if written.restart_time is None else _seconds("--restart-time", written.restart_time),
    )


def parse_divide(text: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether the batch is divided so that all finish together, and the CPUs that help; raises InputError."""
    how, *helpers = (word.strip() for word in text.split(","))
    if parse_choice("--divide", how, ("even", "best")) == "even":
        if helpers:
            raise InputError(f"--divide {one_line(text, 60)}: a CPU gets a part of what is divided best")
        return False, ()
    return True, tuple(helpers)


def parse_loss(text: str | None) -> tuple[str, float] | None:
    """Return the server that fails and the seconds after the start of a step, or None; raises InputError."""
    if text is None:
        return None
    name, sign, time = text.strip().rpartition("@")
    if not sign or not name:
        raise InputError(f"--lose {one_line(text, 60)}: write for example node4.cpu0@100ms")
    after_s = _seconds("--lose", time, positive=False)
    check_loss(name, after_s)
    return name, after_s


def _seconds(option: str, text: str, *, positive: bool = True) -> float:
    try:
        return parse_quantity(text, "time", positive=positive)
    except ValueError as error:
        raise InputError(f"{option} {one_line(text, 60)}: {error}") from None


def _times(option: str, word: str, example: str) -> tuple[str, float]:
    """Return the name and the factor in ``gpu3:1.5x``; raises InputError."""
    match = re.fullmatch(r"(.+):\s*(\d{1,6}(?:\.\d{1,9})?)\s*x", word.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise InputError(f"{option} {one_line(word, 60)}: write for example {example}")
    return match[1].strip(), float(match[2])
