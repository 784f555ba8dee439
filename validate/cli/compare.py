"""The command ``validate compare``."""

from functools import partial

from validate.cli.command import TRUSTED, Given
from validate.compare.comparison import ComparisonOptions, compared
from validate.compare.folder import read_folder
from validate.compare.report import comparison_document, comparison_page, comparison_text


def compare_command(given: Given) -> None:
    """Compare a folder of measurements with predictions."""
    calibrate, calibrated_by = given.calibrate, given.calibrated_by
    measured = read_folder(given.folder)
    grades = given.grades(measured)
    second = read_folder(given.second, "--with") if given.second is not None else None
    short = read_folder(calibrated_by, "--calibrated-by") if calibrated_by is not None else None
    asked = ComparisonOptions(given.topology, given.device, given.calibration, calibrate, grades)
    with given.opened("report") as output:
        found = compared(measured, asked, second, short)
        if output is not None:
            options = "topology device calibration calibrate calibrated_by second=with"
            options += "" if given.trust == TRUSTED else " trust"
            output.write(comparison_page(found, given.again("compare", given.folder, options=options)).encode())
    given.answer(comparison_document(found), partial(comparison_text, found))
    said = [] if any(row.counts for row in found.rows) else ["no row was judged; the reasons are below the table"]
    given.remark([*said, *given.wrote("report")])
