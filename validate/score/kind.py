"""Kinds of tables, and what predicts the rows of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simulator.errors import nearest
from validate.score.table import Table

__all__ = ["Cell", "Kind", "Scorer", "recognise"]

Cell = Callable[[str], str]
"""Gives the text of a row under the name of a column; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What tables of one kind hold.

    Attributes
    ----------
    name : str
        What is measured: collectives, operators, training.
    needed, asked, measured : tuple of str
        Columns that must be there; those that a prediction sees, and no other; those that it is judged by.
    place : str
        The column that says where a row was measured: machine or device.
    axes, shown : tuple of tuples of str
        What documents, and what texts, group by.
    labels : tuple of str
        What rows can be grouped by apart from columns.
    baseline, baseline_label : str
        The baseline's name in documents, and in the heads of columns.
    legend : str
        What a reader has to know of the figures.

    """

    name: str
    needed: tuple[str, ...]
    asked: tuple[str, ...]
    measured: tuple[str, ...]
    place: str
    axes: tuple[tuple[str, ...], ...]
    shown: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    baseline: str
    baseline_label: str
    legend: str

    @property
    def read(self) -> tuple[str, ...]:
        """Columns that are looked at."""
        return tuple(dict.fromkeys((*self.asked, *self.measured, "trust")))


class Scorer(Protocol):
    """Predicts the rows of tables of one kind."""

    @property
    def kind(self) -> Kind:
        """The kind of tables."""

    @property
    def method(self) -> str:
        """How it predicts, in a few words."""

    def check(self, tables: Sequence[Table]) -> None:
        """Refuse options that fit none of *tables* (InputError)."""

    def prepare(self, table: Table, trust: Sequence[str]) -> Mapping[int, str]:
        """Look at *table* before its rows; return why rows, by their line, do not count."""

    def labels(self, cell: Cell) -> dict[str, str]:
        """Return what a row can be grouped by, apart from its columns."""

    def read(self, cell: Cell) -> Any:
        """Return what a row asks, *cell* knowing the columns ``kind.asked`` alone; may raise NotScored."""

    def predict_s(self, query: Any) -> float:
        """Return the predicted time of what was asked; may raise NotScored."""

    def baseline_s(self, query: Any) -> float:
        """Return what the baseline says; may raise NotScored."""

    def measured_s(self, cell: Cell) -> float:
        """Return what was measured, *cell* knowing all columns; may raise NotScored."""

    def published_s(self, cell: Cell) -> Mapping[str, float]:
        """Return what predictors of others say of a row, by their names."""


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
