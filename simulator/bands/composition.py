"""The composition of an answer, and its error from the errors of its parts: :func:`estimate`.

The error of a kernel, log(measured / predicted), is modelled as the sum of two terms: one shared by a whole device or
machine, and one specific to the kernel.  In a sum of kernels, the shared terms add linearly.  The specific terms of
different kernels are independent and add in quadrature, so over many kernels little of them remains.  Equal kernels
count as one kernel with one error.  A step also has an error of its own: the part of its class's error that the kernels
of such steps do not explain.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from simulator.bands.classes import Chain
from simulator.bands.distance import Facts, State, distance
from simulator.bands.evidence import Evidence, Spread


@dataclass(frozen=True, slots=True)
class Part:
    """The parts of one class: their ``share`` of the time, and the root sum of squares of their shares (``alone``).

    ``known`` is the share of their errors' variance that measured neighbours explain, weighted by time.
    """

    chain: Chain
    share: float
    alone: float
    known: float = 0.0


@dataclass(frozen=True, slots=True)
class Composition:
    """The composition of an answer.

    ``chain`` has the classes of the answer as a whole; it is empty for a plain sum of ``parts``.  ``facts`` describe
    the answer.
    """

    chain: Chain
    parts: tuple[Part, ...]
    facts: Facts


@dataclass(frozen=True, slots=True)
class Estimate:
    """The error of an answer: the ends and middle of log(measured / predicted).

    ``ways`` and ``machines`` are half-widths of the error that does not cancel in comparisons: with another answer for
    the same task on the same machine, and with an answer for another machine.  ``widest`` is the class that contributes
    most to the width, with its number of ``rows`` and ``places``.
    """

    low: float
    middle: float
    high: float
    ways: float
    machines: float
    widest: str
    rows: int
    places: int


def parts_of(times_s: Iterable[tuple[Chain, Hashable, float, float]], whole_s: float) -> tuple[Part, ...]:
    """Return the parts of the time *whole_s*, given (classes, identity, seconds, known share) of each piece.

    Pieces of equal identity have the same error.
    """
    by_chain: dict[Chain, dict[Hashable, float]] = {}
    known_s: dict[Chain, float] = {}
    for chain, what, seconds, known in times_s:
        found = by_chain.setdefault(chain, {})
        found[what] = found.get(what, 0.0) + seconds
        known_s[chain] = known_s.get(chain, 0.0) + known * seconds
    if whole_s <= 0.0:
        return ()
    return tuple(
        Part(
            chain,
            sum(found.values()) / whole_s,
            math.sqrt(sum(s * s for s in found.values())) / whole_s,
            known_s[chain] / (sum(found.values()) or 1.0),
        )
        for chain, found in by_chain.items()
    )


def estimate(composition: Composition, evidence: Evidence) -> Estimate | None:
    """Return the error of *composition*, or None if nothing like it, or nothing like a part of it, was measured."""
    state, _ = distance(composition.facts, evidence)
    if state == "unmeasured":
        return None
    sides = of_parts(composition, state, evidence)
    if not composition.chain:
        return sides
    whole = evidence.spread(composition.chain)
    if whole is None:
        return None
    network = composition.facts.network
    wider = max(_wider(whole, state), 1.0 if network in evidence.seen.networks or not network else whole.strange)
    typical = whole.of_parts
    parts = (sides.middle - sides.low, sides.high - sides.middle) if sides is not None and typical is not None else None
    ends = []
    for side, half in enumerate((whole.middle - whole.low, whole.high - whole.middle)):
        total = wider * half
        if parts is not None and typical is not None:
            total = math.hypot(_beyond(total, typical[side]), parts[side])
        ends.append(total)
    mean = (ends[0] + ends[1]) / 2
    rest = _beyond(mean, (parts[0] + parts[1]) / 2) if parts is not None else mean
    widest = whole if sides is None or rest >= mean / math.sqrt(2.0) else evidence.spread((sides.widest,)) or whole
    return Estimate(
        whole.middle - ends[0],
        whole.middle,
        whole.middle + ends[1],
        mean * math.sqrt(1.0 - whole.shared) if whole.ways is None else whole.ways,
        mean if whole.machines is None else whole.machines,
        widest.name,
        widest.rows,
        widest.places,
    )


_LEAST_LEFT = 0.05  # of the variance of errors
_LEAST_WIDTH = 0.25  # of the width after calibration, however near the neighbours: they are measured with errors


def _beyond(whole: float, part: float) -> float:
    """Return the term that, added to *part* in quadrature, gives *whole*; 0 if *part* is larger."""
    return math.sqrt(max(0.0, whole * whole - part * part))


def _wider(spread: Spread, state: State) -> float:
    return {"calibrated": spread.calibrated, "seen": spread.seen, "unseen": spread.unseen, "outside": spread.outside}[
        state
    ]


def _nearer(spread: Spread, known: float) -> float:
    """Return the width of a calibrated part, of whose variance its neighbours explain *known*, relative to its class.

    The kriging variance is what they leave, 1 - known (Cressie, *Statistics for Spatial Data*, 1993, section 3.2).  The
    rows behind ``calibrated`` had ``near`` of theirs explained.  Neighbours never widen beyond no calibration.
    """
    width = spread.calibrated * math.sqrt((1.0 - known) / max(_LEAST_LEFT, 1.0 - spread.near))
    return max(_LEAST_WIDTH * spread.calibrated, min(1.0, width))


def of_parts(composition: Composition, state: State, evidence: Evidence) -> Estimate | None:
    """Return the error of the sum of parts, or None without evidence; parts without a class count as exact."""
    if composition.chain and state != "calibrated":
        state = "seen"  # the class of the whole is already widened for an unknown device
    middle = 0.0
    shared, alone = [0.0, 0.0], [0.0, 0.0]
    widest: tuple[float, Spread] | None = None
    for part in composition.parts:
        spread = evidence.spread(part.chain)
        if spread is None:
            continue
        wider = _wider(spread, state)
        if state == "calibrated":
            wider = _nearer(spread, part.known)
        middle += part.share * spread.middle
        halves = wider * (spread.middle - spread.low), wider * (spread.high - spread.middle)
        for side, half in enumerate(halves):
            shared[side] += part.share * half * math.sqrt(spread.shared)
            alone[side] += (part.alone * half) ** 2 * (1.0 - spread.shared)
        weight = part.share * (halves[0] + halves[1])
        if widest is None or weight > widest[0]:
            widest = weight, spread
    if widest is None:
        return None
    low, high = (math.sqrt(shared[side] ** 2 + alone[side]) for side in (0, 1))
    return Estimate(
        middle - low,
        middle,
        middle + high,
        math.sqrt((alone[0] + alone[1]) / 2),
        (low + high) / 2,
        widest[1].name,
        widest[1].rows,
        widest[1].places,
    )
