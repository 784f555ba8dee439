"""Tables of errors in Markdown, for documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from validate.score.groups import Group, beside_published, group_rows, whole
from validate.score.score import ScoredRow
from validate.score.scores import Scores
from validate.tables.statistics import Errors, summarise

Cells = tuple[str, str]
_NONE: Cells = ("-", "-")
_FEW_ROWS = 5


def percent(value: float | None, sign: str = "") -> str:
    """Return the fraction *value* as a percentage; "-" for None."""
    return "-" if value is None else f"{value * 100:{sign}.1f} %"


def cells_of(errors: Errors | None) -> Cells:
    """Return the median and the mean of *errors* as table cells."""
    return _NONE if errors is None else (percent(errors.median_ape), percent(errors.mean_ape))


def _counted(rows: Sequence[ScoredRow], axis: str) -> dict[str, Errors]:
    return {g.by[axis]: g.errors for g in group_rows(Scores(rows, (axis,)), (axis,)) if g.errors.n}


def operator_table(
    plain: Sequence[ScoredRow], calibrated: Sequence[ScoredRow], left_out: Mapping[str, Cells], axis: str
) -> str:
    """Return the table of errors by *axis* (op or device); labels with few rows are joined.

    *plain* are rows predicted from data sheets, *calibrated* those that remain to judge calibrations, and *left_out*
    holds, by label, the median and mean with fits that left out the device.
    """
    heads = ["data sheet", "device left out of the fit", "calibrated on 50 rows", "roofline"]
    columns = " | ".join(f"{head}: median | mean" for head in heads)
    lines = [f"| {axis} | rows | {columns} |", "|---|" + "--:|" * 9]
    after = _counted(calibrated, axis)
    found = [g for g in group_rows(Scores(plain, (axis,)), (axis,)) if g.errors.n]
    groups = [g for g in found if g.errors.n >= _FEW_ROWS]
    few = {g.by[axis] for g in found if g.errors.n < _FEW_ROWS}
    labels: list[tuple[str, Group, Errors | None]] = [("all", whole(Scores(plain)), summarise(_errors(calibrated)))]
    labels += [(f"`{g.by[axis]}`", g, after.get(g.by[axis])) for g in sorted(groups, key=lambda g: -g.errors.n)]
    if few:
        rest = whole(Scores(row for row in plain if row.labels.get(axis) in few))
        labels.append((f"{len(few)} of fewer than {_FEW_ROWS} rows", rest, None))
    for label, group, fitted in labels:
        enough = fitted if fitted is not None and fitted.n >= _FEW_ROWS else None
        cells = [*cells_of(group.errors), *left_out.get(label, _NONE), *cells_of(enough), *cells_of(group.baseline)]
        lines.append(f"| {label} | {group.errors.n} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _errors(rows: Sequence[ScoredRow]) -> list[float]:
    return [row.error for row in rows if not row.skipped and row.error is not None]


def step_table(rows: Sequence[ScoredRow], groups: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """Return the table of errors of the rows with the labels of each of *groups*, by the group's name."""
    lines = [
        "| steps of | rows | median | mean | 90th percentile | bias | roofline: median | mean |",
        "|---|" + "--:|" * 7,
    ]
    for name, labels in groups:
        group = whole(Scores(row for row in rows if all(row.labels.get(k) == v for k, v in labels.items())))
        e = group.errors
        cells = [*cells_of(e), percent(e.p90_ape), percent(e.bias, "+"), *cells_of(group.baseline)]
        lines.append(f"| {name} | {e.n} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def published_table(rows: Sequence[ScoredRow]) -> str:
    """Return the table of errors of other predictors and of this one, on the rows that both predict."""
    lines = ["| predictor | rows | its median | its mean | Topocast: median | mean |", "|---|" + "--:|" * 5]
    for name, theirs, ours in beside_published(Scores(rows)):
        lines.append(f"| {name} | {theirs.n} | " + " | ".join([*cells_of(theirs), *cells_of(ours)]) + " |")
    return "\n".join(lines) + "\n"
