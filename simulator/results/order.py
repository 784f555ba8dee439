"""The order of results: what counts its software comes first, ideal schedules last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from simulator.results.result import Result

if TYPE_CHECKING:  # exchanges alone need no device models
    from simulator.results.training_run import TrainingRun

BOUNDS = "lower bound of each schedule: bare links, without launches and protocols"
BARE = "on the bare links: launches and protocols add to these times"
TIE = 1e-2  # relative; no model of a real machine resolves less, and most resolve far less (see the bands)
Answer = TypeVar("Answer", bound="Result | TrainingRun")


def by_time(results: Iterable[Result]) -> list[Result]:
    """Return *results*, fastest first; times that differ only by rounding keep their order."""
    return sorted(results, key=lambda result: float(f"{result.sync_time_s:.9e}"))


def best_of(results: Sequence[Answer]) -> Answer:
    """Return the first result that counts its software; without such, the first that users can select; else a bound."""
    return min(results, key=lambda result: (not result.counts_software, result.is_bound))


def grouped(results: Sequence[Answer]) -> tuple[list[Answer], dict[int, str]]:
    """Return *results* in the order of a table, and a line to put before the first row of each group but the first.

    First stands what counts its software, then what users can select but is timed on the bare links, then bounds.
    """
    groups = {"": [result for result in results if result.counts_software], BARE: [], BOUNDS: []}
    for result in results:
        if not result.counts_software:
            groups[BOUNDS if result.is_bound else BARE].append(result)
    ordered: list[Answer] = []
    marks = {}
    for line, group in groups.items():
        if line and group:
            marks[len(ordered)] = line
        ordered += group
    return ordered, marks


def bare_words(results: Sequence[Answer]) -> str:
    """Return which of *results* users can select but are timed without their software; empty if none."""
    names = dict.fromkeys(r.strategy for r in results if not r.is_bound and not r.counts_software)
    return f"{listed(list(names))} {'is' if len(names) == 1 else 'are'} {BARE}" if names else ""


def listed(names: Sequence[str]) -> str:
    """Return *names* as a list in words: a, b and c."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
