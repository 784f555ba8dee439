"""``validate calibrate`` for a folder: the device's constants from operators, its host's from launches and steps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from simulator.errors import InputError, one_line
from validate.cli.output import give, opened, tell
from validate.cli.words import TRUSTED, grades_in
from validate.compare.calibrating import Bench, Fitted
from validate.compare.comparison import Asked, fit_folder
from validate.compare.folder import read_folder
from validate.compare.places import find_places
from validate.constants.calibrate import Calibrated
from validate.constants.calibration_text import calibration_yaml
from validate.score.scoring import Scoring, ScoringOptions
from validate.tables.files import STDIN
from validate.tables.statistics import summarise


def is_folder(name: str | None) -> bool:
    """Return whether *name* is an existing folder."""
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
    trust: str = TRUSTED,
    quiet: bool = False,
) -> None:
    """Fit the constants of the device measured in the folder *name*, and write them as YAML.

    Raises InputError if an option or the folder is invalid or it has too few rows, MissingDependency if SciPy is not
    installed.
    """
    if name is None:
        raise InputError("a folder is needed, for example: validate calibrate measured/ --out mine.calibration.yaml")
    folder = read_folder(name)
    grades = grades_in(trust, folder)
    asked = Asked(topology, (device,) if device else (), trust=grades)
    with opened(out) as output:
        places = find_places(folder, asked.topology, asked.devices)
        bench = Bench(places.part, Scoring(ScoringOptions(topology=places.topology, devices=places.devices)).names)
        fitted, rows = fit_folder(bench, folder, asked)
        text = folder_yaml(places.part, Path(name).resolve().name, bench, fitted)
        give(text, output)
    where = "" if out is None else f"; wrote {one_line(out)}"
    skipped = Counter(row.skipped for row in rows if row.skipped).most_common()
    unused = (f"not used: {count} rows: {reason}" for reason, count in skipped)
    tell([f"{places.part}: {_summary(bench, fitted)}{where}", *unused], quiet=quiet)


def folder_yaml(part: str, table: str, bench: Bench, fitted: Fitted) -> str:
    """Return the calibration file of the device *part* as YAML: *fitted*, and the rows of the folder *table* used."""
    spread = dict(fitted.operators.spread) if fitted.operators is not None else {}
    left = tuple(row.error for row in bench.again([*fitted.rows, *fitted.steps], fitted.calibration))
    others = {"launches": fitted.launches, "steps": len(fitted.steps)}
    return calibration_yaml(
        part,
        table,
        fitted.rows,
        Calibrated(fitted.calibration, spread, left or (0.0,)),
        others={name: count for name, count in others.items() if count},
        asked=[row.digest for row in fitted.steps],
    )


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
