"""Classes of ``bands.json``, made of measured rows (:func:`make_evidence`), and how often they hold (:func:`coverage`).

Rows of one source on one place form a unit.  How units and sources weigh, and what a wider class adds:
docs/decisions/bands.md.  Places, sources and generations are left out in turn, to find how much wider bands must be to
hold 80 % of the rows of an unseen place, of one that others measured, and of a device outside all generations.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import Any, NamedTuple

from simulator.api import Session
from simulator.api.session import Question
from simulator.bands import FORMATS, Chain, Evidence, MeasuredCoverage, Spread
from simulator.bands.composition import LEVEL, AnswerFacts, Composition, estimate, of_parts
from simulator.errors import InputError
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.step import StepQuestion
from simulator.records import asdict, dataclass, lists_by_key, replace, sums_by_key
from simulator.results.step_confidence import step_composition
from validate.kinds.kind import MeasuredRow
from validate.tables.statistics import percentile, weighted_quantile

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


def measured(rows: Iterable[MeasuredRow], session: Session) -> Iterator[BandRow]:
    """Yield the *rows* that count; for software before 2019, only those of the fastest framework."""
    for row in rows:
        is_slower = row.labels.get("era") == "before 2019" and row.labels.get("framework_rank") != "best"
        if is_slower or row.skipped or row.asked is None or row.error is None or row.error <= -1.0:
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
        place = composition.facts.place
        generation, (group, alike) = composition.facts.generation or place, _group(row, question, chain)
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


def _group(row: MeasuredRow, question: Question, chain: Chain) -> tuple[str, Hashable]:
    if isinstance(question, StepQuestion):
        work = question.workload, question.options.mode, question.options.precision
        return chain[0].removeprefix("step "), work
    if isinstance(question, CollectiveQuestion):
        exchanged = question.collective, question.size_bytes
        return next(name for name in chain if not name.endswith(f" {question.collective}")), exchanged
    op = row.labels.get("op", "")
    if op in ("linear", "bmm", "matmul"):
        op = "products"
    form = FORMATS.get(row.labels.get("dtype", ""), "") if chain[-1] == "kernel" else ""
    _, _, library = chain[0].partition("-") if chain[-1] == "kernel" else ("", "", "")
    return " ".join(filter(None, (op or chain[0], library.partition(" ")[0], form))), None


LEAST_PLACES = 2  # so that one can be left out at a time
NARROWEST = 1e-3  # least width of a band's side, in logarithms, as a divisor
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
        passed, error, ends = 0.0, 0.0, ((1.0 - LEVEL) / 2, 0.5, (1.0 + LEVEL) / 2)
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
        groups = lists_by_key((by(row), row) for row in self._rows)
        if len(groups) < LEAST_PLACES:
            return None
        keys = lists_by_key((by(row), key) for _, key, row in self._pooled)
        whole = Counter(key for _, key, _ in self._pooled)
        found = []
        for group, rows in groups.items():
            band = self.quantiles(whole - Counter(keys[group]), lambda row, group=group: by(row) == group)  # type: ignore[misc]
            found += [(band.beyond(row.error), weights[unit_of(row)]) for row in rows]
        return min(_WIDEST, max(_NARROWEST, weighted_quantile(sorted(found), LEVEL)))

    def _shares(self, counts: Counter[_Key]) -> dict[_Key, float]:
        """Return the weight of one row of each class and unit, normalised to 1 over all *counts* rows."""
        found = lists_by_key((level, (unit, n)) for (level, unit), n in sorted(counts.items()) if n > 0)
        left, shares = 1.0, dict[_Key, float]()
        for level, units in found.items():
            weights = weights_of(dict(units))
            by_source = sums_by_key((unit[0], n * weights[unit]) for unit, n in units)
            whole = math.fsum(by_source.values())
            sources = whole**2 / math.fsum(each**2 for each in by_source.values())
            share = left if level == max(found) else left * sources / (sources + 1.0)
            shares |= {(level, unit): share * weight / whole for unit, weight in weights.items()}
            left -= share
        return shares


LEAST_ROWS = 30
_MOST_STEPS = 5  # steps simulated per class, to find the width that their kernels explain
_MOST_RANKS = 8  # most ranks of these steps: larger ones take minutes, and run the same kernels


CalibratedRow = tuple[float, float]
"""A row after calibration: log(measured / predicted), and the share of its variance that neighbours explain."""

Family = Sequence[Sequence[BandRow]]  # the rows of a class, then of each wider class behind it
By = Callable[[BandRow], Hashable]
LEFT_OUT: Mapping[str, By] = {what: attrgetter(what) for what in ("place", "source", "generation")}
"""What is left out in turn: the key of a row's part.  Widths are made for places."""


def make_evidence(
    rows: Sequence[BandRow],
    *,
    calibrated: Mapping[Question, CalibratedRow] | None = None,
    session: Session | None = None,
    wanted: Iterable[Chain] | None = None,
) -> Evidence:
    """Return the evidence of *rows*: the error classes with enough rows, and what was measured.

    *calibrated* holds errors of operators after calibrating their devices, by question; *session* simulates some steps
    of each class, for the width that kernels explain.  *wanted*: only the first class of each of these chains.
    """
    by_class = lists_by_key((name, row) for row in rows for name in row.chain)
    there = {name for name, mine in by_class.items() if _is_enough(mine)}
    if wanted is not None:
        there &= {next((name for name in chain if name in there), "") for chain in wanted}
    wider = {name: behind for row in rows for name, behind in pairwise(row.chain)}
    spreads = {}
    for name in sorted(there):
        family, behind = [by_class[name]], wider.get(name)
        while behind is not None:
            family += [by_class[behind]] if behind in there else []
            behind = wider.get(behind)
        spreads[name] = _spread_of(name, family, calibrated or {})
    found = Evidence(spreads, _seen_in(rows))
    return found if session is None else replace(found, spreads=spreads | _with_parts(found, by_class, session))


def _is_enough(rows: Sequence[BandRow]) -> bool:
    return len(rows) >= LEAST_ROWS and len({row.place for row in rows}) >= LEAST_PLACES


def _spread_of(name: str, family: Family, calibrated: Mapping[Question, CalibratedRow]) -> Spread:
    rows, mixture = family[0], RowMixture(family)
    whole = mixture.quantiles()
    place, source, generation, network = (
        mixture.widening(by) or 1.0 for by in (*LEFT_OUT.values(), lambda row: row.composition.facts.network)
    )
    narrower, near = _calibrated(rows, calibrated)
    return Spread(
        name,
        len(rows),
        len({row.place for row in rows}),
        low=round(whole.low, 4),
        middle=round(whole.middle, 4),
        high=round(whole.high, 4),
        shared=round(_shared(rows, whole), 3),
        unseen=round(place, 3),
        seen=round(min(place, source), 3),
        outside=round(max(place, generation), 3),
        strange=round(network, 3),
        calibrated=round(narrower, 3),
        near=round(near, 3),
        ways=_differing(rows, lambda row: (row.question.where.topology, row.alike)),
        machines=_differing(rows, lambda row: row.alike),
        sources=len({row.source for row in rows}),
    )


def _shared(rows: Sequence[BandRow], whole: Quantiles) -> float:
    """Return the share of the variance that lies between places; outliers are clipped to the band's ends."""
    by_place = lists_by_key((row.place, min(whole.high, max(whole.low, row.error))) for row in rows)
    means = {place: math.fsum(values) / len(values) for place, values in by_place.items()}
    weights = {place: math.sqrt(len(values)) for place, values in by_place.items()}
    total = math.fsum(weights.values())
    mean = math.fsum(weights[place] * means[place] for place in means) / total
    between = math.fsum(weights[place] * (means[place] - mean) ** 2 for place in means) / total
    within = math.fsum(
        weights[place] * math.fsum((value - means[place]) ** 2 for value in values) / len(values)
        for place, values in by_place.items()
    )
    within /= total
    return between / (between + within) if between + within > 0.0 else 0.0


def _differing(rows: Sequence[BandRow], by: Callable[[BandRow], Hashable]) -> float | None:
    """Return the half-width that holds 80 % of deviations from the median of a row's group *by*; None for too few."""
    found = []
    for errors in lists_by_key((by(row), row.error) for row in rows if row.alike is not None).values():
        if len(errors) > 1:
            middle = median(errors)
            lost = math.sqrt(len(errors) / (len(errors) - 1))  # corrects for the median being fitted to the same rows
            found += [(lost * abs(error - middle), len(errors) ** -0.5) for error in errors]
    return None if len(found) < LEAST_ROWS else round(weighted_quantile(sorted(found), LEVEL), 4)


def _calibrated(rows: Sequence[BandRow], calibrated: Mapping[Question, CalibratedRow]) -> tuple[float, float]:
    """Return the class's width after calibration over before, and the mean share of variance neighbours explain."""
    both = [row for row in rows if row.question in calibrated]
    if not _is_enough(both):
        return 1.0, 0.0
    weights = weights_of(Counter(map(unit_of, both)))
    widths = []
    for errors in ([row.error for row in both], [calibrated[row.question][0] for row in both]):
        ordered = sorted((error, weights[unit_of(row)]) for error, row in zip(errors, both, strict=True))
        widths.append(weighted_quantile(ordered, (1 + LEVEL) / 2) - weighted_quantile(ordered, (1 - LEVEL) / 2))
    total = math.fsum(weights[unit_of(row)] for row in both)
    near = math.fsum(weights[unit_of(row)] * calibrated[row.question][1] for row in both) / total
    return min(1.0, widths[1] / max(widths[0], NARROWEST)), near


def _with_parts(found: Evidence, by_class: Mapping[str, Sequence[BandRow]], session: Session) -> dict[str, Spread]:
    """Return the classes of steps, with the half-widths that kernels and exchanges of a few steps explain."""

    @cache
    def half(question: StepQuestion) -> tuple[float, float] | None:
        with suppress(InputError):
            sides = of_parts(step_composition(session.step_as_told(question)), "seen", found)
            return None if sides is None else (sides.middle - sides.low, sides.high - sides.middle)
        return None

    changed = {}
    for name, spread in found.spreads.items():
        few = [row.question for row in by_class[name] if row.composition.facts.ranks <= _MOST_RANKS]
        few = [question for question in few if isinstance(question, StepQuestion)]
        if halves := list(filter(None, map(half, few[:: max(1, len(few) // _MOST_STEPS)][:_MOST_STEPS]))):
            mean = [round(math.fsum(each[side] for each in halves) / len(halves), 4) for side in (0, 1)]
            changed[name] = replace(spread, of_parts=(mean[0], mean[1]))
    return changed


def _seen_in(rows: Iterable[BandRow]) -> MeasuredCoverage:
    def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
        return {name: tuple(sorted({*found})) for name, found in sorted(lists_by_key(pairs).items())}

    def most_ranks(every: Sequence[AnswerFacts]) -> dict[str, int]:
        return {scale: max(f.ranks for f in every if f.scale == scale) for scale in sorted({f.scale for f in every})}

    every = [row.composition.facts for row in rows]
    hosts, collectives = ([facts for facts in every if facts.kind == kind] for kind in ("host", "collective"))
    computing = [facts for facts in every if facts.kind not in ("host", "collective")]
    steps = [facts for facts in computing if facts.kind == "step"]
    exchanging = Counter(facts.exchange.generation for facts in steps if facts.exchange is not None)
    return MeasuredCoverage(
        devices=grouped((facts.place, facts.form) for facts in computing),
        generations=grouped((facts.generation, facts.form) for facts in computing),
        machines=tuple(sorted({facts.place for facts in collectives})),
        collectives=most_ranks(collectives),
        linked=tuple(sorted({facts.generation for facts in collectives})),
        gpus=most_ranks(steps),
        networks=tuple(sorted({facts.network for facts in steps})),
        kernels=tuple(sorted({name for facts in steps for name in facts.kernels})),
        exchanging=tuple(sorted(name for name, rows in exchanging.items() if rows >= LEAST_ROWS)),
        hosts=grouped((facts.what, facts.place) for facts in hosts),
    )


def bands_document(evidence: Evidence, tables: Sequence[str]) -> dict[str, Any]:
    """Return *evidence*, made from *tables*, as plain data."""
    spreads = evidence.spreads
    return {
        "schema_version": 1,
        "summary": "log(measured / predicted) by class, for the bands of answers; docs/decisions/bands.md",
        "level": LEVEL,
        "command": " ".join(["validate bands", *tables]),
        "seen": asdict(evidence.seen),
        "classes": [{k: value for k, value in asdict(each).items() if value is not None} for each in spreads.values()],
    }


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share ``held`` of ``rows`` in their bands, and the median ``half_width``, a fraction of the prediction."""

    group: str
    rows: int
    places: int
    held: float
    half_width: float


def coverage(rows: Sequence[BandRow], by: By = LEFT_OUT["place"]) -> list[Coverage]:
    """Return by group the coverage of bands: *rows* are divided by the key *by*, each judged by bands of the rest."""
    groups: dict[str, list[tuple[BandRow, bool, float]]] = defaultdict(list)
    for part in sorted({by(row) for row in rows}, key=str):
        mine = [row for row in rows if by(row) == part]
        classes = {name for row in mine for name in row.chain}
        others = [row for row in rows if by(row) != part and classes.intersection(row.chain)]
        chains = {part.chain for row in mine for part in row.composition.parts} | {row.chain for row in mine}
        for each in held_by(make_evidence(others, wanted=chains), mine):
            groups[each[0].group].append(each)
    found = []
    for group, of in sorted(groups.items()):
        held, half = sum(inside for _, inside, _ in of) / len(of), percentile(sorted(half for *_, half in of), 0.5)
        found.append(Coverage(group, len(of), len({row.place for row, *_ in of}), held, half))
    return found


def held_by(evidence: Evidence, rows: Sequence[BandRow]) -> Iterator[tuple[BandRow, bool, float]]:
    """Yield each of *rows* that has a band, whether its error lies within, and the half-width as a fraction."""
    for row in rows:
        found = estimate(replace(row.composition, parts=()) if row.composition.chain else row.composition, evidence)
        if found is not None:
            inside = found.low <= row.error <= found.high
            yield row, inside, (math.exp(found.high) - math.exp(found.low)) / 2
