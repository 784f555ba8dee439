"""Measured rows as errors of classes (:class:`BandRow`), and as they would be for a new source (:class:`RowMixture`).

Rows of one source on one place form a unit.  How units and sources weigh, and what a wider class adds:
docs/decisions/bands.md.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from simulator.api import Session
from simulator.api.session import Question
from simulator.bands import FORMATS, Chain
from simulator.bands.composition import LEVEL, Composition
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.step import StepQuestion
from simulator.records import dataclass
from validate.kinds.kind import MeasuredRow
from validate.tables.statistics import gathered, weighted_quantile

_MOST = 100  # rows of a class per place and source: more add time, but no information on the class


@dataclass(frozen=True, slots=True)
class BandRow:
    """A row: its classes (``chain``), its error log(measured / predicted), its place, and its question.

    ``place`` is a device or machine; ``source`` the data set and its publisher; ``group`` names the rows judged
    together with it; ``alike`` rows that do the same work in another way or elsewhere, None if such are not compared.
    """

    chain: Chain
    error: float
    place: str
    source: str
    generation: str
    group: str
    question: Question
    composition: Composition
    alike: Hashable = None

    @property
    def machine(self) -> str:
        """The topology on which it was measured."""
        return self.question.where.topology


def measured(rows: Iterable[MeasuredRow], session: Session) -> Iterator[BandRow]:
    """Yield the *rows* that count; for software before 2019, only those of the fastest framework."""
    for row in rows:
        if row.skipped or row.asked is None or row.error is None or row.error <= -1.0:
            continue
        if row.labels.get("era") == "before 2019" and row.labels.get("framework_rank") != "best":
            continue
        question = row.asked.question
        try:
            composition = session.composed(question)
        except InputError:
            continue
        # of an operator, the classes are those of the kernel class that takes most of its time
        longest = max(composition.parts, key=lambda part: part.share, default=None)
        chain = composition.chain or (() if longest is None else longest.chain)
        if not chain:
            continue
        publisher = re.split("[@:#]", row.labels.get("source", ""), maxsplit=1)[0].strip()
        source = " ".join(filter(None, (row.labels.get("dataset", ""), publisher)))
        alike: Hashable = None
        if isinstance(question, StepQuestion):
            alike = question.workload, question.options.mode, question.options.precision
        elif isinstance(question, CollectiveQuestion):
            alike = question.collective, question.size_bytes
        place = composition.facts.place
        generation, group = composition.facts.generation or place, _group(row, chain)
        yield BandRow(chain, -math.log1p(row.error), place, source, generation, group, question, composition, alike)


def thinned(rows: Iterable[BandRow]) -> list[BandRow]:
    """Return at most 100 of *rows* per class, place and source, chosen by the hash of their questions."""
    counts: Counter[tuple[str, str, str]] = Counter()
    kept = []
    for row in sorted(rows, key=lambda row: sha256(repr(row.question).encode()).digest()):
        key = row.place, row.source, row.chain[0]
        counts[key] += 1
        kept += [row] if counts[key] <= _MOST else []
    return kept


def _group(row: MeasuredRow, chain: Chain) -> str:
    assert row.asked is not None
    question = row.asked.question
    if isinstance(question, StepQuestion):
        return chain[0].removeprefix("step ")
    if isinstance(question, CollectiveQuestion):
        return next(name for name in chain if not name.endswith(f" {question.collective}"))
    op = row.labels.get("op", "")
    if op in ("linear", "bmm", "matmul"):
        op = "products"
    form = FORMATS.get(row.labels.get("dtype", ""), "") if chain[-1] == "kernel" else ""
    _, _, library = chain[0].partition("-") if chain[-1] == "kernel" else ("", "", "")
    return " ".join(filter(None, (op or chain[0], library.partition(" ")[0], form)))


LEAST_PLACES = 2  # so that one can be left out at a time
NARROWEST = 1e-3  # least width of a band's side, in logarithms, as a divisor
_TAIL = (1.0 - LEVEL) / 2
_WIDEST = 4.0  # largest widening: a wider band would say nothing
_NARROWEST = 0.5  # least: with few groups a smaller factor is chance


class Quantiles(NamedTuple):
    """The 10 % and 90 % quantiles of the errors, and the median."""

    low: float
    middle: float
    high: float

    def beyond(self, error: float) -> float:
        """Return the distance of *error* from the middle, in half-widths of its side."""
        side = self.high - self.middle if error > self.middle else self.middle - self.low
        return abs(error - self.middle) / max(side, NARROWEST)


Unit = tuple[str, str]  # a source and a place that it measured
_Key = tuple[int, Unit]  # the index of a class in the family, and a unit


def unit_of(row: BandRow) -> Unit:
    """Return the unit of a row; rows of one unit have correlated errors."""
    return row.source, row.place


def weights_of(counts: Mapping[Unit, int]) -> dict[Unit, float]:
    """Return the weight of one row of each unit; *counts* are the units' numbers of rows."""
    places = Counter(source for source, _ in counts)
    return {unit: (n * places[unit[0]]) ** -0.5 for unit, n in counts.items()}


class RowMixture:
    """The rows of a class mixed with those of wider classes behind it, in that order in *family*."""

    def __init__(self, family: Sequence[Sequence[BandRow]]) -> None:
        self._rows = family[0]
        pooled = [(row.error, (level, unit_of(row)), row) for level, rows in enumerate(family) for row in rows]
        self._pooled = sorted(pooled, key=lambda each: (each[0], each[1][0], each[2].source))

    def quantiles(
        self, counts: Counter[_Key] | None = None, without: Callable[[BandRow], bool] = lambda _: False
    ) -> Quantiles:
        """Return the quantiles of all rows; or *without* some, where *counts* are those of the rest."""
        share = self._shares(Counter(key for _, key, _ in self._pooled) if counts is None else counts)
        passed, error, ends = 0.0, 0.0, (_TAIL, 0.5, 1.0 - _TAIL)
        found: list[float] = []
        for error, key, row in self._pooled:
            passed += 0.0 if without(row) else share[key]
            while len(found) < len(ends) and passed >= ends[len(found)] - 1e-9:
                found.append(error)
            if len(found) == len(ends):
                break
        return Quantiles(*found, *[error] * (len(ends) - len(found)))

    def widening(self, by: Callable[[BandRow], Hashable]) -> float | None:
        """Return the factor, 0.5 to 4, with which bands without a group hold 80 % of its rows; None for one."""
        weights = weights_of(Counter(map(unit_of, self._rows)))
        groups = gathered((by(row), row) for row in self._rows)
        counts: dict[Hashable, Counter[_Key]] = defaultdict(Counter)
        if len(groups) < LEAST_PLACES:
            return None
        for _, key, row in self._pooled:
            counts[by(row)][key] += 1
        whole = Counter(key for _, key, _ in self._pooled)
        found = []
        for group, rows in groups.items():
            band = self.quantiles(whole - counts[group], lambda row, group=group: by(row) == group)  # type: ignore[misc]
            found += [(band.beyond(row.error), weights[unit_of(row)]) for row in rows]
        return min(_WIDEST, max(_NARROWEST, weighted_quantile(sorted(found), LEVEL)))

    def _shares(self, counts: Counter[_Key]) -> dict[_Key, float]:
        """Return the weight of one row of each class and unit, normalised to 1 over all *counts* rows."""
        found: dict[int, dict[Unit, int]] = defaultdict(dict)
        for (level, unit), n in sorted(counts.items()):
            if n > 0:
                found[level][unit] = n
        left, shares = 1.0, dict[_Key, float]()
        for level, units in found.items():
            weights = weights_of(units)
            by_source: dict[str, float] = defaultdict(float)
            for (source, place), n in units.items():
                by_source[source] += n * weights[source, place]
            whole = math.fsum(by_source.values())
            sources = whole**2 / math.fsum(each**2 for each in by_source.values())
            share = left if level == max(found) else left * sources / (sources + 1.0)
            shares |= {(level, unit): share * weight / whole for unit, weight in weights.items()}
            left -= share
        return shares
