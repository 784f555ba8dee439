"""What ``clocks.csv`` of a folder says of a board's power: the factors that a calibration carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.api import Session
from simulator.questions.calibration import Calibration
from simulator.questions.single import OperatorQuestion
from simulator.questions.where import Where
from simulator.records import dataclass, replace
from simulator.workload.operators import MatMul
from validate.compare.folder import Folder
from validate.tables.cells import figure

CLOCKS = "clocks.csv"
_LEAST, _MOST = 0.1, 10.0  # of the power that the model gives
_SAME = 1.02  # times that differ by less are the same
_STEPS = 40  # of a bisection


@dataclass(frozen=True, slots=True)
class ClockMeasurement:
    """A row of ``clocks.csv``: seconds of a call in a long run (``time_s``) and after rest (``burst_s``; 0: unknown).

    ``side``: rows and columns of the product, 0 for streams.  ``repeats``: streams in turn with each product.
    """

    time_s: float
    burst_s: float
    side: int
    repeats: int


def clock_factors(folder: Folder, session: Session, where: Where, part: str) -> dict[str, float]:
    """Return what ``clocks.csv`` of *folder* says of *part* in *session*, by names of ``CLOCKS``; empty without it.

    ``power`` is such that the model's product takes as long as the measured one in a long run.  Where no power makes it
    as fast, power does not bind, and the least that suffices counts if it is more than the model's.  ``burst`` is the
    time in a long run over that after rest.  ``stream`` is w in p' = p - (1 - w) s: a product that takes p alone takes
    p' in turn with streams of s seconds, which leave it power (:mod:`simulator.step.issue`).
    """
    works = _works(folder)
    product, stream, mixture = (works.get(name) for name in ("product", "stream", "mixture"))
    found: dict[str, float] = {}
    if product is None or not product.side:
        return found
    found["power"] = _power(session, where, part, product)
    if product.burst_s > 0.0:
        found["burst"] = max(1.0, product.time_s / product.burst_s)
    if stream is not None and mixture is not None and mixture.side == product.side and mixture.repeats:
        streams_s = mixture.repeats * stream.time_s
        beside_s = mixture.time_s - streams_s
        found["stream"] = min(1.0, max(_LEAST, 1.0 - (product.time_s - beside_s) / streams_s))
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def _works(folder: Folder) -> Mapping[str, ClockMeasurement]:
    found: dict[str, ClockMeasurement] = {}
    for cell, time_s in folder.known_times(CLOCKS):
        burst_s, side, repeats = (figure(cell(name)) or 0.0 for name in ("burst_s", "side", "repeats"))
        found[cell("work")] = ClockMeasurement(time_s, burst_s, int(side), int(repeats))
    return found


def _power(session: Session, where: Where, part: str, product: ClockMeasurement) -> float:
    operator = MatMul(product.side, product.side, product.side)
    asked = OperatorQuestion(where=where, device=part, operator=operator, precision="fp16")
    known = session.calibrations.get(part, Calibration())

    def time_s(power: float) -> float:
        held = replace(known, clocks={**known.clocks, "power": power})
        return session.calibrated({part: held}).account(asked).sustained_s

    fastest_s = time_s(_MOST)
    if product.time_s >= fastest_s * _SAME:
        return _least(lambda power: time_s(power) <= product.time_s)
    return max(1.0, _least(lambda power: time_s(power) <= fastest_s * _SAME))


def _least(suffices: Callable[[float], bool]) -> float:
    """Return the least power that *suffices*, by bisection of its logarithm."""
    low, high = _LEAST, _MOST
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
