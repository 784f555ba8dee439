"""Make the classes of ``bands.json`` from measured rows (:func:`make_evidence`), and judge them (:func:`coverage`).

Places, sources and generations are left out in turn, to find how much wider bands must be to hold 80 % of the rows of
an unseen place, of one that others measured, and of a device outside all generations.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from statistics import median
from typing import Any

from simulator.api import Session
from simulator.api.session import Question
from simulator.bands import Chain, Evidence, MeasuredCoverage, Spread
from simulator.bands.composition import LEVEL, AnswerFacts, estimate, of_parts
from simulator.errors import InputError
from simulator.questions.step import StepQuestion
from simulator.records import asdict, dataclass, replace
from simulator.results.step_confidence import step_composition
from validate.bands import material
from validate.tables.statistics import gathered, percentile, weighted_quantile

LEAST_ROWS = 30
_MOST_STEPS = 5  # steps simulated per class, to find the width that their kernels explain
_MOST_RANKS = 8  # most ranks of these steps: larger ones take minutes, and run the same kernels


@dataclass(frozen=True, slots=True)
class CalibratedRow:
    """A row after calibration: log(measured / predicted), and the share of its variance that neighbours explain."""

    error: float
    known: float = 0.0


Family = Sequence[Sequence[material.BandRow]]  # the rows of a class, then of each wider class behind it
By = Callable[[material.BandRow], Hashable]
LEFT_OUT: Mapping[str, By] = {
    "place": lambda row: row.place,
    "source": lambda row: row.source,
    "generation": lambda row: row.generation,
}  # what is left out in turn: the key of a row's part.  Widths are made for places.


def make_evidence(
    rows: Sequence[material.BandRow],
    *,
    calibrated: Mapping[Question, CalibratedRow] | None = None,
    session: Session | None = None,
    wanted: Iterable[Chain] | None = None,
) -> Evidence:
    """Return the evidence of *rows*: the error classes with enough rows, and what was measured.

    *calibrated* holds errors of operators after calibrating their devices, by question; *session* simulates some steps
    of each class, for the width that kernels explain.  *wanted*: only the first class of each of these chains.
    """
    by_class = gathered((name, row) for row in rows for name in row.chain)
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
    if session is None:
        return found
    return replace(found, spreads={**spreads, **_with_parts(found, by_class, session)})


def _is_enough(rows: Sequence[material.BandRow]) -> bool:
    return len(rows) >= LEAST_ROWS and len({row.place for row in rows}) >= material.LEAST_PLACES


def _spread_of(name: str, family: Family, calibrated: Mapping[Question, CalibratedRow]) -> Spread:
    """Return the spread of errors of the class *name*, whose rows come first in *family*."""
    rows, mixture = family[0], material.RowMixture(family)
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
        ways=_differing(rows, lambda row: (row.machine, row.alike)),
        machines=_differing(rows, lambda row: row.alike),
        sources=len({row.source for row in rows}),
    )


def _shared(rows: Sequence[material.BandRow], whole: material.Quantiles) -> float:
    """Return the share of the variance that lies between places; outliers are clipped to the band's ends."""
    by_place = gathered((row.place, min(whole.high, max(whole.low, row.error))) for row in rows)
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


def _differing(rows: Sequence[material.BandRow], by: Callable[[material.BandRow], Hashable]) -> float | None:
    """Return the half-width that holds 80 % of deviations from the median of a row's group *by*; None for too few."""
    found = []
    for errors in gathered((by(row), row.error) for row in rows if row.alike is not None).values():
        if len(errors) > 1:
            middle = median(errors)
            lost = math.sqrt(len(errors) / (len(errors) - 1))  # corrects for the median being fitted to the same rows
            found += [(lost * abs(error - middle), len(errors) ** -0.5) for error in errors]
    return None if len(found) < LEAST_ROWS else round(weighted_quantile(sorted(found), LEVEL), 4)


def _calibrated(rows: Sequence[material.BandRow], calibrated: Mapping[Question, CalibratedRow]) -> tuple[float, float]:
    """Return the class's width after calibration over before, and the mean share of variance neighbours explain."""
    both = [row for row in rows if row.question in calibrated]
    if not _is_enough(both):
        return 1.0, 0.0
    weights = material.weights_of(Counter(map(material.unit_of, both)))
    widths = []
    for errors in ([row.error for row in both], [calibrated[row.question].error for row in both]):
        ordered = sorted((error, weights[material.unit_of(row)]) for error, row in zip(errors, both, strict=True))
        widths.append(weighted_quantile(ordered, (1 + LEVEL) / 2) - weighted_quantile(ordered, (1 - LEVEL) / 2))
    total = math.fsum(weights[material.unit_of(row)] for row in both)
    near = math.fsum(weights[material.unit_of(row)] * calibrated[row.question].known for row in both) / total
    return min(1.0, widths[1] / max(widths[0], material.NARROWEST)), near


def _with_parts(
    found: Evidence, by_class: Mapping[str, Sequence[material.BandRow]], session: Session
) -> dict[str, Spread]:
    """Return the classes of steps, with the half-widths that kernels and exchanges of a few steps explain."""
    made: dict[StepQuestion, tuple[float, float] | None] = {}
    changed = {}
    for name, spread in found.spreads.items():
        steps = [(row.composition.facts.ranks, row.question) for row in by_class[name]]
        few = [question for ranks, question in steps if isinstance(question, StepQuestion) and ranks <= _MOST_RANKS]
        if not few:
            continue
        halves = []
        for question in few[:: max(1, len(few) // _MOST_STEPS)][:_MOST_STEPS]:
            if question not in made:
                made[question] = None
                with suppress(InputError):
                    sides = of_parts(step_composition(session.step_as_told(question)), "seen", found)
                    made[question] = None if sides is None else (sides.middle - sides.low, sides.high - sides.middle)
            halves += [half for half in (made[question],) if half is not None]
        if halves:
            mean = [round(math.fsum(half[side] for half in halves) / len(halves), 4) for side in (0, 1)]
            changed[name] = replace(spread, of_parts=(mean[0], mean[1]))
    return changed


def _seen_in(rows: Iterable[material.BandRow]) -> MeasuredCoverage:
    def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
        found: dict[str, set[str]] = defaultdict(set)
        for name, each in pairs:
            found[name].add(each)
        return {name: tuple(sorted(found[name])) for name in sorted(found)}

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
    spreads = map(asdict, evidence.spreads.values())
    return {
        "schema_version": 1,
        "summary": "log(measured / predicted) by class, for the bands of answers; docs/decisions/bands.md",
        "level": LEVEL,
        "command": " ".join(["validate bands", *tables]),
        "seen": asdict(evidence.seen),
        "classes": [{name: value for name, value in spread.items() if value is not None} for spread in spreads],
    }


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share ``held`` of ``rows`` in their bands, and the median ``half_width``, a fraction of the prediction."""

    group: str
    rows: int
    places: int
    held: float
    half_width: float


def coverage(rows: Sequence[material.BandRow], by: By = LEFT_OUT["place"]) -> list[Coverage]:
    """Return by group the coverage of bands: *rows* are divided by the key *by*, each judged by bands of the rest."""
    groups: dict[str, list[tuple[material.BandRow, bool, float]]] = defaultdict(list)
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


def held_by(evidence: Evidence, rows: Sequence[material.BandRow]) -> Iterator[tuple[material.BandRow, bool, float]]:
    """Yield each of *rows* that has a band, whether its error lies within, and the half-width as a fraction."""
    for row in rows:
        found = estimate(replace(row.composition, parts=()) if row.composition.chain else row.composition, evidence)
        if found is not None:
            inside = found.low <= row.error <= found.high
            yield row, inside, (math.exp(found.high) - math.exp(found.low)) / 2
