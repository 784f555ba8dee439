"""A kind of tables: its columns, how a row becomes a question, and how it was timed.

Nothing here predicts: the question goes to the simulator's front door, and what it answers is set beside what was
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from simulator.api import Session
from simulator.api.session import Question
from simulator.bands.band import Band
from simulator.errors import InputError, nearest, one_line
from simulator.results.confidence import confidence_of
from validate.tables.cells import NotScored
from validate.tables.names import Names

__all__ = ["Asked", "Cell", "Kind", "Timing", "recognise"]

Cell = Callable[[str], str]
"""Gives the text of a row under the name of a column; empty where there is none."""


class Timing(Protocol):
    """How a measurement was timed: what it shows besides what is asked."""

    def shown_s(self, asked_s: float, session: Session) -> float:
        """Return what a clock shows where what was asked takes *asked_s*."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a row asks: a question, others that were timed along with it, and how."""

    question: Question
    besides: tuple[Question, ...] = ()
    timing: Timing | None = None

    def time_s(self, session: Session) -> float:
        """Return what a clock shows by the simulator's answers; raises NotScored where there is none."""
        try:
            asked_s = sum(session.time_s(each) for each in (self.question, *self.besides))
        except InputError as error:
            raise NotScored(one_line(error)) from None
        shown_s = asked_s if self.timing is None else self.timing.shown_s(asked_s, session)
        return _positive(shown_s, "predicted time")

    def band(self, session: Session, shown_s: float) -> Band | None:
        """Return the band of *shown_s*, what a clock shows by :meth:`time_s`; None where nothing like it was measured.

        Steps are taken as a whole: what they are made of needs their simulation, and narrows or widens little.
        """
        try:
            return confidence_of(shown_s, session.composed(self.question)).band
        except InputError:
            return None

    def bound_s(self, session: Session) -> float:
        """Return what the data sheet alone says; raises NotScored where it says nothing."""
        try:
            return _positive(sum(session.bound_s(each) for each in (self.question, *self.besides)), "baseline")
        except InputError as error:
            raise NotScored(one_line(error)) from None


@dataclass(frozen=True, slots=True)
class Kind:
    """What tables of one kind hold."""

    name: str  # what is measured: collectives, operators, training
    method: str  # how it is predicted, in a few words
    # needed, asked, measured: columns that must be there; those that a prediction sees, and no other; those that it is
    # judged by
    needed: tuple[str, ...]
    asked: tuple[str, ...]
    measured: tuple[str, ...]
    place: str  # the column that says where a row was measured: machine or device
    # axes, shown: what documents, and what texts, group by
    axes: tuple[tuple[str, ...], ...]
    shown: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]  # what rows can be grouped by apart from columns
    # baseline, baseline_label: the baseline's name in documents, and in the heads of columns
    baseline: str
    baseline_label: str
    legend: str  # what a reader has to know of the figures
    read: Callable[[Cell, Names], Asked]  # returns what a row asks, given the cells of ``asked``; raises NotScored
    measured_s: Callable[[Cell, Names], float]  # returns what was measured, given all cells; raises NotScored
    # returns what a row is grouped by beside its columns
    labelled: Callable[[Cell, Names, Session], Mapping[str, str]] = lambda _cell, _names, _session: {}

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are looked at."""
        return tuple(dict.fromkeys((*self.asked, *self.measured, "trust")))

    def with_names(self, names: Names) -> Kind:
        """Return the kind as tables are read with *names*: where the user says the place of all rows, none need."""
        place = "machine" if "machine" in self.needed else "device"
        book = names.machines if place == "machine" else names.devices
        return self if book.are_needed else replace(self, needed=tuple(c for c in self.needed if c != place))


def _positive(time_s: float, what: str) -> float:
    if not 0 < time_s < float("inf"):
        raise NotScored(f"the {what} is not positive")
    return time_s


def recognise(header: Sequence[str], kinds: Sequence[Kind]) -> Kind:
    """Return the kind of which a table with *header* has the largest share of needed columns, the first of equals."""
    found = {name.strip().lower() for name in header}

    def likeness(kind: Kind) -> float:
        return sum(name in found for name in kind.needed) / len(kind.needed)

    best = max(kinds, key=likeness)
    if likeness(best) > 0:
        return best
    # A misspelt name says the kind too; nothing at all is taken for the first.
    close = [kind for kind in kinds if any(nearest(name, kind.needed).startswith("did") for name in found)]
    return (close or list(kinds))[0]
