"""Coverage of bands: the share of measured rows inside bands made without their place (:func:`coverage`)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from simulator.bands import Evidence
from simulator.bands.composition import estimate
from simulator.records import dataclass, replace
from validate.bands.make import make_evidence
from validate.bands.material import BandRow
from validate.tables.statistics import percentile

By = Callable[[BandRow], Hashable]
LEFT_OUT: Mapping[str, By] = {
    "place": lambda row: row.place,
    "source": lambda row: row.source,
    "generation": lambda row: row.generation,
}
"""What is left out in turn: the key of a row's part.  Widths are made for places."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share ``held`` of a group's ``rows`` on ``places`` that lie in their bands.

    ``half_width`` is the bands' median half-width, as a fraction of the predicted time.
    """

    group: str
    rows: int
    places: int
    held: float
    half_width: float


def coverage(rows: Sequence[BandRow], by: By = LEFT_OUT["place"]) -> list[Coverage]:
    """Return by group the coverage of bands: *rows* are divided by the key *by*, each judged by bands of the rest."""
    held: list[tuple[BandRow, bool, float]] = []
    for part in sorted({by(row) for row in rows}, key=str):
        mine = [row for row in rows if by(row) == part]
        classes = {name for row in mine for name in row.chain}
        others = [row for row in rows if by(row) != part and classes.intersection(row.chain)]
        chains = {part.chain for row in mine for part in row.composition.parts} | {row.chain for row in mine}
        held += held_by(make_evidence(others, wanted=chains), mine)
    return summary(held)


def held_by(evidence: Evidence, rows: Sequence[BandRow]) -> Iterator[tuple[BandRow, bool, float]]:
    """Yield each of *rows* that has a band, whether its error lies within, and the half-width as a fraction."""
    for row in rows:
        found = estimate(replace(row.composition, parts=()) if row.composition.chain else row.composition, evidence)
        if found is not None:
            inside = found.low <= row.error <= found.high
            yield row, inside, (math.exp(found.high) - math.exp(found.low)) / 2


def summary(held: Sequence[tuple[BandRow, bool, float]]) -> list[Coverage]:
    """Return the coverage of each group, from the results of :func:`held_by`."""
    groups: dict[str, list[tuple[BandRow, bool, float]]] = defaultdict(list)
    for each in held:
        groups[each[0].group].append(each)
    return [
        Coverage(
            group,
            len(mine),
            len({row.place for row, _, _ in mine}),
            sum(inside for _, inside, _ in mine) / len(mine),
            percentile(sorted(half for _, _, half in mine), 0.5),
        )
        for group, mine in sorted(groups.items())
    ]
