"""Compact storage of scored rows, some 30 bytes each: :class:`Scores`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from simulator.errors import Fault, InputError
from validate.kinds.row import MeasuredRow
from validate.score.score import MOST_DIFFERENT
from validate.tables.statistics import relative_error

Errors = tuple[Sequence[float], Sequence[float]]
"""Signed relative errors of the rows that count, and those of the baseline on them."""

_OTHER = f"another of more than {MOST_DIFFERENT:,} reasons"


class Scores:
    """The errors of rows, their labels named in *labels*, and why rows do not count; predictions are not kept.

    Raises InputError where the rows of *file* have too many different combinations of labels.
    """

    def __init__(self, rows: Iterable[MeasuredRow] = (), labels: Iterable[str] = (), file: str = "") -> None:
        self.names = tuple(dict.fromkeys(labels))
        self.context = 0
        self.published: dict[str, tuple[array[float], array[float]]] = {}  # (their errors, ours) on the same rows
        self._file = file
        self._codes: dict[tuple[str | None, ...], int] = {}
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
            raise InputError(Fault(f"has more than {MOST_DIFFERENT:,} different {_listed(self.names)}", self._file))
        skipped = row.skipped
        if skipped not in self._reasons and len(self._reasons) > MOST_DIFFERENT:
            skipped = _OTHER
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

    def errors(self) -> tuple[int, Errors]:
        """Return the number of rows, and their errors."""
        return self._by(dict.fromkeys(self._codes, ())).get((), (0, ((), ())))

    def grouped(self, axes: Sequence[str]) -> Mapping[tuple[str, ...], tuple[int, Errors]]:
        """Return row counts and errors of rows with equal labels along *axes*; rows that lack one are in no group."""
        places = [self.names.index(axis) for axis in axes]
        groups = {}
        for labels in self._codes:
            along = tuple([text for at in places if (text := labels[at]) is not None])
            if len(along) == len(axes):
                groups[labels] = along
        return self._by(groups)

    def without(self, axes: Sequence[str]) -> tuple[list[str], tuple[int, Errors]]:
        """Return those of *axes* that some rows lack, with the count and errors of those rows."""
        places = {axis: self.names.index(axis) for axis in axes}
        lacking = {labels: () for labels in self._codes if any(labels[at] is None for at in places.values())}
        missing = [axis for axis, at in places.items() if any(labels[at] is None for labels in lacking)]
        return missing, self._by(lacking).get((), (0, ((), ())))

    def _by(
        self, groups: Mapping[tuple[str | None, ...], tuple[str, ...]]
    ) -> dict[tuple[str, ...], tuple[int, Errors]]:
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


def _listed(names: Collection[str]) -> str:
    return f"combinations of {', '.join(names)}; score it in parts" if names else "rows"
