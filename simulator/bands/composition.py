"""The band of an answer (:class:`Band`), from the errors of its parts (docs/decisions/bands.md)."""

import math
from collections.abc import Collection, Hashable, Iterable
from functools import lru_cache
from typing import Literal

from simulator.bands import Chain, Evidence, MeasuredCoverage, Spread
from simulator.records import dataclass, lists_by_key, own_data, sums_by_key

LEVEL = 0.8
OF_SHARED = "its upper end is with rates between machines {}lower, as other jobs share the network"
LEAST_HALF_WIDTH = 0.01  # relative to the time: repeated measurements agree no better
Kind = Literal["operator", "step", "collective", "host"]
State = Literal["calibrated", "seen", "unseen", "outside", "unmeasured"]
"""Calibrated device; place with measured rows; other place of a measured generation or kind; anything else.
Unmeasured: it or its kernels are of a kind with too few rows, so that nothing is known of its error.
"""
_LEAST_LEFT = 0.05  # of the variance of errors
_LEAST_WIDTH = 0.25  # of the width after calibration, however near the neighbours: they are measured with errors
MEMORY_CLASSES = {"megatron": "Megatron", "pytorch": "PyTorch", "deepspeed-zero3": "PyTorch"}


@dataclass(frozen=True, slots=True)
class Band:
    """The interval from ``low_s`` to ``high_s``, which holds the measured time with probability ``level``."""

    level: float
    low_s: float
    high_s: float

    def of_rate(self, time_s: float, rate: float) -> tuple[float, float]:
        """Return the (low, high) band of a *rate* whose predicted value corresponds to the predicted time *time_s*."""
        return rate * time_s / self.high_s, rate * time_s / self.low_s


@dataclass(frozen=True, slots=True)
class SharedNetwork:
    """A network whose rates other jobs may lower by the share ``lower``: an answer then takes ``slowdown`` times."""

    lower: float
    slowdown: float

    @property
    def words(self) -> str:
        """Where a band over it ends, in words."""
        return OF_SHARED.format(f"{100 * self.lower:.3g} % ")


def band_of(time_s: float, low: float, high: float) -> Band:
    """Return the band of *time_s* with ends as log(measured / predicted), at least twice ``LEAST_HALF_WIDTH``."""
    lacking = max(0.0, 2 * LEAST_HALF_WIDTH - (math.exp(high) - math.exp(low)))
    return Band(LEVEL, time_s * (math.exp(low) - lacking / 2), time_s * (math.exp(high) + lacking / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFacts:
    """The properties of an answer that determine its distance from the evidence."""

    kind: Kind
    place: str  # the computing part, a collective's machine, or that of a host's answer
    generation: str = ""  # of the GPUs, or ``cpu``
    form: str = ""  # of matrix products
    what: str = ""  # the collective, or the kind of a host's answer
    network: str = ""  # of a step
    way: str = ""  # ``one``, ``several`` or ``divided`` for steps, ``node`` or ``nodes`` for collectives
    ranks: int = 1
    calibrated: bool = False
    unmeasured: str = ""  # in words, of what too few rows were measured
    kernels: tuple[str, ...] = ()  # their classes
    exchange: "AnswerFacts | None" = None  # those of a step: what lies outside in a part does so in the whole
    changed: bool = False  # the question changes the machine, so that its rows are another's

    @property
    def scale(self) -> str:
        """The key under which the largest measured number of ranks is kept."""
        return " ".join(filter(None, (self.what, self.way)))


def distance(facts: AnswerFacts, known: Evidence) -> tuple[State, tuple[str, ...]]:
    """Return the state of *facts* relative to what is *known*, and the aspects that no measurement covers."""
    seen = known.seen
    lacking = [name for name in facts.kernels if not known.has_kernels(name, in_step=facts.kind == "step")]
    strange = [facts.unmeasured] * bool(facts.unmeasured) + [f"no measured {name} kernels" for name in lacking]
    outside = list(strange)
    if facts.exchange is not None:
        outside += [facts.exchange.unmeasured] * bool(facts.exchange.unmeasured)
        outside += _beyond_collectives(facts.exchange, seen, (*seen.linked, *seen.exchanging))
    if facts.kind == "host":
        places = seen.hosts.get(facts.what)
        if places is None:
            outside.append(f"no measured {facts.what}")
        state: State = "seen" if places and facts.place in places and not facts.changed else "unseen"
        return ("outside" if outside else state), tuple(outside)
    if facts.kind == "collective":
        outside += _beyond_collectives(facts, seen, seen.linked)
        state = "seen" if facts.place in seen.machines and not facts.changed else "unseen"
    else:
        state, of_device = _of_device(facts, seen)
        outside += of_device
        most = seen.gpus.get(facts.scale, 0)
        if facts.kind == "step" and facts.ranks > max(1, most):
            what = "step whose network is divided" if facts.way == "divided" else "step"
            outside.append(f"no measured {what} over more than {most:,} GPUs" if most else f"no measured {what}")
    return ("unmeasured" if strange else "outside" if outside else state), tuple(outside)


def _named(generation: str) -> str:
    return generation.upper() if generation[-1:].isdigit() else generation.capitalize() or "unknown"


def _of_device(facts: AnswerFacts, seen: MeasuredCoverage) -> tuple[State, list[str]]:
    forms = seen.generations.get(facts.generation)
    outside = []
    if forms is None:
        outside.append(f"no measured device of generation {_named(facts.generation)}")
    elif facts.form not in forms:
        of = "CPU" if facts.generation == "cpu" else f"device of generation {_named(facts.generation)}"
        outside.append(f"no measured {facts.form} on a {of}")
    if facts.changed:
        return "unseen", outside
    if facts.calibrated:
        return "calibrated", []
    return ("seen" if facts.form in seen.devices.get(facts.place, ()) else "unseen"), outside


def _beyond_collectives(facts: AnswerFacts, seen: MeasuredCoverage, linked: Collection[str]) -> list[str]:
    where = "between nodes" if facts.way == "nodes" else "inside a node"
    most = seen.collectives.get(facts.scale)
    if most is None:
        return [f"no measured {facts.what} {where}"]
    found = []
    if facts.ranks > most:
        found.append(f"no measured {facts.what} {where} over more than {most:,} GPUs")
    if facts.generation not in linked:
        found.append(f"no measured collective on GPUs of generation {_named(facts.generation)}")
    return found


@dataclass(frozen=True, slots=True)
class ClassShare:
    """A class's parts: ``share`` of the time, ``alone`` the root of its squares, ``known`` of the variance."""

    chain: Chain
    share: float
    alone: float
    known: float = 0.0


@dataclass(frozen=True, slots=True)
class Composition:
    """An answer's classes as a whole (``chain``; none: a sum of ``parts``), its parts, and ``facts`` of it."""

    chain: Chain
    parts: tuple[ClassShare, ...]
    facts: AnswerFacts


@dataclass(frozen=True, slots=True)
class Estimate:
    """The error of an answer: the ends and middle of log(measured / predicted)."""

    low: float
    middle: float
    high: float
    ways: float  # half-width of what errs in comparisons with the same task on the same machine
    machines: float  # and with an answer for another machine
    widest: Spread  # the class that adds most to the width
    own: float = 0.0  # half-width of what its parts err more than those of most such answers do
    own_class: str = ""  # most of which is from this class
    network: float = 0.0  # what ``high`` is higher by where other jobs slow a shared network


def class_shares(times_s: Iterable[tuple[Chain, Hashable, float, float]], whole_s: float) -> tuple[ClassShare, ...]:
    """Return parts of *whole_s*, from (classes, identity, seconds, known share); equal identities err alike."""
    by_chain = lists_by_key((chain, (what, seconds, known * seconds)) for chain, what, seconds, known in times_s)
    shares = []
    for chain, parts in by_chain.items() if whole_s > 0.0 else ():
        found, known_s = sums_by_key((what, seconds) for what, seconds, _ in parts), sum(part[2] for part in parts)
        spent_s, alone_s = sum(found.values()), math.sqrt(sum(s * s for s in found.values()))
        shares.append(ClassShare(chain, spent_s / whole_s, alone_s / whole_s, known_s / (spent_s or 1.0)))
    return tuple(shares)


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
    widened: float = getattr(whole, state)
    wider = max(widened, 1.0 if network in evidence.seen.networks or not network else whole.strange)
    ends = [wider * (whole.middle - whole.low), wider * (whole.high - whole.middle)]
    mean = rest = (ends[0] + ends[1]) / 2
    own = 0.0
    if sides is not None and whole.of_parts is not None:
        parts = sides.middle - sides.low, sides.high - sides.middle
        explained = zip(ends, whole.of_parts, parts, strict=True)
        ends = [math.hypot(_beyond(end, typical), part) for end, typical, part in explained]
        mean = (ends[0] + ends[1]) / 2
        rest, own = _beyond(mean, sum(parts) / 2), _beyond(sum(parts) / 2, sum(whole.of_parts) / 2)
    return Estimate(
        whole.middle - ends[0],
        whole.middle,
        whole.middle + ends[1],
        mean * math.sqrt(1.0 - whole.shared) if whole.ways is None else whole.ways,
        mean if whole.machines is None else whole.machines,
        whole if sides is None or rest >= mean / math.sqrt(2.0) else sides.widest,
        own,
        sides.widest.name if sides is not None and own else "",
    )


def _beyond(whole: float, part: float) -> float:
    """Return the term that, added to *part* in quadrature, gives *whole*; 0 if *part* is larger."""
    return math.sqrt(max(0.0, whole * whole - part * part))


def _nearer(spread: Spread, known: float) -> float:
    """Return a calibrated part's relative width, with *known* explained (Cressie, Statistics for Spatial Data, 3.2)."""
    width = spread.calibrated * math.sqrt((1.0 - known) / max(_LEAST_LEFT, 1.0 - spread.near))
    return max(_LEAST_WIDTH * spread.calibrated, min(1.0, width))


def of_parts(composition: Composition, state: State, evidence: Evidence) -> Estimate | None:
    """Return the error of the sum of parts, or None without evidence; parts without a class count as exact."""
    if composition.chain and state != "calibrated":
        state = "seen"  # the class of the whole is already widened for an unknown device
    middle, shared, alone = 0.0, [0.0, 0.0], [0.0, 0.0]
    widest: tuple[float, Spread] | None = None
    for part in composition.parts:
        spread = evidence.spread(part.chain)
        if spread is None:
            continue
        wider: float = _nearer(spread, part.known) if state == "calibrated" else getattr(spread, state)
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
    ways = math.sqrt((alone[0] + alone[1]) / 2)
    return Estimate(middle - low, middle, middle + high, ways, (low + high) / 2, widest[1])


@dataclass(frozen=True, slots=True)
class MemorySpread:
    """Quantiles that hold 80 % of a class's log(measured / predicted); rows by source, and those inside of others'."""

    framework: str
    sources: dict[str, int]
    low: float
    high: float
    inside: tuple[float, float]


@lru_cache(maxsize=1)
def memory_spreads() -> dict[str, MemorySpread]:
    """Return the intervals by class of frameworks."""
    entries = own_data("simulator.bands", "memory.json")
    return {entry["framework"]: MemorySpread(**entry | {"inside": tuple(entry["inside"])}) for entry in entries}
