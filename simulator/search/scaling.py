"""A step on more and more devices: the gain of each increase, where it drops most, and why (:class:`Curve`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from simulator.records import dataclass
from simulator.results import SCHEMA_VERSION, plain, taken
from simulator.results.rates import rates_of
from simulator.results.step_view import SHARE_WORDS, time_shares
from simulator.results.training import TrainingResult, options_entry

_WORTH_SAYING = 0.02  # smallest drop of the doubling efficiency that counts as a knee


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
    if worst is not None and drops[worst] >= _WORTH_SAYING:
        before, after = results[worst], results[worst + 1]
        knee = Knee(before.device_count, after.device_count, drops[worst], _cause(before, after))
    return Curve(tuple(results), tuple(rate / each[0] for rate in each), tuple(gains), knee)


def _cause(before: TrainingResult, after: TrainingResult) -> str:
    """Return, in words, the part of the step whose device time per sample has grown most."""

    def spent(result: TrainingResult) -> dict[str, float]:
        scale = result.device_count / result.samples
        return {name: scale * seconds for name, seconds in time_shares(result).items()}

    then, now = spent(before), spent(after)
    name = max(now, key=lambda part: (round(now[part] - then.get(part, 0.0), 12), part))
    if name == "computing" and after.step.part != before.step.part:
        return f"all wait for a slower device, {after.step.part}"
    link = f" over {after.bottleneck.name}" if name == "data" and after.bottleneck is not None else ""
    as_many = after.samples * before.device_count >= before.samples * after.device_count
    words = {
        "computing": "kernels slowed by the exchange beside them and by copies into buckets"
        if as_many
        else "too few samples per device: kernels use it less efficiently",
        "host": "too few samples per device: it waits for the host",
        "update": "the update, which takes the same time for fewer samples",
        "slowest": "with more devices, all wait for a slower one",
    }
    return words.get(name, f"{SHARE_WORDS[name]}{link}")


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
