"""Compact storage of scored rows, some 20 bytes each (:class:`Scores`), the errors of groups of them, and scaling."""

import math
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from simulator.errors import Fault, InputError
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.records import dataclass, lists_by_key, replace
from validate.kinds.kind import MeasuredRow
from validate.score.scoring import MOST_DIFFERENT, OTHER_REASON
from validate.tables.cells import figure
from validate.tables.statistics import Errors, percentile, relative_error, summarise

_Labels = tuple[str | None, ...]
_Kept = tuple["array[int]", "array[float]", "array[float]"]  # lines, errors and the baseline's (NaN where none)


class Scores:
    """Errors of rows by *labels*, and why rows do not count; raises InputError for too many combinations."""

    def __init__(self, rows: Iterable[MeasuredRow] = (), labels: Iterable[str] = (), file: str = "") -> None:
        self.names = tuple(dict.fromkeys(labels))
        self.context = 0
        self.shared: dict[float, list[bool]] = {}  # by a shared network's share: whether the band holds
        self._published: dict[str, tuple[list[float], list[float]]] = {}  # (their errors, ours) on the same rows
        self._file = file
        self._rows: Counter[_Labels] = Counter()
        self._kept: dict[str, dict[_Labels, _Kept]] = {"": {}}  # by the reason why rows do not count
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        return self._rows.total()

    def add(self, row: MeasuredRow) -> None:
        """Add *row*; raises InputError where the labels differ too much."""
        labels = tuple([row.labels.get(name) for name in self.names])
        error = row.error
        self.put(row.line, error, row.skipped, row.error_of(row.baseline_s), labels)
        self.context += row.is_context
        if not row.skipped and error is not None:
            if row.shared is not None:
                self.shared.setdefault(row.shared.lower, []).append(bool(row.in_band))
            for name, time_s in row.published.items():
                theirs, ours = self._published.setdefault(name, ([], []))
                theirs.append(relative_error(time_s, row.time_s))
                ours.append(error)

    def put(
        self, line: int, error: float | None, skipped: str, baseline: float | None = None, labels: _Labels = ()
    ) -> None:
        """Add the *error* of a row, or of a figure of it, and that of the *baseline*; raises InputError as add does."""
        self._rows[labels] += 1
        if len(self._rows) > MOST_DIFFERENT:
            what = f"combinations of {', '.join(self.names)}; score it in parts" if self.names else "rows"
            raise InputError(Fault(f"has more than {MOST_DIFFERENT:,} different {what}", self._file))
        if skipped not in self._kept and len(self._kept) > MOST_DIFFERENT:
            skipped = OTHER_REASON
        kept = self._kept.setdefault(skipped, {}).setdefault(labels, (array("I"), array("d"), array("d")))
        kept[0].append(line)
        for errors, value in zip(kept[1:], (error, baseline), strict=True):
            errors.append(math.nan if value is None else value)

    def found(self, name: str) -> set[str]:
        """Return the values of the label *name* among the rows."""
        at = self.names.index(name)
        return {text for labels in self._rows if (text := labels[at]) is not None}

    def counted(self) -> dict[int, float]:
        """Return the errors of the rows that count, by line."""
        every = self._kept[""].values()
        rows = (row for lines, errors, _ in every for row in zip(lines, errors, strict=True))
        return {line: error for line, error in rows if not math.isnan(error)}

    def skipped(self) -> dict[str, "array[int]"]:
        """Return the lines of rows that do not count, by the reason, in order of first occurrence."""
        reasons = ((reason, of.values()) for reason, of in self._kept.items() if reason)
        return {reason: array("I", sorted(line for lines, *_ in of for line in lines)) for reason, of in reasons}

    def skipped_errors(self) -> dict[str, Errors]:
        """Return the errors of rows that do not count though they are predicted and timed, by the reason."""
        known = ((reason, _known(errors for _, errors, _ in of.values())) for reason, of in self._kept.items())
        return {reason: summarise(errors) for reason, errors in known if reason and errors}

    def beside_published(self) -> list[tuple[str, Errors, Errors]]:
        """Return (name, its errors, ours) of each published predictor, over the scored rows that it also predicts."""
        return [(name, summarise(theirs), summarise(ours)) for name, (theirs, ours) in sorted(self._published.items())]

    def whole(self) -> "ScoreGroup":
        """Return the rows as one group."""
        return self._group({}, self._rows)

    def groups(self, axes: Sequence[str]) -> "list[ScoreGroup]":
        """Return the groups of rows with equal labels along *axes*, sorted; rows that lack one are in no group."""
        places = [self.names.index(axis) for axis in axes]
        along = ((tuple([text for at in places if (text := labels[at]) is not None]), labels) for labels in self._rows)
        found = lists_by_key(pair for pair in along if len(pair[0]) == len(axes))
        return [self._group(dict(zip(axes, each, strict=True)), found[each]) for each in sorted(found, key=_order)]

    def without(self, axes: Sequence[str]) -> tuple[list[str], "ScoreGroup"]:
        """Return those of *axes* for which some rows have no label, and those rows as one group."""
        places = {axis: self.names.index(axis) for axis in axes}
        lacking = [labels for labels in self._rows if any(labels[at] is None for at in places.values())]
        missing = [axis for axis, at in places.items() if any(labels[at] is None for labels in lacking)]
        return missing, self._group({}, lacking)

    def _group(self, by: dict[str, str], every: Iterable[_Labels]) -> "ScoreGroup":
        of_all = list(every)
        counted = [self._kept[""][labels] for labels in of_all if labels in self._kept[""]]
        errors = summarise(_known(each[1] for each in counted))
        baseline = summarise(_known(each[2] for each in counted))
        return ScoreGroup(by, sum(self._rows[labels] for labels in of_all), errors, baseline)


def _known(errors: Iterable["array[float]"]) -> list[float]:
    return [error for each in errors for error in each if not math.isnan(error)]


@dataclass(frozen=True, slots=True)
class ScoreGroup:
    """``rows`` rows that share the labels ``by``, ``errors.n`` of them scored, as those of the ``baseline``."""

    by: dict[str, str]
    rows: int
    errors: Errors
    baseline: Errors

    @property
    def coverage(self) -> float | None:
        """Share of the rows that are scored; None for no rows."""
        return self.errors.n / self.rows if self.rows else None


def median_of(place: str, rows: Scores) -> float | None:
    """Return the median over machines (or devices: *place*) of each one's median absolute error; None for no errors."""
    ordered = sorted(m for each in rows.groups((place,)) if (m := each.errors.median_ape) is not None)
    return percentile(ordered, 0.5) if ordered else None


def _order(labels: tuple[str, ...]) -> list[tuple[int, float, str]]:
    keys = []
    for label in labels:
        value = figure(label)
        word = {">=1MiB": "0", "<1MiB": "1"}.get(label, label)
        keys.append((1, 0.0, word) if value is None else (0, value, label))
    return keys


_SAME = ("framework", "software", "model", "data")


class Efficiencies:
    """Measured and predicted step times, by configuration and number of GPUs.

    Efficiency is the throughput per GPU with n GPUs over that with the fewest GPUs in the same configuration: the same
    network, batch per GPU, layout (except for replicas), framework and version, on the same machine or on more of them.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, Hashable], dict[int, tuple[array[float], array[float]]]] = {}

    def add(self, row: MeasuredRow) -> None:
        """Add *row* if it is a scored row of a step; raises InputError where configurations are too many."""
        question = row.asked.question if row.asked is not None else None
        if row.skipped or row.error is None or row.predicted_s is None or not isinstance(question, StepQuestion):
            return
        where, layout = replace(question.where, nodes=None), replace(question.layout, dp=None)
        alone = replace(  # without the number of GPUs, and the options of the exchange that may change with it
            question, where=where, gpus=None, layout=layout, strategy="nccl", bucket_bytes=BUCKET_BYTES, servers=()
        )
        key = row.labels.get("dataset", ""), (alone, *(row.labels.get(name, "") for name in _SAME))
        by_count = self._found.setdefault(key, {})
        measured, predicted = by_count.setdefault(len(question.gpus or (0,)), (array("d"), array("d")))
        measured.append(row.predicted_s / (1.0 + row.error))
        predicted.append(row.predicted_s)
        if len(self._found) > MOST_DIFFERENT:
            raise InputError(f"--scaling: more than {MOST_DIFFERENT:,} different steps; score the table in parts")

    def scaling(self) -> list[dict[str, Any]]:
        """Return by ``dataset`` the differences of efficiencies, predicted minus measured, as fractions over ``pairs``.

        ``measured`` and ``predicted`` are the medians of the efficiencies themselves; ``median`` and ``p90`` are of the
        absolute differences, ``bias`` is their mean.  Empty where no configuration has two numbers of GPUs.
        """
        pairs: dict[str, list[tuple[float, float]]] = {}
        for (dataset, _), by_count in self._found.items():
            fewest = min(by_count)
            first = [percentile(sorted(times), 0.5) for times in by_count[fewest]]
            for count in sorted(by_count.keys() - {fewest}):
                times = zip(*by_count[count], strict=True)
                pairs.setdefault(dataset, []).extend((first[0] / m, first[1] / p) for m, p in times)
        found = []
        for dataset, each in sorted(pairs.items()):
            measured, predicted = (percentile(sorted(side), 0.5) for side in zip(*each, strict=True))
            off = [p - m for m, p in each]
            absolute = sorted(map(abs, off))
            told = {"dataset": dataset, "pairs": len(each), "measured": measured, "predicted": predicted}
            told |= {"median": percentile(absolute, 0.5), "p90": percentile(absolute, 0.9)}
            found.append({**told, "bias": math.fsum(off) / len(off)})
        return found
