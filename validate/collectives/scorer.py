"""Tables of measured collectives: predicted by a strategy on a topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from validate.collectives.predict import Predictor
from validate.collectives.query import COLUMNS_ASKED, Query, collective_name, read_query
from validate.score.baselines import ALPHA_BETA_RING, ALPHA_S
from validate.score.kind import Cell, Kind
from validate.score.machines import MachineBook
from validate.score.query import NotScored, number
from validate.score.table import Table

__all__ = ["COLLECTIVES", "LARGE_BYTES", "CollectiveScorer"]

LARGE_BYTES = 1 << 20
# Decade is that of the bytes, size is from or below 1 MiB, fit says whether the machine is
# among those that the constants were fitted to.
COLLECTIVES = Kind(
    name="collectives",
    needed=("machine", "n_gpus", "collective", "bytes", "time_s"),
    asked=COLUMNS_ASKED,
    measured=("time_s",),
    place="machine",
    axes=(
        ("size",),
        ("fit",),
        ("machine",),
        ("collective",),
        ("decade",),
        ("fit", "size"),
        ("machine", "size"),
        ("collective", "size"),
        ("machine", "collective", "decade"),
    ),
    shown=(("size",), ("fit",), ("machine",), ("collective",), ("decade",)),
    labels=("machine", "collective", "decade", "size", "fit"),
    baseline=ALPHA_BETA_RING,
    baseline_label="ring",
    legend=(
        f"ring: one alpha-beta ring at data sheet rates, alpha {ALPHA_S * 1e6:g} us; size: 1 MiB = 1048576 B;"
        " decade: 1e6 is 1 MB to below 10 MB"
    ),
)


class CollectiveScorer:
    """Predicts collectives on the machines of *book* with the strategy of that name."""

    def __init__(self, book: MachineBook, strategy: str = "nccl") -> None:
        self._book = book
        self._predictor = Predictor(book, strategy)
        self.method = f"strategy {strategy}"
        self.kind = COLLECTIVES
        if not book.needs_names:
            self.kind = replace(COLLECTIVES, needed=tuple(c for c in COLLECTIVES.needed if c != "machine"))

    def check(self, tables: Sequence[Table]) -> None:
        """Refuse names of machines that no row has."""
        self._book.check_used({table.cell(row, "machine") for table in tables for row in table.rows})

    def prepare(self, table: Table, trust: Sequence[str]) -> Mapping[int, str]:
        """All rows may count."""
        del table, trust
        return {}

    def labels(self, cell: Cell) -> dict[str, str]:
        """Return machine, collective, decade, size and fit."""
        labels = {"machine": cell("machine"), "collective": collective_name(cell("collective"))}
        labels.update(_size_labels(cell("bytes")))
        fitted_to = self._predictor.fitted_to
        if fitted_to and labels["machine"]:
            labels["fit"] = "fitted" if labels["machine"] in fitted_to else "not fitted"
        return labels

    def read(self, cell: Cell) -> Query:
        """Return what a row asks."""
        return read_query(cell)

    def predict_s(self, query: Query) -> float:
        """Return the simulated time."""
        return self._predictor.predict_s(query)

    def baseline_s(self, query: Query) -> float:
        """Return the time of one alpha-beta ring."""
        return self._predictor.baseline_s(query)

    def measured_s(self, cell: Cell) -> float:
        """Return ``time_s``."""
        return number("time_s", cell("time_s"))

    def published_s(self, cell: Cell) -> Mapping[str, float]:
        """None are known."""
        del cell
        return {}


def _size_labels(text: str) -> dict[str, str]:
    try:
        size_bytes = number("bytes", text)
    except NotScored:
        return {"decade": "", "size": ""}
    return {
        "decade": f"1e{Decimal(repr(size_bytes)).adjusted()}",
        "size": ">=1MiB" if size_bytes >= LARGE_BYTES else "<1MiB",
    }
