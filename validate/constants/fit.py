"""Fit the shared constants of a family to measured rows, judge them on rows left out, and write them."""

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from simulator.api import Session
from simulator.console.files import OutputFile
from simulator.constants import Constants, constants_file, constants_path
from simulator.errors import InputError
from simulator.records import dataclass, replace
from simulator.topology.parts import CpuPart
from validate.constants.families import Family, FitStage, Term, in_use
from validate.constants.least import Lines, draw_lines, fit_along, least_errors
from validate.kinds.kind import MeasuredRow
from validate.tables.cells import NotScored
from validate.tables.statistics import HELD_OUT, gathered

Group = tuple[str, str]
"""Rows left out together: ``(BY, NAME)``, with one of ``GROUPINGS`` and the name of what they share."""
GROUPINGS = ("place", "generation", "dataset")
UNNAMED = "no dataset named"

_PROBED = 1.2  # factor on constants, alternately up and down, to find the rows that depend on them


@dataclass(frozen=True, slots=True)
class FittedFamily:
    """Fitted constants of a family: values, relative standard deviations, those at a bound, and the rows fitted to."""

    values: dict[str, float]
    spread: dict[str, float]
    at_bound: tuple[str, ...]
    rows: tuple[MeasuredRow, ...]

    @property
    def constants(self) -> Constants:
        """The constants of the files, with the fitted ones replaced."""
        return Constants(self.values)


def rows_of(family: Family, rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """Return the *rows* that judge the family: predicted by it, of a grade with weight, and not of a CPU."""
    mine = (row for row in rows if row.kind == family.kind and (not family.ops or row.op in family.ops))
    return [
        row for row in mine if _grade(family, row) > 0 and not isinstance(row.part, CpuPart) and family.predicts(row)
    ]


def counts(family: Family, row: MeasuredRow) -> bool:
    """Return whether *row* may be fitted to: it has weight, is not held out, and counts in a stage of the family."""
    return row.weight > 0 and not is_held_out(family, row) and any(stage.counts(row) for stage in family.stages)


def is_held_out(family: Family, row: MeasuredRow) -> bool:
    """Return whether the shape of *row* is one of those that no fit may use."""
    operator = getattr(row.asks.question, "operator", None)
    sizes: dict[str, Any] = {name: getattr(operator, name, None) for name in family.held_out}
    if not sizes or None in sizes.values():
        return False
    if "kv_heads" in sizes:
        sizes["kv_heads"] = sizes["kv_heads"] or sizes["heads"]
    return HELD_OUT.holds(tuple(sizes.values()))


def group_of(row: MeasuredRow, what: str) -> str:
    """Return the generation of *row*'s GPU, its data set, or its device or machine, by *what* of ``GROUPINGS``."""
    if what == "dataset":
        return row.cells.get("dataset") or UNNAMED
    architecture = getattr(row.part, "architecture", "") or ""
    return architecture.split()[0].lower() if what == "generation" and architecture else row.place


def fit_family(
    family: Family,
    rows: Sequence[MeasuredRow],
    session: Session,
    without: Collection[Group] = (),
    *,
    off: Term | None = None,
    share: float = 1.0,
    max_evaluations: int | None = None,
) -> FittedFamily:
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
    return FittedFamily(values, spread, tuple(bounds), tuple(seen))


def _is_in(groups: Collection[Group], row: MeasuredRow) -> bool:
    return any(group_of(row, what) == name for what, name in groups)


def linearised_rows(
    family: Family,
    rows: Sequence[MeasuredRow],
    session: Session,
    *,
    share: float = 1.0,
    at: Mapping[str, float] | None = None,
) -> Lines:
    """Return a *share* of the rows of a *family* of one stage, linearised at the constants in use, or at *at*."""
    (stage,) = family.stages
    mine = _chosen(stage, [row for row in rows_of(family, rows) if counts(family, row)], session, {}, share)
    known = {name: at[name] if at else in_use(name) for name in stage.free}
    start = {name: min(max(known[name], prior.low), prior.high) for name, prior in stage.free.items()}
    return draw_lines(mine, start, partial(_log_errors, stage, mine, session, {}))


def fit_to_lines(family: Family, lines: Lines, without: Collection[Group] = ()) -> FittedFamily:
    """Return constants fitted to *lines* but for groups *without*; raises MissingDependency without SciPy."""
    (stage,) = family.stages
    kept = [i for i, row in enumerate(lines.rows) if not _is_in(without, row)]
    seen = tuple(lines.rows[i] for i in kept)
    found = fit_along(lines, stage.free, kept, _weights(family, seen))
    values = _tied(stage, {name: float(f"{value:.3g}") for name, value in found.values.items()})
    return FittedFamily(values, found.spread, found.at_bound, seen)


def fit_errors(rows: Sequence[MeasuredRow], session: Session, constants: Constants) -> list[float | None]:
    """Return the relative error of each row predicted with *constants*, None for rows that cannot be predicted."""
    times = _times(rows, session.calibrated(session.calibrations, constants))
    return [None if time_s is None else time_s / row.time_s - 1.0 for row, time_s in zip(rows, times, strict=True)]


def _times(rows: Sequence[MeasuredRow], session: Session) -> list[float | None]:
    found: list[float | None] = []
    for row in rows:
        try:
            found.append(row.asks.time_s(session))
        except NotScored:
            found.append(None)
    return found


def _grade(family: Family, row: MeasuredRow) -> float:
    return family.grades.get(row.grade, 0.0) if row.grade else 1.0


def _chosen(
    stage: FitStage, rows: Sequence[MeasuredRow], session: Session, known: Mapping[str, float], share: float
) -> list[MeasuredRow]:
    """Return the rows to fit to: those that depend on a free constant, at most ``stage.most * share`` of each group."""
    asked = [row for row in rows if stage.counts(row)]
    plain = {name: prior.value for name, prior in stage.free.items()}
    moved = {name: value * (_PROBED if i % 2 else 1.0 / _PROBED) for i, (name, value) in enumerate(plain.items())}
    before, after = (
        _times(asked, session.calibrated({}, Constants({**known, **_tied(stage, values)}))) for values in (plain, moved)
    )
    times = zip(asked, before, after, strict=True)
    moved_rows = [row for row, old_s, new_s in times if old_s and new_s and old_s != new_s]
    groups = gathered((tuple(row.cells.get(column, "") for column in stage.alike), row) for row in moved_rows)
    most = max(1, round(share * stage.most))
    return [of[int(i * max(1.0, len(of) / most))] for of in groups.values() for i in range(min(most, len(of)))]


def _weights(family: Family, rows: Sequence[MeasuredRow]) -> list[float]:
    """Return each row's weight: more where a place has few rows, whose total yet stays below that of many."""
    count = Counter(row.place for row in rows)
    most = max(count.values(), default=0)
    return [row.weight * _grade(family, row) * math.sqrt(most / count[row.place]) for row in rows]


def _log_errors(
    stage: FitStage,
    rows: Sequence[MeasuredRow],
    session: Session,
    known: Mapping[str, float],
    free: Mapping[str, float],
) -> list[float]:
    trial = session.calibrated({}, Constants({**known, **_tied(stage, free)}))
    return [math.log(row.asks.time_s(trial) / row.time_s) for row in rows]


def _tied(stage: FitStage, values: Mapping[str, float]) -> dict[str, float]:
    return {**values, **{name: values[source] for name, source in stage.tied.items()}}


def write_constants(family: Family, fitted: FittedFamily) -> list[str]:
    """Write the *fitted* constants and return the paths changed; raises InputError if one cannot be written."""
    files = dict.fromkeys(name.partition(".")[0] for name in fitted.values)
    return [write_package_file(constants_path(file), constants_text(_changed(file, family, fitted))) for file in files]


def write_package_file(path: Traversable, text: str) -> str:
    """Write *text* to the file *path* of the package, and return it; raises InputError if it cannot be written."""
    if not isinstance(path, Path):
        raise InputError(f"--write: {path.name} is no file here; run it in a clone")
    with OutputFile("--write", str(path)) as output:
        output.write(text.encode())
    return str(path)


def constants_text(document: dict[str, Any], of: str = "constants") -> str:
    """Return *document* in the layout of the files: one constant, or other entry *of* the document, per line."""
    told = partial(json.dumps, ensure_ascii=False)
    entries = document[of]
    named, ends = (entries.items(), "{}") if isinstance(entries, dict) else (((None, each) for each in entries), "[]")
    lines = [f"  {told(key)}: {told(value)}," for key, value in document.items() if key != of]
    each_line = [f"    {'' if name is None else f'{told(name)}: '}{told(entry)}" for name, entry in named]
    return "\n".join(["{", *lines, f"  {told(of)}: {ends[0]}", ",\n".join(each_line), f"  {ends[1]}", "}"]) + "\n"


def _changed(file: str, family: Family, fitted: FittedFamily) -> dict[str, Any]:
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
