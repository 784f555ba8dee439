"""``validate calibrate`` of a folder: constants of the device from operators, of its host from launches and steps."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from simulator.console.files import OutputFile
from simulator.errors import InputError, one_line
from validate.compare.calibrating import Bench, Fitted
from validate.compare.comparison import Asked, fit_folder, step_digest
from validate.compare.folder import read_folder
from validate.compare.grades import read_grades
from validate.compare.places import find_places
from validate.compare.rows import ComparedRow
from validate.constants.calibrate import Calibrated
from validate.constants.calibration_text import calibration_yaml
from validate.constants.rows import AskedRow
from validate.kinds.operators import COLUMNS_ASKED
from validate.score.scoring import Scoring, ScoringOptions
from validate.score.statistics import summarise
from validate.tables.csv_text import Record
from validate.tables.files import STDIN
from validate.tables.sample import digest

__all__ = ["calibrate_folder", "is_folder"]


def is_folder(name: str | None) -> bool:
    """Return whether *name* is a folder that there is."""
    try:
        return name is not None and name != STDIN and Path(name).is_dir()
    except (OSError, ValueError):
        return False


def calibrate_folder(
    name: str | None,
    *,
    device: str | None = None,
    topology: str | None = None,
    out: str | None = None,
    trust: str = "A,B",
    quiet: bool = False,
) -> None:
    """Fit the constants of what was measured in the folder *name* and write them as YAML.

    Raises
    ------
    InputError
        Where an option or the folder cannot be used, or it holds too little to fit to.
    MissingDependency
        Where SciPy is not installed.

    """
    if name is None:
        raise InputError("a folder is needed, for example: validate calibrate measured/ --out mine.calibration.yaml")
    folder = read_folder(name)
    grades = read_grades(trust, folder)
    asked = Asked(topology, (device,) if device else (), trust=grades)
    with OutputFile("--out", out) if out is not None else nullcontext() as output:
        places = find_places(folder, asked.topology, asked.devices)
        bench = Bench(places.part, Scoring(ScoringOptions(topology=places.topology, devices=places.devices)).names)
        fitted, rows = fit_folder(bench, folder, asked)
        text = folder_yaml(places.part, Path(name).resolve().name, bench, fitted)
        if output is not None:
            output.write(text.encode())
    if out is None:
        sys.stdout.write(text)
    if not quiet and sys.stderr is not None:
        where = "" if out is None else f"; wrote {one_line(out)}"
        sys.stderr.write(f"{places.part}: {_summary(bench, fitted)}{where}\n")
        skipped = Counter(row.skipped for row in rows if row.skipped)
        sys.stderr.writelines(f"not used: {count} rows: {reason}\n" for reason, count in skipped.most_common())


def folder_yaml(part: str, table: str, bench: Bench, fitted: Fitted) -> str:
    """Return the file that says *fitted* of the device *part*, and what of the folder *table* it came from."""
    rows = [
        AskedRow(Record(row.line, ()), row.asked, row.cells["op"], _digest(row))
        for row in fitted.rows
        if row.asked is not None
    ]
    spread = dict(fitted.operators.spread) if fitted.operators is not None else {}
    left = tuple(row.error for row in bench.again([*fitted.rows, *fitted.steps], fitted.calibration))
    others = {"launches": fitted.launches, "steps": len(fitted.steps)}
    return calibration_yaml(
        part,
        table,
        rows,
        Calibrated(fitted.calibration, spread, left or (0.0,)),
        others={name: count for name, count in others.items() if count},
        asked=[step_digest(row) for row in fitted.steps],
    )


def _digest(row: ComparedRow) -> str:
    return digest({column: row.cells.get(column, "") for column in COLUMNS_ASKED})


def _summary(bench: Bench, fitted: Fitted) -> str:
    words = []
    for name, rows in (("operators", fitted.rows), ("steps", fitted.steps)):
        if rows:
            left = summarise([row.error for row in bench.again(rows, fitted.calibration)])
            words.append(f"{len(rows)} {name}, median error left {100 * (left.median_ape or 0.0):.1f} %")
    if fitted.launches:
        words.append(f"{fitted.launches} constants of its host from launches")
    if fitted.host_scale is not None:
        words.append(f"its host takes {fitted.host_scale:.3g} times as long as they say in steps")
    return "; ".join(words)
