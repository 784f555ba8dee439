"""The worth of a calibration: fitted to some of the measured rows, judged on others.

It is judged on four sets of unseen rows, each harder than the one before: other rows, other shapes, other operators,
and steps of whole networks.  The SHA-256 of a row's question decides whether it is fitted to, so the choice depends
neither on measured times nor on the order of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from simulator.questions.calibration import Calibration
from simulator.records import dataclass
from validate.compare.calibrating import FittedCalibration, FolderDevice
from validate.compare.classes import ClassErrors, class_errors
from validate.compare.folder import Folder
from validate.compare.rows import ComparedRow
from validate.tables.share import digest

# Columns on how a row was run: the same shape with a cold cache or on another machine is not a new question.
_HOW = frozenset(("device", "machine", "includes_dispatch", "cache", "threads", "schedule", "issue"))
_WHICH = frozenset((*_HOW, "phase", "dtype", "variant"))
_ENOUGH = 5  # fewest operators to fit to or split


@dataclass(frozen=True, slots=True)
class CalibrationErrors:
    """Errors before and after a calibration, on rows that it was not fitted to.

    ``fitted`` and ``judged`` name the two sets of rows; ``points`` is the number of rows fitted to.
    """

    fitted: str
    judged: str
    points: int
    before: ClassErrors
    after: ClassErrors


def question(row: ComparedRow, without: Collection[str] = _HOW) -> str:
    """Return the digest of what *row* asks, ignoring the columns *without*."""
    return digest({"table": row.table} | {name: text for name, text in row.key if name not in without})


def judge_within(
    bench: FolderDevice, folder: Folder, rows: Sequence[ComparedRow], share: float
) -> list[CalibrationErrors]:
    """Return the worth of calibrations fitted to *share* of the *rows* of *folder* and judged on the others."""
    operators = [row for row in rows if row.counts and row.kind == "operators"]
    steps = [row for row in rows if row.counts and row.kind == "training"]
    count = max(1, round(share * len(operators)))
    found = []
    fitted: FittedCalibration | None = None
    if len(operators) >= _ENOUGH:
        first, others = _split(operators, question, count)
        fitted = bench.fit(first)
        found.append(_judged(bench, fitted.calibration, others, "operators", "other operators", len(first)))
        first, others = _split(operators, lambda row: question(row, _WHICH), max(count, len(operators) // 2))
        first = _some(first, count)
        alone = bench.fit(first)
        shapes = "operators of shapes that it has not seen"
        found.append(_judged(bench, alone.calibration, others, "operators", shapes, len(first)))
        found += _other_operators(bench, operators, count)
    if steps and fitted is not None:
        found.append(_judged(bench, fitted.calibration, steps, "operators", "steps", len(fitted.rows)))
        known = bench.fit(fitted.rows, folder)
        if known.launches:
            found.append(_judged(bench, known.calibration, steps, "operators and launches", "steps", known.points))
        mine, theirs = _split(steps, lambda row: row.cells.get("model", ""), max(1, round(share * len(steps))))
        whole = bench.fit(fitted.rows, folder, mine)
        if whole.steps and theirs:
            words = "operators, launches and steps" if whole.launches else "operators and steps"
            networks = "steps of networks that it has not seen"
            found.append(_judged(bench, whole.calibration, theirs, words, networks, whole.points))
    return [item for item in found if item.after.scored]


def judge_by(
    bench: FolderDevice, fitted: FittedCalibration, short: Sequence[ComparedRow], rows: Sequence[ComparedRow]
) -> list[CalibrationErrors]:
    """Return the worth of *fitted* on *rows*; it is a calibration on the rows *short* of another folder."""
    asked = {question(row) for row in short}
    networks = {row.cells.get("model", "") for row in fitted.steps}
    shapes = {question(row, _WHICH) for row in short}
    new = [row for row in rows if row.counts and question(row) not in asked]
    operators = [row for row in new if row.kind == "operators"]
    steps = [row for row in new if row.kind == "training"]
    parts = [
        ("operators that it did not ask", operators),
        ("operators of shapes that it did not ask", [r for r in operators if question(r, _WHICH) not in shapes]),
        ("steps that it did not ask", steps),
        ("steps of networks that it did not ask", [r for r in steps if r.cells.get("model", "") not in networks]),
    ]
    words = _said(fitted)
    return [_judged(bench, fitted.calibration, part, words, judged, fitted.points) for judged, part in parts if part]


def _said(fitted: FittedCalibration) -> str:
    words = [f"{len(fitted.rows)} operators"] if fitted.rows else []
    words += [f"{fitted.launches} launches"] if fitted.launches else []
    words += [f"{len(fitted.steps)} steps"] if fitted.steps else []
    return ", ".join(words) or "nothing"


def _other_operators(bench: FolderDevice, operators: Sequence[ComparedRow], count: int) -> list[CalibrationErrors]:
    """Return one judgement over all operators, each predicted with constants fitted to the others."""
    names = sorted({row.cells.get("op", "") for row in operators})
    before: list[ComparedRow] = []
    after: list[ComparedRow] = []
    for name in names:
        mine = [row for row in operators if row.cells.get("op", "") == name]
        others = [row for row in operators if row.cells.get("op", "") != name]
        if len(others) < _ENOUGH:
            continue
        before += mine
        after += bench.again(mine, bench.fit(_some(others, count)).calibration)
    if not after:
        return []
    judged = "each operator by a fit to the others"
    return [
        CalibrationErrors("operators", judged, min(count, len(operators)), class_errors(before), class_errors(after))
    ]


def _judged(
    bench: FolderDevice, calibration: Calibration, rows: Sequence[ComparedRow], fitted: str, judged: str, points: int
) -> CalibrationErrors:
    return CalibrationErrors(fitted, judged, points, class_errors(rows), class_errors(bench.again(rows, calibration)))


def _split(
    rows: Sequence[ComparedRow], key: Callable[[ComparedRow], str], count: int
) -> tuple[list[ComparedRow], list[ComparedRow]]:
    """Split *rows* by *key*: return about *count* rows with at most half of the keys, and the rest."""
    keyed = [(digest({"key": key(row)}), row) for row in rows]
    ordered = sorted({name for name, _ in keyed})
    chosen: set[str] = set()
    taken = 0
    for name in ordered[: max(1, len(ordered) // 2)]:
        if taken >= count:
            break
        chosen.add(name)
        taken += sum(1 for other, _ in keyed if other == name)
    return [row for name, row in keyed if name in chosen], [row for name, row in keyed if name not in chosen]


def _some(rows: Sequence[ComparedRow], count: int) -> list[ComparedRow]:
    """Return the *count* rows with the lowest digests."""
    return sorted(rows, key=lambda row: (question(row), row.table, row.line))[:count]
