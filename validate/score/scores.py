"""Compact storage of scored rows, some 30 bytes each (:class:`Scores`), and the errors of groups of them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from simulator.errors import Fault, InputError
from simulator.records import dataclass
from validate.kinds.row import MeasuredRow
from validate.score.scoring import MOST_DIFFERENT, OTHER_REASON
from validate.tables.statistics import Errors, percentile, relative_error, summarise

_Labels = tuple[str | None, ...]
RowErrors = tuple[Sequence[float], Sequence[float]]
"""Signed relative errors of the rows that count, and those of the baseline on them."""


class Scores:
    """The errors of rows, their labels named in *labels*, and why rows do not count; predictions are not kept.

    Raises InputError where the rows of *file* have too many different combinations of labels.
    """

    def __init__(self, rows: Iterable[MeasuredRow] = (), labels: Iterable[str] = (), file: str = "") -> None:
        self.names = tuple(dict.fromkeys(labels))
        self.context = 0
        self.published: dict[str, tuple[array[float], array[float]]] = {}  # (their errors, ours) on the same rows
        self._file = file
        self._codes: dict[_Labels, int] = {}
        self._reasons: dict[str, int] = {"": 0}
        # Per row: codes of its labels and of its reason, its line, its error and the baseline's (NaN where none)
        self._code, self._reason, self._line = array("I"), array("I"), array("I")
        self._error, self._baseline = array("d"), array("d")
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        return len(self._code)

    def add(self, row: MeasuredRow) -> None:
        """Add *row*; raises InputError where the labels differ too much."""
        labels = tuple([row.labels.get(name) for name in self.names])
        code = self._codes.setdefault(labels, len(self._codes))
        if code >= MOST_DIFFERENT:
            what = f"combinations of {', '.join(self.names)}; score it in parts" if self.names else "rows"
            raise InputError(Fault(f"has more than {MOST_DIFFERENT:,} different {what}", self._file))
        skipped = row.skipped
        if skipped not in self._reasons and len(self._reasons) > MOST_DIFFERENT:
            skipped = OTHER_REASON
        self._code.append(code)
        self._reason.append(self._reasons.setdefault(skipped, len(self._reasons)))
        self._line.append(row.record.line)
        error = row.error
        self._error.append(math.nan if error is None else error)
        baseline = row.error_of(row.baseline_s)
        self._baseline.append(math.nan if baseline is None else baseline)
        self.context += row.is_context
        if not skipped and error is not None:
            for name, time_s in row.published.items():
                theirs, ours = self.published.setdefault(name, (array("d"), array("d")))
                theirs.append(relative_error(time_s, row.time_s))
                ours.append(error)

    def found(self, name: str) -> set[str]:
        """Return the values of the label *name* among the rows."""
        at = self.names.index(name)
        return {text for labels in self._codes if (text := labels[at]) is not None}

    def skipped(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield the reasons why rows do not count, in order of first occurrence, with the lines of those rows."""
        lines = {number: array("I") for number in self._reasons.values()}
        for number, line in zip(self._reason, self._line, strict=True):
            if number:
                lines[number].append(line)
        yield from ((reason, lines[number]) for reason, number in self._reasons.items() if number)

    def skipped_errors(self) -> dict[str, Errors]:
        """Return the errors of rows that do not count though they are predicted and timed, by the reason."""
        found: dict[int, list[float]] = {}
        for number, error in zip(self._reason, self._error, strict=True):
            if number and not math.isnan(error):
                found.setdefault(number, []).append(error)
        return {reason: summarise(found[number]) for reason, number in self._reasons.items() if number in found}

    def whole(self) -> ScoreGroup:
        """Return the rows as one group."""
        return self._together(self._codes)

    def groups(self, axes: Sequence[str]) -> list[ScoreGroup]:
        """Return the groups of rows with equal labels along *axes*, sorted; rows that lack one are in no group."""
        places = [self.names.index(axis) for axis in axes]
        along = {labels: tuple([text for at in places if (text := labels[at]) is not None]) for labels in self._codes}
        found = self._by({labels: texts for labels, texts in along.items() if len(texts) == len(axes)})
        return [_group(dict(zip(axes, texts, strict=True)), *found[texts]) for texts in sorted(found, key=_order)]

    def without(self, axes: Sequence[str]) -> tuple[list[str], ScoreGroup]:
        """Return those of *axes* for which some rows have no label, and those rows as one group."""
        places = {axis: self.names.index(axis) for axis in axes}
        lacking = [labels for labels in self._codes if any(labels[at] is None for at in places.values())]
        missing = [axis for axis, at in places.items() if any(labels[at] is None for labels in lacking)]
        return missing, self._together(lacking)

    def _together(self, every: Iterable[_Labels]) -> ScoreGroup:
        return _group({}, *self._by(dict.fromkeys(every, ())).get((), (0, ((), ()))))

    def _by(self, groups: Mapping[_Labels, tuple[str, ...]]) -> dict[tuple[str, ...], tuple[int, RowErrors]]:
        numbers = {key: number for number, key in enumerate(dict.fromkeys(groups.values()))}
        of = [numbers[groups[labels]] if labels in groups else -1 for labels in self._codes]
        rows = [0] * len(numbers)
        found = [(array("d"), array("d")) for _ in numbers]
        for code, reason, error, baseline in zip(self._code, self._reason, self._error, self._baseline, strict=True):
            group = of[code]
            if group < 0:
                continue
            rows[group] += 1
            if reason == 0:
                ours, theirs = found[group]
                if not math.isnan(error):
                    ours.append(error)
                if not math.isnan(baseline):
                    theirs.append(baseline)
        return {key: (rows[number], found[number]) for key, number in numbers.items()}


_SIZE_ORDER = {">=1MiB": "0", "<1MiB": "1"}


@dataclass(frozen=True, slots=True)
class ScoreGroup:
    """``rows`` rows that share the labels ``by``, of which ``errors.n`` are scored.

    ``baseline`` holds the errors of the baseline over the same scored rows.
    """

    by: dict[str, str]
    rows: int
    errors: Errors
    baseline: Errors

    @property
    def coverage(self) -> float | None:
        """Share of the rows that are scored; None for no rows."""
        return self.errors.n / self.rows if self.rows else None


def _group(by: dict[str, str], rows: int, errors: RowErrors) -> ScoreGroup:
    return ScoreGroup(by, rows, summarise(errors[0]), summarise(errors[1]))


def median_of(place: str, rows: Scores) -> float | None:
    """Return the median over machines (or devices: *place*) of each one's median absolute error; None for no errors."""
    medians = [group.errors.median_ape for group in rows.groups((place,))]
    ordered = sorted(m for m in medians if m is not None)
    return percentile(ordered, 0.5) if ordered else None


def _order(labels: tuple[str, ...]) -> list[tuple[int, float, str]]:
    """Return a sort key that orders numbers by value, before words."""
    keys = []
    for label in labels:
        try:
            keys.append((0, float(label), label))
        except ValueError:
            keys.append((1, 0.0, _SIZE_ORDER.get(label, label)))
    return [key if math.isfinite(key[1]) else (1, 0.0, key[2]) for key in keys]


def beside_published(rows: Scores) -> list[tuple[str, Errors, Errors]]:
    """Return (name, its errors, ours) for each published predictor, over the scored rows that it also predicts."""
    found = sorted(rows.published.items())
    return [(name, summarise(theirs), summarise(ours)) for name, (theirs, ours) in found]
