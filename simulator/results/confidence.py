"""The uncertainty of an answer: its band, the aspects outside the measurements, and how to narrow the band."""

from __future__ import annotations

import math
from typing import Any

from simulator.bands import evidence
from simulator.bands.composition import (
    LEVEL,
    AnswerFacts,
    Band,
    Composition,
    Estimate,
    State,
    band_of,
    distance,
    estimate,
)
from simulator.records import dataclass
from simulator.results.document import taken
from simulator.results.narrowing import narrowing_of
from simulator.units import format_duration

BAND_HEAD = f"{100 * LEVEL:.0f} % band"

_OF_HOST = {"copy": "copies", "access": "memory accesses", "launch": "launches"}
_EXCHANGES = {"small": "below 1 MiB", "large": "from 1 MiB", "middle": "from 1 to 64 MiB", "full": "from 64 MiB"}
_EXCHANGES |= {"node": "inside a node", "nodes": "between nodes", "few": "between few nodes"}
_EXCHANGES |= {"pcie": "over PCIe", "nvlink": "over NVLink"}
_EXCHANGES |= {"infiniband": "over InfiniBand", "ethernet": "over Ethernet", "omnipath": "over Omni-Path"}
_BOUNDS = {"compute": "arithmetic", "memory": "memory", "latency": "latency"}


@dataclass(frozen=True, slots=True)
class Confidence:
    """The band of an answer (None if nothing similar was measured), and its aspects ``outside`` all measured rows.

    ``estimate`` is the band in logarithms, ``known`` says in words what was measured, and ``narrowed`` is the command
    that would narrow the band.  ``is_exact``: there is nothing to measure, as of a lower
    bound or of no time.
    """

    band: Band | None
    outside: tuple[str, ...]
    estimate: Estimate | None
    known: str
    narrowed: str
    is_exact: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the band and ``outside`` as in ``--json``."""
        return taken(self, "band outside")

    @property
    def words(self) -> str:
        """The band in a few words, for tables; ``-`` where there is nothing to measure."""
        return "-" if self.is_exact else band_words(self.band)

    @property
    def why(self) -> str:
        """The reason for the band's width, and how to narrow it; empty without a band."""
        found = self.estimate
        if found is None:
            return ""
        rows = f"{found.rows:,} rows on {found.places} {'place' if found.places == 1 else 'places'}"
        text = f"{_widths(found)}, mostly from {_class_words(found.widest)} ({rows}); {self.known}"
        return f"{text}; to narrow it: {self.narrowed}" if self.narrowed else text


def confidence_of(time_s: float, composition: Composition, question: object = None) -> Confidence:
    """Return the uncertainty of *time_s* for an answer of *composition* to *question*."""
    known, narrowed = evidence(), narrowing_of(question, composition.facts)
    state, outside = distance(composition.facts, known)
    found = estimate(composition, known) if time_s > 0.0 else None
    band = None if found is None else band_of(time_s, found.low, found.high)
    return Confidence(band, outside, found, _known(composition.facts, state), narrowed, is_exact=time_s <= 0.0)


def of_a_bound() -> Confidence:
    """Return the confidence of an ideal schedule: a lower bound, which has no band."""
    return Confidence(None, (), None, "", "", is_exact=True)


def _class_words(name: str) -> str:
    """Return a class of errors in words, for example: errors of matrix products bound by arithmetic."""
    head, *rest = name.split()
    if head == "step":
        return "time outside kernels"
    if head == "kernel":
        of = [_kernels_words(rest[0]) if rest else "kernels"]
        of += [f"bound by {_BOUNDS[word]}" for word in rest[1:] if word in _BOUNDS]
    elif head == "collective":
        of = ["collectives", *(_EXCHANGES[word] for word in rest if word in _EXCHANGES)]
    else:
        of = [_OF_HOST.get(head, head), *(f"({word})" for word in rest[:1])]
    return f"errors of {' '.join(of)}"


def _kernels_words(name: str) -> str:
    from simulator.workload.operators import CLASSES

    known = CLASSES.get(name)
    return (known.in_sentences or known.word) if known is not None else name


def _widths(found: Estimate) -> str:
    """Return the ends of the band relative to the prediction, in words."""
    below, above = math.expm1(found.low), math.expm1(found.high)
    if below < 0.0 < above < -2.0 * below and -below < 2.0 * above:
        return f"band of {50 * (above - below):.0f} % either way"
    ends = [f"{abs(100 * end):.0f} % {'above' if end > 0.0 else 'below'}" for end in (below, above)]
    aside = "" if below < 0.0 < above else f": measured {'slower' if below >= 0.0 else 'faster'} than predicted"
    return f"band from {ends[0]} to {ends[1]} this time{aside}"


def _known(facts: AnswerFacts, state: State) -> str:
    """Return in words whether this device or machine was measured."""
    of = "machine" if facts.kind in ("collective", "host") else "device"
    if state == "calibrated":
        return "its device is calibrated"
    if state == "outside":
        return "wider because part of it lies outside all measurements"
    if state == "seen":
        return f"this {of} is among the measured ones"
    return f"wider because this {of} is not among the measured ones"


def band_words(band: Band | None) -> str:
    """Return a band in a few words: 84 to 112 ms; ``not measured`` without one."""
    if band is None:
        return "not measured"
    low, high = format_duration(band.low_s, 3), format_duration(band.high_s, 3)
    unit = high.rpartition(" ")[2]
    return f"{low.removesuffix(' ' + unit)} to {high}"
