"""The command ``validate compare``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from simulator.console.style import choose_style
from simulator.errors import InputError, one_line
from validate.cli.output import opened, show, tell
from validate.cli.words import TRUSTED, grades_in
from validate.compare.comparison import Asked, compare
from validate.compare.document import comparison_document
from validate.compare.folder import read_folder
from validate.compare.text import comparison_text


def compare_command(
    folder: str | None,
    *,
    topology: str | None = None,
    devices: Sequence[str] = (),
    calibration: str | None = None,
    calibrate: str | None = None,
    calibrated_by: str | None = None,
    trust: str = TRUSTED,
    again: str | None = None,
    report: str | None = None,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Compare the measurements in *folder* with their predictions and print the result.

    Raises InputError if an option or the folder is invalid, MissingDependency if calibrating needs SciPy and it is
    not installed.
    """
    if folder is None:
        raise InputError("a folder is needed, for example: validate compare measured/")
    measured = read_folder(folder)
    grades = grades_in(trust, measured)
    second = read_folder(again, "--with") if again is not None else None
    if calibrate is not None and calibrated_by is not None:
        raise InputError("--calibrate fits to a part of this folder, --calibrated-by to another; one of the two")
    if calibration is not None and (calibrate is not None or calibrated_by is not None):
        raise InputError("--calibration is predicted with; what would be fitted here is judged from the data sheet on")
    short = read_folder(calibrated_by, "--calibrated-by") if calibrated_by is not None else None
    asked = Asked(topology, tuple(devices), calibration, calibrate, grades)
    with opened(report, "--report") as output:
        found = compare(measured, asked, second, short)
        document = comparison_document(found)
        if output is not None:
            from reports.compare import comparison_page

            output.write(comparison_page(document).encode())
    if as_json:
        show(json.dumps(document, indent=2, allow_nan=False) + "\n")
    else:
        show(comparison_text(found, choose_style(sys.stdout)))
    if not any(row.counts for row in found.rows):
        tell(["no row was judged; the reasons are below the table"], quiet=quiet)
    if report is not None:
        tell([f"wrote {one_line(report)}"], quiet=quiet)
