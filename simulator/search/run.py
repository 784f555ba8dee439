"""The search (:func:`find_best`), the same in any number of processes; how a step scales (:class:`Curve`)."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

from simulator.api.outcome import least_step_s, step_fits
from simulator.api.session import Session
from simulator.bands.composition import Band, SharedNetwork
from simulator.collectives.communicator import Unsuitable
from simulator.errors import InputError, refused, spelt
from simulator.questions.layout import Layout, parse_layout
from simulator.records import dataclass, field, replace
from simulator.results import SCHEMA_VERSION, WORDS, plain, taken
from simulator.results.comparison import ComparisonWidth, comparison_width
from simulator.results.rates import Rates, rates_from, rates_of
from simulator.results.step_confidence import all_fit_by_band
from simulator.results.step_view import SHARE_WORDS, time_shares
from simulator.results.training import TrainingResult, options_entry
from simulator.search.price import MEMORY, Pricer
from simulator.search.space import Candidate, Space
from simulator.units import format_size

_AS_TOLD = ("step_time_s", "memory_bytes", "fits_by_band", "available_bytes")
_LEAST_SIMULATED = 16
_last: list[tuple[Space, Pricer]] = []
_WORTH_SAYING = 0.01
_FULL = 0.98  # of a memory: a step may run out of it
_LEAST_DROP = 0.02  # of the doubling efficiency that counts as a knee


class RankedLayout(NamedTuple):
    """A simulated candidate: its time and rates, the memory a device needs, where the time goes, its uncertainty."""

    candidate: Candidate
    step_time_s: float
    memory_bytes: float
    shares_s: dict[str, float]
    band: Band | None
    outside: tuple[str, ...]
    fits_by_band: bool | None
    rates: Rates
    width: ComparisonWidth | None  # in comparisons on the same machine
    available_bytes: float
    width_apart: ComparisonWidth | None = None  # in comparisons with another
    shared: SharedNetwork | None = None

    @property
    def is_tight(self) -> bool:
        """Whether it may run out of memory: by the band of its need, or where that nearly fills the memory."""
        return self.fits_by_band is False or self.memory_bytes > _FULL * self.available_bytes


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranking, best first; the number of feasible candidates; and the numbers of infeasible ones, by reason.

    ``estimate_errors``: of the candidates simulated, how far their estimates were off, as shares of the simulation.
    """

    ranking: tuple[RankedLayout, ...]
    feasible_count: int
    infeasible: dict[str, int]
    simulated_count: int
    estimate_errors: tuple[float, ...] = ()


Runner = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[Any]]
"""Yields the results of a function for each of several argument tuples, in their order, in one process or in many."""


def here(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Run *jobs* one after the other in this process, in their order."""
    return (function(*job) for job in jobs)


@dataclass(frozen=True, slots=True)
class KeptResults:
    """The results of jobs by key, each new one of which ``write`` stores, too."""

    found: dict[str, Any] = field(default_factory=dict)
    write: Callable[[str, Any], None] = lambda *_: None

    def of(self, prefix: str) -> "KeptResults":
        """Return those whose key starts with *prefix*, by the rest of it."""
        found = {key.removeprefix(prefix): value for key, value in self.found.items() if key.startswith(prefix)}
        return KeptResults(found, lambda key, result: self.write(f"{prefix}{key}", result))

    def put(self, key: str, result: Any) -> None:
        """Keep *result*, data for JSON; raises InputError if it cannot be written."""
        self.found[key] = result
        self.write(key, result)


def _nothing_feasible(space: Space, outcomes: Sequence[Mapping[str, Any]], infeasible: Mapping[str, int]) -> InputError:
    if not infeasible and space.micro_batch is not None:
        told = f"no degrees share {space.global_batch:,} samples out in such micro-batches"
        return refused("micro_batch", told, space.micro_batch)
    said = "; ".join(f"{n:,} of them: {why}" for why, n in sorted(infeasible.items(), key=lambda item: -item[1]))
    nearest = min((outcome["nearest"] for outcome in outcomes if outcome.get("nearest")), default=None)
    if nearest is not None:
        has = format_size(outcomes[0]["memory_bytes"])
        said += f"; the nearest, {nearest[1]}, needs {format_size(nearest[0])} a device, which has {has}"
    return InputError(f"no way to do the step is feasible: {said or 'no degrees fit the devices'}")


def find_best(
    space: Space,
    session: Session,
    top: int,
    runner: Runner = here,
    kept: KeptResults | None = None,
    progress: Callable[[int, str], None] = lambda *_: None,
) -> Ranking:
    """Return the best *top* candidates of *space* by *runner*, with results *kept*; or raise InputError."""
    network = session.network(replace(space.question, batch=1))
    space.check_fixed(network)
    kept = KeptResults() if kept is None else kept
    divisions = space.divisions(network)
    simulated = max(_LEAST_SIMULATED, 2 * top)
    total = len(divisions) + simulated

    def done(key: str, function: Callable[..., Any], jobs: dict[str, tuple[Any, ...]]) -> list[Any]:
        missing = {name: job for name, job in jobs.items() if f"{key} {name}" not in kept.found}
        for name in (name for name in jobs if name not in missing):
            progress(total, name)
        for name, found in zip(missing, runner(function, list(missing.values())), strict=True):
            kept.put(f"{key} {name}", found)
            progress(total, name)
        return [kept.found[f"{key} {name}"] for name in jobs]

    outcomes = done("priced", price, {each.words: (space, each) for each in divisions})
    infeasible: Counter[str] = Counter()
    for outcome in outcomes:
        infeasible.update(outcome["infeasible"])
    priced = [entry for outcome in outcomes for entry in outcome["priced"]]
    priced.sort(key=lambda entry: (float(f"{entry[1]:.9e}"), entry[0]))
    if not priced:
        raise _nothing_feasible(space, outcomes, infeasible)
    estimates_s = {words: time_s for words, time_s, _ in _chosen(priced, simulated)}
    chosen = [_candidate(space, words) for words in estimates_s]
    ranking: list[RankedLayout] = []
    why: dict[str, None] = {}
    slower = 0
    for ways in (chosen[:top], chosen[top:]):  # the second group skips candidates that cannot reach the top
        bound_s = ranking[top - 1].step_time_s if len(ranking) >= top else math.inf
        answers = done(f"simulated below {bound_s:.9e} s", simulate_way, {w.words: (space, w, bound_s) for w in ways})
        for way, answer in zip(ways, answers, strict=True):
            if answer["step_time_s"] is not None:
                told: dict[str, Any] = {name: answer[name] for name in _AS_TOLD}
                told |= {name: answer[name] and ComparisonWidth(*answer[name]) for name in ("width", "width_apart")}
                band, shared = answer["band"], answer.get("shared_network")
                told |= {"band": band and Band(**band), "shared": shared and SharedNetwork(**shared)}
                told |= {"shares_s": dict(answer["shares"]), "rates": rates_from(answer["rates"])}
                ranking.append(RankedLayout(way, outside=tuple(answer["outside"]), **told))
            elif answer["reason"] is None:
                slower += 1
            else:
                infeasible[answer["reason"]] += 1
                why[answer["reason"]] = None
        ranking.sort(key=lambda entry: (float(f"{entry.step_time_s:.9e}"), entry.candidate.words))
    if not ranking:
        raise InputError("no way that looked feasible is: " + "; ".join(why))
    unfit = len(chosen) - slower - len(ranking)
    errors = tuple(abs(estimates_s[each.candidate.words] / each.step_time_s - 1.0) for each in ranking)
    counts = len(priced) - unfit, dict(sorted(infeasible.items())), len(ranking)
    return Ranking(tuple(ranking[:top]), *counts, errors)


def _chosen(priced: Sequence[list[Any]], count: int) -> list[list[Any]]:
    """Return *count* of *priced*: half the cheapest overall, half of each kind in turn; one of each price."""
    alike = {(f"{entry[1]:.9e}", re.sub(r",order=[\w-]+", "", entry[0])): entry for entry in reversed(priced)}
    priced = list(alike.values())[::-1]
    found = list(priced[: count // 2])
    sorts: dict[str, list[list[Any]]] = {}
    for entry in priced[count // 2 :]:
        layout = entry[0].split(" ")[0].split(",")
        sort = "pipeline" if any(word.startswith("pp=") for word in layout) else ""
        sort = sort or ("shards" if any(word.startswith("fsdp") for word in layout) else "replicas")
        sorts.setdefault(sort, []).append(entry)
    in_turn = [entry for row in zip_longest(*(sorts[name] for name in sorted(sorts))) for entry in row if entry]
    return found + in_turn[: count - len(found)]


def _candidate(space: Space, words: str) -> Candidate:
    layout, micro_batch, recompute, *divided = words.split(" ")
    size = int(micro_batch.partition("=")[2])
    found = parse_layout(layout).on(space.device_count)
    count = 1 if divided else space.global_batch // ((found.dp or 1) * size)
    return Candidate(found, size, count, recompute.partition("=")[2], bool(divided))  # type: ignore[arg-type]


def _pricer(space: Space) -> Pricer:
    """Return the pricer of *space*; the last one is cached and compared by equality, as calibrations have no hash."""
    if not _last or _last[0][0] != space:
        _last[:] = [(space, Pricer(space, Session(dict(space.calibrations))))]
    return _last[0][1]


def price(space: Space, division: Layout) -> dict[str, Any]:
    """Return the outcome of *division* as plain data."""
    priced, infeasible, nearest = _pricer(space).outcome(division)
    return {
        "priced": [[way.words, time_s, n_bytes] for way, time_s, n_bytes in priced],
        "infeasible": dict(sorted(infeasible.items())),
        "nearest": nearest and list(nearest),
        "memory_bytes": _pricer(space).device.memory_bytes,
    }


def simulate_way(space: Space, way: Candidate, bound_s: float) -> dict[str, Any]:
    """Return the full simulation of *way* as plain data; without a time if it takes longer than *bound_s* or fails."""
    session, question = _pricer(space).session, space.asked(way)
    try:
        if bound_s < math.inf and least_step_s(session, question) > bound_s and step_fits(session, question):
            return {"step_time_s": None, "reason": None}
        result = session.step(question)
    except (InputError, Unsuitable) as error:
        why = error.spelt("command") if isinstance(error, InputError) else spelt(error.why, "command")
        return {"step_time_s": None, "reason": why}
    if not result.fits:
        return {"step_time_s": None, "reason": MEMORY}
    need = result.tightest.need
    return {
        "step_time_s": result.step_time_s,
        **result.confidence.to_dict(),
        "width": comparison_width(result.confidence.estimate),
        "width_apart": comparison_width(result.confidence.estimate, same=False),
        **taken(need, "memory_bytes=total_bytes available_bytes"),
        "fits_by_band": all_fit_by_band(result),
        "rates": plain(rates_of(result)),
        "shares": [list(share) for share in time_shares(result).items()],
    }


def best_document(space: Space, machine: str, best: Ranking) -> dict[str, Any]:
    """Return *best* of *space* as plain data in SI units, which the keys name."""
    of_entry = "words=candidate.layout.words micro_batch=candidate.micro_batch micro_batches=candidate.micro_batches"
    return {
        "schema_version": SCHEMA_VERSION,
        "topology": machine,
        **taken(space, "workload=question.workload device_count global_batch"),
        "options": options_entry(space.question),
        **taken(best, "feasible_count infeasible simulated_count estimate_errors"),
        "ranking": [
            {
                **taken(entry, f"parallel=candidate.layout {of_entry} recompute=candidate.recompute step_time_s"),
                **taken(entry, "divided=candidate.divided band outside memory_bytes fits_by_band"),
                **({"shared_network": plain(entry.shared)} if entry.shared else {}),
                "rates": plain(entry.rates),
                "reason": loss_words(entry.shares_s),
                "account_s": entry.shares_s,
            }
            for entry in best.ranking
        ],
    }


def loss_words(shares_s: Mapping[str, float], most: int = 3) -> str:
    """Return what keeps a step from computing all the time, in words, the largest *most* parts first."""
    whole_s = sum(shares_s.values()) or 1.0
    lost = [name for name, s in shares_s.items() if name != "computing" and s >= _WORTH_SAYING * whole_s]
    return ", ".join(f"{SHARE_WORDS[name]} {100 * shares_s[name] / whole_s:.0f} %" for name in lost[:most]) or "-"


@dataclass(frozen=True, slots=True)
class Knee:
    """The increase at which doubling efficiency falls most, and the part whose time per sample grows most."""

    before: int
    after: int
    drop: float
    cause: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Results by device count; ``efficiency`` is relative to the first, ``gains`` are growths per doubling over two."""

    results: tuple[TrainingResult, ...]
    efficiency: tuple[float, ...]
    gains: tuple[float, ...]
    knee: Knee | None

    @property
    def is_weak(self) -> bool:
        """Whether every result has the same number of samples per device."""
        each = {result.samples / result.device_count for result in self.results}
        return max(each) - min(each) < 1e-9 * max(each)


def curve_of(results: Sequence[TrainingResult]) -> Curve:
    """Return the curve of *results*, in order of device count; a knee needs at least two results."""
    each = [result.throughput / result.device_count for result in results]
    gains = [
        (rate / rate_before) ** (1.0 / math.log2(after.device_count / before.device_count))
        for (before, after), (rate_before, rate) in zip(pairwise(results), pairwise(each), strict=True)
    ]
    worth = [min(1.0, gain) for gain in gains]  # superlinear gains do not count
    drops = [before - after for before, after in zip([1.0, *worth], worth, strict=False)]
    worst = max(range(len(drops)), key=lambda i: round(drops[i], 9), default=None)
    knee = None
    if worst is not None and drops[worst] >= _LEAST_DROP:
        before, after = results[worst], results[worst + 1]
        knee = Knee(before.device_count, after.device_count, drops[worst], _cause(before, after))
    return Curve(tuple(results), tuple(rate / each[0] for rate in each), tuple(gains), knee)


def _cause(before: TrainingResult, after: TrainingResult) -> str:
    def spent(result: TrainingResult) -> dict[str, float]:
        scale = result.device_count / result.samples
        return {name: scale * seconds for name, seconds in time_shares(result).items()}

    then, now = spent(before), spent(after)
    name = max(now, key=lambda part: (round(now[part] - then.get(part, 0.0), 12), part))
    if name == "computing" and after.step.part != before.step.part:
        return f"all wait for a slower device, {after.step.part}"
    words = WORDS["knees"]
    if name == "computing" and after.samples * before.device_count < before.samples * after.device_count:
        return words["few samples"]
    if name in words:
        return words[name]
    link = f" over {after.bottleneck.name}" if name == "data" and after.bottleneck is not None else ""
    return f"{SHARE_WORDS[name]}{link}"


def curve_document(curve: Curve) -> dict[str, Any]:
    """Return *curve* as plain data in SI units, which the keys name."""
    first = curve.results[0]
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": first.step.workload,
        "scaling": "weak" if curve.is_weak else "strong",
        "options": options_entry(first.question),
        "points": [
            {
                **taken(result, "topology=machine device_count"),
                "parallel": result.parallel or None,
                **taken(result, "samples step_time_s band outside=confidence.outside throughput_per_s=throughput"),
                "evidence": result.confidence.known or None,
                "rates": plain(rates_of(result)),
                "scaling_efficiency": efficiency,
                "doubling_efficiency": gain,
                **taken(result, "bound fits memory_bytes=tightest.need.total_bytes bottleneck=bottleneck.name"),
                "account_s": time_shares(result),
            }
            for result, efficiency, gain in zip(curve.results, curve.efficiency, (None, *curve.gains), strict=True)
        ],
        **taken(curve, "knee"),
        "trust": plain(curve.results[-1].trust),
    }
