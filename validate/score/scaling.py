"""How far more GPUs speed a step up, predicted beside measured: :func:`scaling`.

Efficiency is the throughput of a GPU among n over that of one among the fewest that ran the same: the same network,
batch of a GPU, layout but for replicas, framework and version, on the same machine or more of it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.results.columns import lay_out
from validate.score.score import ScoredRow
from validate.tables.statistics import percentile

__all__ = ["Scaling", "scaling", "scaling_document", "scaling_lines"]

_SAME = ("framework", "software", "model", "data")


@dataclass(frozen=True, slots=True)
class Scaling:
    """Differences of efficiencies, predicted less measured, as fractions, over ``pairs`` of a row and the fewest GPUs.

    ``measured`` and ``predicted`` are the medians of the efficiencies themselves.
    """

    dataset: str
    pairs: int
    measured: float
    predicted: float
    median: float
    p90: float
    bias: float


def scaling(rows: Sequence[ScoredRow]) -> list[Scaling]:
    """Return by dataset how far predicted efficiencies are from measured ones; nothing where no two rows differ so."""
    found: dict[tuple[str, Hashable], dict[int, list[tuple[float, float]]]] = {}
    for row in rows:
        question = row.asked.question if row.asked is not None else None
        if row.skipped or row.error is None or row.predicted_s is None or not isinstance(question, StepQuestion):
            continue
        times = row.predicted_s / (1.0 + row.error), row.predicted_s
        same = _without_count(question), *(row.labels.get(name, "") for name in _SAME)
        key = row.labels.get("dataset", ""), same
        found.setdefault(key, {}).setdefault(_gpus(question), []).append(times)
    pairs: dict[str, list[tuple[float, float]]] = {}
    for (dataset, _), by_count in found.items():
        fewest = min(by_count)
        first = [_median([times[i] for times in by_count[fewest]]) for i in (0, 1)]
        for count in sorted(by_count.keys() - {fewest}):
            pairs.setdefault(dataset, []).extend((first[0] / m, first[1] / p) for m, p in by_count[count])
    return [_summary(dataset, pairs[dataset]) for dataset in sorted(pairs)]


def _without_count(question: StepQuestion) -> StepQuestion:
    """Return what is asked but on how many GPUs, and how they exchange, which may change with their number."""
    where = replace(question.where, nodes=None)
    layout = replace(question.layout, dp=None)
    return replace(
        question, where=where, gpus=None, layout=layout, strategy="nccl", bucket_bytes=BUCKET_BYTES, servers=()
    )


def _gpus(question: StepQuestion) -> int:
    return len(question.gpus) if question.gpus is not None else 1


def _median(values: Sequence[float]) -> float:
    return percentile(sorted(values), 0.5)


def _summary(dataset: str, pairs: Sequence[tuple[float, float]]) -> Scaling:
    off = [predicted - measured for measured, predicted in pairs]
    absolute = sorted(map(abs, off))
    return Scaling(
        dataset=dataset,
        pairs=len(pairs),
        measured=_median([measured for measured, _ in pairs]),
        predicted=_median([predicted for _, predicted in pairs]),
        median=percentile(absolute, 0.5),
        p90=percentile(absolute, 0.9),
        bias=math.fsum(off) / len(off),
    )


def scaling_document(rows: Sequence[ScoredRow]) -> list[dict[str, Any]]:
    """Return the same for JSON."""
    return [asdict(each) for each in scaling(rows)]


def scaling_lines(rows: Sequence[ScoredRow]) -> list[str]:
    """Return the same as a table for a reader, in points; one line where nothing scales."""
    found = scaling(rows)
    if not found:
        return ["scaling efficiency: no two scored rows differ in their number of GPUs alone"]
    table = [["scaling efficiency, in points", "pairs", "measured", "predicted", "median", "p90", "bias"]]
    for each in found:
        figures = [f"{100 * value:.1f}" for value in (each.measured, each.predicted, each.median, each.p90)]
        table.append([each.dataset or "(no dataset)", str(each.pairs), *figures, f"{100 * each.bias:+.1f}"])
    return lay_out(table, [False] + [True] * 6)
