"""Make the classes of ``bands.json`` from measured rows: :func:`make_evidence`.

The quantiles of a class weigh each place by the square root of its rows, so that neither one device with thousands of
rows nor one with three decides.  How much wider a band must be where a device was not seen is found by leaving each
place out in turn: bands of the others, and by what factor they must be widened to hold 80 % of its rows.  The same with
generations says it for what lies outside.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from simulator.api import Session
from simulator.api.session import Question
from simulator.bands.band import LEVEL
from simulator.bands.classes import Chain
from simulator.bands.composition import Composition, of_parts
from simulator.bands.evidence import Evidence, Seen, Spread
from simulator.errors import InputError
from simulator.questions.step import StepQuestion
from simulator.results.composed import step_composition
from validate.bands.material import Measured
from validate.tables.statistics import weighted_quantile

__all__ = ["make_evidence", "seen_in", "spread_of"]

LEAST_ROWS = 30
LEAST_PLACES = 4  # of which one is left out at a time
LEAST_PLACES_OF_LAST = 2  # of the last class of a chain, for which no wider one stands
_TAIL = (1.0 - LEVEL) / 2
_WIDEST = 4.0  # more says no more than that nobody knows
_NARROWEST = 1e-3  # of a side, in logarithms, beside which others are measured
_MOST_STEPS = 5  # of a class, that are simulated to see what their kernels explain
_MOST_RANKS = 8  # of each, where there are such: larger ones take minutes, and are made of the same kernels


class _Error(NamedTuple):
    error: float
    weight: float
    group: Hashable


class _Quantiles(NamedTuple):
    low: float
    middle: float
    high: float

    def beyond(self, error: float) -> float:
        """Return how many half-widths *error* is from the middle."""
        side = self.high - self.middle if error > self.middle else self.middle - self.low
        return abs(error - self.middle) / max(side, _NARROWEST)


def make_evidence(
    rows: Sequence[Measured],
    *,
    calibrated: Mapping[Question, float] | None = None,
    session: Session | None = None,
    wanted: Iterable[Chain] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Evidence:
    """Return what *rows* say.

    *calibrated* are the errors of operators once their device is calibrated; *session* simulates a few steps of each
    class, to see what their kernels explain.  *wanted*: chains of which the first class that is there is enough.
    """
    by_class: dict[str, list[Measured]] = defaultdict(list)
    for row in rows:
        for name in row.chain:
            by_class[name].append(row)
    there = {name: mine for name, mine in sorted(by_class.items()) if _is_enough(name, mine)}
    if wanted is not None:
        firsts = {next((name for name in chain if name in there), "") for chain in wanted}
        there = {name: mine for name, mine in there.items() if name in firsts}
    spreads = {name: spread_of(name, mine, calibrated or {}) for name, mine in there.items()}
    found = Evidence(spreads, seen_in(rows))
    if session is None:
        return found
    return replace(found, spreads={**spreads, **_with_parts(found, by_class, session, advance)})


def _is_enough(name: str, rows: Sequence[Measured]) -> bool:
    """Return whether the class has rows and places enough."""
    least = LEAST_PLACES_OF_LAST if rows[0].chain[-1] == name else LEAST_PLACES
    return len(rows) >= LEAST_ROWS and len({row.place for row in rows}) >= least


def spread_of(name: str, rows: Sequence[Measured], calibrated: Mapping[Question, float]) -> Spread:
    """Return the errors of a class."""
    counts = Counter(row.place for row in rows)
    errors = [_Error(row.error, counts[row.place] ** -0.5, row.place) for row in rows]
    whole = _quantiles(errors)
    unseen = max(1.0, _widening(errors) or 1.0)
    by_network = [_Error(e.error, e.weight, row.composition.facts.network) for e, row in zip(errors, rows, strict=True)]
    by_generation = [_Error(e.error, e.weight, row.generation) for e, row in zip(errors, rows, strict=True)]
    return Spread(
        name,
        len(rows),
        len(counts),
        low=round(whole.low, 4),
        middle=round(whole.middle, 4),
        high=round(whole.high, 4),
        shared=round(_shared(errors, whole), 3),
        unseen=round(unseen, 3),
        outside=round(max(unseen, _widening(by_generation) or 1.0), 3),
        strange=round(max(1.0, _widening(by_network) or 1.0), 3),
        calibrated=round(_calibrated(rows, calibrated), 3),
        ways=_differing(rows, lambda row: (row.machine, row.alike)),
        machines=_differing(rows, lambda row: row.alike),
    )


def _quantiles(errors: Iterable[_Error]) -> _Quantiles:
    """Return the weighted quantiles that leave as much out on either side, and the median."""
    ordered = sorted((each.error, each.weight) for each in errors)
    return _Quantiles(*(weighted_quantile(ordered, share) for share in (_TAIL, 0.5, 1.0 - _TAIL)))


def _widening(errors: Sequence[_Error]) -> float | None:
    """Return by what factor bands made without a group must be widened to hold the level of its rows."""
    ordered = sorted(errors)
    found = []
    for group in {each.group for each in ordered}:
        others = [each for each in ordered if each.group != group]
        if not others:
            return None
        band = _quantiles(others)
        found += [_Error(band.beyond(each.error), each.weight, "") for each in ordered if each.group == group]
    return min(_WIDEST, _reached(found, LEVEL)) if found else None


def _shared(errors: Sequence[_Error], whole: _Quantiles) -> float:
    """Return the part of the variance that lies between places; outliers count as the ends of the band."""
    by_place: dict[Hashable, list[float]] = defaultdict(list)
    for each in errors:
        by_place[each.group].append(min(whole.high, max(whole.low, each.error)))
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


def _differing(rows: Sequence[Measured], by: Callable[[Measured], Hashable]) -> float | None:
    """Return the half-width of what rows differ by from the median of those that are one *by* this; None of too few."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for row in rows:
        if row.alike is not None:
            groups[by(row)].append(row.error)
    found = []
    for errors in groups.values():
        if len(errors) > 1:
            middle = median(errors)
            lost = math.sqrt(len(errors) / (len(errors) - 1))  # to the median, which is of the same rows
            found += [_Error(lost * abs(error - middle), len(errors) ** -0.5, "") for error in errors]
    if len(found) < LEAST_ROWS:
        return None
    return round(_reached(found, LEVEL), 4)


def _reached(errors: Iterable[_Error], level: float) -> float:
    """Return below which value that share of *errors* lies, by weight."""
    ordered = sorted(errors)
    whole, passed = math.fsum(each.weight for each in ordered), 0.0
    for each in ordered:
        passed += each.weight
        if passed >= level * whole:
            break
    return each.error


def _calibrated(rows: Sequence[Measured], calibrated: Mapping[Question, float]) -> float:
    """Return how wide the class is after calibrating, against what the same rows were before; 1 where too few were."""
    both = [(row, calibrated[row.question]) for row in rows if row.question in calibrated]
    counts = Counter(row.place for row, _ in both)
    if len(both) < LEAST_ROWS or len(counts) < LEAST_PLACES:
        return 1.0
    before = _quantiles(_Error(row.error, counts[row.place] ** -0.5, row.place) for row, _ in both)
    after = _quantiles(_Error(error, counts[row.place] ** -0.5, row.place) for row, error in both)
    return min(1.0, (after.high - after.low) / max(before.high - before.low, _NARROWEST))


# -- steps -----------------------------------------------------------------------------


def _with_parts(
    found: Evidence, by_class: Mapping[str, Sequence[Measured]], session: Session, advance: Callable[[], None]
) -> dict[str, Spread]:
    """Return the classes of steps, with what kernels and exchanges of a few of them explain."""
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
                made[question] = _explained(session, question, found)
                advance()
            explained = made[question]
            if explained is not None:
                halves.append(explained)
        if halves:
            mean = [round(math.fsum(half[side] for half in halves) / len(halves), 4) for side in (0, 1)]
            changed[name] = replace(spread, of_parts=(mean[0], mean[1]))
    return changed


def _explained(session: Session, question: StepQuestion, found: Evidence) -> tuple[float, float] | None:
    try:
        composition: Composition = step_composition(session.step(question))
    except InputError:
        return None
    sides = of_parts(composition, "seen", found)
    return None if sides is None else (sides.middle - sides.low, sides.high - sides.middle)


# -- what was seen ---------------------------------------------------------------------


def seen_in(rows: Iterable[Measured]) -> Seen:
    """Return what *rows* cover."""
    devices: dict[str, set[str]] = defaultdict(set)
    generations: dict[str, set[str]] = defaultdict(set)
    hosts: dict[str, set[str]] = defaultdict(set)
    collectives: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    networks: set[str] = set()
    machines: set[str] = set()
    linked: set[str] = set()
    for facts in (row.composition.facts for row in rows):
        if facts.kind == "host":
            hosts[facts.what].add(facts.place)
        elif facts.kind == "collective":
            collectives[facts.scale] = max(collectives[facts.scale], facts.ranks)
            machines.add(facts.place)
            linked.add(facts.generation)
        else:
            devices[facts.place].add(facts.form)
            generations[facts.generation].add(facts.form)
            if facts.kind == "step":
                networks.add(facts.network)
                gpus[facts.scale] = max(gpus[facts.scale], facts.ranks)
    return Seen(
        devices={name: tuple(sorted(devices[name])) for name in sorted(devices)},
        generations={name: tuple(sorted(generations[name])) for name in sorted(generations)},
        machines=tuple(sorted(machines)),
        collectives=dict(sorted(collectives.items())),
        linked=tuple(sorted(linked)),
        gpus=dict(sorted(gpus.items())),
        networks=tuple(sorted(networks)),
        hosts={name: tuple(sorted(hosts[name])) for name in sorted(hosts)},
    )
