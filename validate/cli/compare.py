"""The command ``validate compare``."""

from functools import partial
from typing import Annotated

from simulator.errors import InputError, one_line
from validate.cli.command import Calibration, Json, Quiet, Text, Texts, Trust, command, command_again, positional, value
from validate.cli.words import TRUSTED, grades_in, opened, print_answer, print_remarks
from validate.compare.comparison import ComparisonOptions, compared
from validate.compare.folder import read_folder
from validate.compare.report import comparison_document, comparison_page, comparison_text


@command("compare")
def compare_command(
    folder: Annotated[Text, positional("MEASURED/", "The folder that validate run wrote.")] = None,
    topology: Annotated[Text, value("FILE", "The measured machine: a path or a built-in name.")] = None,
    devices: Annotated[Texts, value("[NAME=]PART", "Part of a device in the tables; repeatable.", "--device")] = None,
    calibration: Calibration = None,
    calibrate: Annotated[
        Text,
        value(
            "ROWS|TIME", "Calibrate on this many operators (50) or as many as take this long (120s); judge on the rest."
        ),
    ] = None,
    calibrated_by: Annotated[Text, value("SHORT/", "Calibrate on this folder; judge on the cases it lacks.")] = None,
    again: Annotated[
        Text, value("AGAIN/", "Show the drift against another measurement of this machine.", "--with")
    ] = None,
    report: Annotated[Text, value("FILE.html", "Write everything as one HTML page with plots.")] = None,
    trust: Trust = "A,B",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare a folder of measurements with predictions.

    Shows the error of each class with its uncertainty and the spread of the measurement, outliers and likely causes,
    the rows with the largest errors, and what calibration would gain.  docs/compare.md explains the output.
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
    asked = ComparisonOptions(topology, tuple(devices or ()), calibration, calibrate, grades)
    with opened(report, "--report") as output:
        found = compared(measured, asked, second, short)
        if output is not None:
            how = {"topology": topology, "device": devices, "calibration": calibration, "calibrate": calibrate}
            how |= {"calibrated_by": calibrated_by, "with": again, "trust": None if trust == TRUSTED else trust}
            output.write(comparison_page(found, command_again("compare", folder, **how)).encode())
    print_answer(comparison_document(found), partial(comparison_text, found), as_json=as_json)
    said = [] if any(row.counts for row in found.rows) else ["no row was judged; the reasons are below the table"]
    print_remarks([*said, *([f"wrote {one_line(report)}"] if report is not None else [])], quiet=quiet)
