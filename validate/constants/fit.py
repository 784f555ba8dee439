"""Fit the shared constants of a family to measured rows, judge them on rows left out, and write them.

The fit minimises log(predicted / measured) in two passes, with a prior for every constant: by a soft L1 loss, then with
the rows of each kind weighed by the scatter that the first left, and Student's distribution (docs/constants.md).
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from simulator.api import Session
from simulator.console.files import write_output
from simulator.constants import Constants, constants_file, constants_path
from simulator.errors import InputError, MissingDependency
from simulator.records import dataclass, lists_by_key, replace
from simulator.topology.parts import CpuPart
from validate.constants.families import Family, FitStage, Prior, Term, in_use
from validate.kinds.kind import MeasuredRow, Rows
from validate.tables.cells import NotScored
from validate.tables.statistics import HELD_OUT, is_sampled, percentile

# Prior scatter of the rows of a kind (standard deviation of the logarithm), its weight in rows, and the least scatter.
_SCATTER, _OPINION_ROWS, _LEAST_SCATTER = 0.15, 3.0, 0.02
_DEGREES = 2.0  # of Student's distribution: chosen among 1.5, 2, 4 and a soft L1 loss, 0.2 points below the last
_STEP = 1e-3  # step of a constant's logarithm, for slopes
_LINE_STEP = 0.02  # the same where errors are linearised: above rounding errors, below the moves of fits
_AT_BOUND = 1e-3  # distance from a bound, in logarithms, below which a constant counts as at its bound


Values = Mapping[str, float]  # constants by name
LogErrors = Callable[[Values], Sequence[float]]  # of all rows, log(predicted / measured)


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """Fitted constants, their relative standard deviations, those at a bound, and the ``rows`` that they are fitted to.

    ``unseen``: the log error of each row by constants that are fitted to the others.
    """

    values: dict[str, float]
    spread: dict[str, float]
    at_bound: tuple[str, ...]
    unseen: tuple[float, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()

    @property
    def constants(self) -> Constants:
        """The constants of the files, with the fitted ones replaced."""
        return Constants(self.values)


def least_errors(
    priors: Mapping[str, Prior],
    log_errors: LogErrors,
    kinds: Sequence[str],
    weights: Sequence[float] | None = None,
    *,
    max_evaluations: int | None = None,
    unseen: bool = False,
) -> LeastSquares:
    """Return the constants, by *priors*, that minimise *log_errors* (of constants by name) over all rows.

    *kinds* and *weights* (1 by default) are the rows'; *unseen*: estimate each row's error without it too, by a
    Gauss-Newton step with the others' weights.  Raises MissingDependency without SciPy.
    """
    np, least_squares = _scipy()
    names = list(priors)
    center = np.log([priors[name].value for name in names])
    sigma = np.array([priors[name].sigma for name in names])
    low, high = (np.log([getattr(priors[name], end) for name in names]) - center for end in ("low", "high"))
    often = np.sqrt(np.ones(len(kinds)) if weights is None else np.array(weights, dtype=float))

    def constants(x: Any) -> dict[str, float]:
        return {name: math.exp(value) for name, value in zip(names, center + x, strict=True)}

    def errors(x: Any) -> Any:
        return np.array(log_errors(constants(x)))

    def fitted(start: Any, scatter: Any, loss: Callable[[Any, Any, int], Any]) -> Any:
        return least_squares(
            lambda x: np.concatenate([errors(x) * often / scatter, x / sigma]),
            start,
            bounds=(low, high),
            loss=lambda z: loss(np, z, len(kinds)),
            diff_step=_STEP,
            max_nfev=max_evaluations,
        )

    found = fitted(np.zeros(len(names)), np.full(len(kinds), _SCATTER), _soft)
    scatter = np.array(_scatter(kinds, errors(found.x)))
    found = fitted(found.x, scatter, _student)
    spread = np.sqrt(np.maximum(np.diag(np.linalg.pinv(found.jac.T @ found.jac)), 0.0))
    ends = np.minimum(np.abs(found.x - low), np.abs(found.x - high))
    return LeastSquares(
        constants(found.x),
        {name: float(f"{value:.2g}") for name, value in zip(names, spread, strict=True)},
        tuple(name for name, end in zip(names, ends, strict=True) if end < _AT_BOUND),
        tuple(_unseen(np, errors, found.x, often / scatter, sigma).tolist()) if unseen else (),
    )


def _unseen(np: Any, errors: Callable[[Any], Any], x: Any, scale: Any, sigma: Any) -> Any:
    """Return each row's log error by constants near *x* fitted without it; *scale* by row, *sigma* of the priors."""
    left = errors(x)
    slopes = np.array([(errors(x + _STEP * unit) - left) / _STEP for unit in np.eye(len(x))]).T
    weights = scale**2 * _student(np, (scale * left) ** 2, len(left))[1]
    all_rows = slopes.T @ (weights[:, None] * slopes) + np.diag(sigma**-2.0)
    found = []
    for slope, weight, error in zip(slopes, weights, left, strict=True):
        others = all_rows - weight * np.outer(slope, slope)
        found.append(error + slope @ np.linalg.solve(others, weight * error * slope))
    return np.array(found)


def _soft(np: Any, squares: Any, n_rows: int) -> Any:
    rows = np.sqrt(1.0 + squares[:n_rows])
    return _with_plain(np, (2.0 * (rows - 1.0), 1.0 / rows, -0.5 / rows**3), squares[n_rows:])


def _student(np: Any, squares: Any, n_rows: int) -> Any:
    """Return -2 log of Student's density, (d + 1) log(1 + z / d), with its derivatives; for priors the plain square."""
    weights = (_DEGREES + 1.0) / (_DEGREES + squares[:n_rows])
    losses = (_DEGREES + 1.0) * np.log1p(squares[:n_rows] / _DEGREES)
    return _with_plain(np, (losses, weights, -(weights**2) / (_DEGREES + 1.0)), squares[n_rows:])


def _with_plain(np: Any, rows: tuple[Any, Any, Any], plain: Any) -> Any:
    besides = (plain, np.ones_like(plain), np.zeros_like(plain))
    return np.array([np.concatenate(pair) for pair in zip(rows, besides, strict=True)])


def _scatter(kinds: Sequence[str], log_errors: Sequence[float]) -> list[float]:
    """Return the scatter of each row's kind: 1.48 times the median absolute error, shrunk towards ``_SCATTER``."""
    found = {}
    for kind in set(kinds):
        sizes = sorted(abs(error) for other, error in zip(kinds, log_errors, strict=True) if other == kind)
        seen, n = 1.48 * percentile(sizes, 0.5), len(sizes)
        variance = (n * seen**2 + _OPINION_ROWS * _SCATTER**2) / (n + _OPINION_ROWS)
        found[kind] = max(_LEAST_SCATTER, math.sqrt(variance))
    return [found[kind] for kind in kinds]


def _scipy() -> tuple[Any, Any]:
    try:
        import numpy as np
        from scipy.optimize import least_squares
    except ImportError:
        raise MissingDependency("fitting needs SciPy; in the clone: pip install -e '.[fit]'") from None
    return np, least_squares


@dataclass(frozen=True, slots=True)
class Lines:
    """Errors of rows, log(predicted / measured), near the constants ``at``: there, and slopes by constants' logarithms.

    As times are sums, slopes are almost constant: one prediction per constant serves all leave-one-out fits.
    """

    rows: tuple[MeasuredRow, ...]
    at: dict[str, float]
    errors: tuple[float, ...]
    slopes: dict[str, tuple[float, ...]]


def draw_lines(rows: Rows, at: Values, log_errors: LogErrors) -> Lines:
    """Return *rows* linearised at the constants *at*."""
    errors = tuple(log_errors(at))
    moved = {name: log_errors({**at, name: value * math.exp(_LINE_STEP)}) for name, value in at.items()}
    slopes = {
        name: tuple((new - old) / _LINE_STEP for new, old in zip(each, errors, strict=True))
        for name, each in moved.items()
    }
    return Lines(tuple(rows), dict(at), errors, slopes)


def fit_along(lines: Lines, free: Mapping[str, Prior], kept: Collection[int], weights: Sequence[float]) -> LeastSquares:
    """Return the constants *free* that minimise the linearised errors of rows *kept*, in rising order of *weights*."""
    np, numbers = _scipy()[0], sorted(kept)
    table = np.array([lines.errors, *(lines.slopes[name] for name in free)])[:, numbers]

    def log_errors(values: Values) -> Any:
        return np.array([1.0, *(math.log(values[name] / lines.at[name]) for name in free)]) @ table

    return least_errors(free, log_errors, [lines.rows[i].op for i in numbers], weights)


Group = tuple[str, str]  # rows left out together: one of ``GROUPINGS``, and the name of what they share
GROUPINGS = ("place", "generation", "dataset")
UNNAMED = "no dataset named"

_PROBED = 1.2  # factor on constants, alternately up and down, to find the rows that depend on them


def rows_of(family: Family, rows: Rows) -> list[MeasuredRow]:
    """Return the *rows* that judge the family: predicted by it, of a grade with weight, and not of a CPU."""
    mine = (row for row in rows if row.kind == family.kind and (not family.ops or row.op in family.ops))
    mine = (row for row in mine if _grade(family, row) > 0 and not isinstance(row.part, CpuPart))
    return list(filter(family.predicts, mine))


def counts(family: Family, row: MeasuredRow) -> bool:
    """Return whether *row* may be fitted to: it has weight, is not held out, and counts in a stage of the family."""
    return row.weight > 0 and not is_held_out(family, row) and any(stage.counts(row) for stage in family.stages)


def is_held_out(family: Family, row: MeasuredRow) -> bool:
    """Return whether the shape of *row* is one of those that no fit may use."""
    operator = getattr(row.asks.question, "operator", None)
    sizes: dict[str, Any] = {name: getattr(operator, name, None) for name in family.held_out}
    if sizes.get("kv_heads") == 0:
        sizes["kv_heads"] = sizes["heads"]
    return bool(sizes) and None not in sizes.values() and is_sampled(tuple(sizes.values()), HELD_OUT)


def group_of(row: MeasuredRow, what: str) -> str:
    """Return the generation of *row*'s GPU, its data set, or its device or machine, by *what* of ``GROUPINGS``."""
    if what == "dataset":
        return row.cells.get("dataset") or UNNAMED
    architecture = getattr(row.part, "architecture", "") or ""
    return architecture.split()[0].lower() if what == "generation" and architecture else row.place


def fit_family(
    family: Family,
    rows: Rows,
    session: Session,
    without: Collection[Group] = (),
    *,
    off: Term | None = None,
    share: float = 1.0,
    max_evaluations: int | None = None,
) -> LeastSquares:
    """Return constants fitted to *rows* without those of groups *without*, or a *share*; *off* is a term left out."""
    mine = [row for row in rows_of(family, rows) if counts(family, row) and not _is_in(without, row)]
    values: dict[str, float] = dict(off.off) if off else {}
    spread: dict[str, float] = {}
    bounds: list[str] = []
    seen: list[MeasuredRow] = []
    fixed = {*off.off, *off.idle} if off else set()
    for whole in family.stages:
        stage = replace(whole, free={name: prior for name, prior in whole.free.items() if name not in fixed})
        chosen = _chosen(stage, mine, session, values, share)
        if not chosen:
            continue
        log_errors, kinds = partial(_log_errors, stage, chosen, session, dict(values)), [row.op for row in chosen]
        found = least_errors(stage.free, log_errors, kinds, _weights(family, chosen), max_evaluations=max_evaluations)
        values |= _tied(stage, {name: float(f"{value:.3g}") for name, value in found.values.items()})
        spread |= found.spread
        bounds += found.at_bound
        seen += chosen
    return LeastSquares(values, spread, tuple(bounds), rows=tuple(seen))


def _is_in(groups: Collection[Group], row: MeasuredRow) -> bool:
    return any(group_of(row, what) == name for what, name in groups)


def linearised_rows(
    family: Family, rows: Rows, session: Session, *, share: float = 1.0, at: Values | None = None
) -> Lines:
    """Return a *share* of the rows of a *family* of one stage, linearised at the constants in use, or at *at*."""
    (stage,) = family.stages
    mine = _chosen(stage, [row for row in rows_of(family, rows) if counts(family, row)], session, {}, share)
    known = {name: at[name] if at else in_use(name) for name in stage.free}
    start = {name: min(max(known[name], prior.low), prior.high) for name, prior in stage.free.items()}
    return draw_lines(mine, start, partial(_log_errors, stage, mine, session, {}))


def fit_to_lines(family: Family, lines: Lines, without: Collection[Group] = ()) -> LeastSquares:
    """Return constants fitted to *lines* but for groups *without*; raises MissingDependency without SciPy."""
    (stage,) = family.stages
    kept = [i for i, row in enumerate(lines.rows) if not _is_in(without, row)]
    seen = tuple(lines.rows[i] for i in kept)
    found = fit_along(lines, stage.free, kept, _weights(family, seen))
    values = _tied(stage, {name: float(f"{value:.3g}") for name, value in found.values.items()})
    return replace(found, values=values, rows=seen)


def fit_errors(rows: Rows, session: Session, constants: Constants) -> list[float | None]:
    """Return the relative error of each row predicted with *constants*, None for rows that cannot be predicted."""
    trial = session.calibrated(session.calibrations, constants)
    times = zip(rows, (_time_s(row, trial) for row in rows), strict=True)
    return [None if time_s is None else time_s / row.time_s - 1.0 for row, time_s in times]


def _time_s(row: MeasuredRow, session: Session) -> float | None:
    with suppress(NotScored):
        return row.asks.time_s(session)
    return None


def _grade(family: Family, row: MeasuredRow) -> float:
    return family.grades.get(row.grade, 0.0) if row.grade else 1.0


def _chosen(stage: FitStage, rows: Rows, session: Session, known: Values, share: float) -> list[MeasuredRow]:
    """Return the rows to fit to: those that depend on a free constant, at most ``stage.most * share`` of each group."""
    plain = {name: prior.value for name, prior in stage.free.items()}
    moved = {name: value * (_PROBED if i % 2 else 1.0 / _PROBED) for i, (name, value) in enumerate(plain.items())}
    trials = [_trial(stage, session, known, values) for values in (plain, moved)]
    moved_rows = []
    for row in filter(stage.counts, rows):
        old_s, new_s = (_time_s(row, trial) for trial in trials)
        moved_rows += [row] if old_s and new_s and old_s != new_s else []
    groups = lists_by_key((tuple(row.cells.get(column, "") for column in stage.alike), row) for row in moved_rows)
    most = max(1, round(share * stage.most))
    return [of[int(i * max(1.0, len(of) / most))] for of in groups.values() for i in range(min(most, len(of)))]


def _weights(family: Family, rows: Rows) -> list[float]:
    count = Counter(row.place for row in rows)
    most = max(count.values(), default=0)
    return [row.weight * _grade(family, row) * math.sqrt(most / count[row.place]) for row in rows]


def _trial(stage: FitStage, session: Session, known: Values, free: Values) -> Session:
    return session.calibrated({}, Constants({**known, **_tied(stage, free)}))


def _log_errors(stage: FitStage, rows: Rows, session: Session, known: Values, free: Values) -> list[float]:
    trial = _trial(stage, session, known, free)
    return [math.log(row.asks.time_s(trial) / row.time_s) for row in rows]


def _tied(stage: FitStage, values: Values) -> dict[str, float]:
    return {**values, **{name: values[source] for name, source in stage.tied.items()}}


def write_constants(family: Family, fitted: LeastSquares) -> list[str]:
    """Write the *fitted* constants and return the paths changed; raises InputError if one cannot be written."""
    files = dict.fromkeys(name.partition(".")[0] for name in fitted.values)
    return [write_package_file(constants_path(file), constants_text(_changed(file, family, fitted))) for file in files]


def write_package_file(path: Traversable, text: str) -> str:
    """Write *text* to the file *path* of the package, and return it; raises InputError if it cannot be written."""
    if not isinstance(path, Path):
        raise InputError(f"--write: {path.name} is no file here; run it in a clone")
    write_output("--write", path, text.encode())
    return str(path)


def constants_text(document: dict[str, Any], of: str = "constants") -> str:
    """Return *document* in the layout of the files: one constant, or other entry *of* the document, per line."""
    told = partial(json.dumps, ensure_ascii=False)
    entries = document[of]
    named, ends = (entries.items(), "{}") if isinstance(entries, dict) else (((None, each) for each in entries), "[]")
    lines = [f"  {told(key)}: {told(value)}," for key, value in document.items() if key != of]
    each_line = [f"    {'' if name is None else f'{told(name)}: '}{told(entry)}" for name, entry in named]
    return "\n".join(["{", *lines, f"  {told(of)}: {ends[0]}", ",\n".join(each_line), f"  {ends[1]}", "}"]) + "\n"


def _changed(file: str, family: Family, fitted: LeastSquares) -> dict[str, Any]:
    document = constants_file(file)
    for name, value in fitted.values.items():
        owner, _, constant = name.partition(".")
        if owner != file:
            continue
        entry = {key: old for key, old in document["constants"][constant].items() if key not in ("spread", "bound")}
        entry["value"] = value
        if name in fitted.spread:
            known = str(entry["from"])
            entry |= {"from": known if known.startswith("fit") else "fit", "spread": fitted.spread[name]}
        if name in fitted.at_bound:
            entry["bound"] = True
        document["constants"][constant] = entry
    # Only the last folder and the name, as paths differ between machines.
    said = {
        "command": f"validate fit --only {family.name}",
        "rows": dict(sorted(Counter("/".join(Path(row.file).parts[-2:]) for row in fitted.rows).items())),
        f"{'machines' if family.kind == 'collectives' else 'devices'}": sorted({row.place for row in fitted.rows}),
    }
    return {**document, "fitted": {**document.get("fitted", {}), family.name: said}, "constants": document["constants"]}
