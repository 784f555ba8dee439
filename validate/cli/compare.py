"""The commands ``validate compare`` and ``validate trace``: what was measured beside what is predicted."""

import tempfile
from functools import partial
from pathlib import Path

from simulator.cli.options import parse_count
from simulator.cli.output import captured
from simulator.errors import InputError, one_line
from simulator.questions.checks import From
from simulator.records import asdict
from validate.cli.command import TRUSTED, Given
from validate.compare.comparison import ComparisonOptions, compared
from validate.compare.folder import read_folder
from validate.compare.report import comparison_document, comparison_page, comparison_text
from validate.compare.trace import SCHEMA_VERSION, compare_traces, trace_text
from validate.importing.kineto import read_trace


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


_OURS = ("--trace", "--plot", "--show-options")
_BEYOND = ("--what-if", "--epoch", "--mtbf", "--checkpoint-every", "--checkpoint-time", "--restart-time")


def trace_command(given: Given) -> int:
    """Compare a PyTorch profiler trace with the predicted step."""
    others = given.others
    for name in (*_OURS, *_BEYOND):
        if any(word == name or word.startswith(f"{name}=") for word in others):
            of = "simulate's output" if name in _OURS else "the analysis of a step"
            raise InputError(f"{name}: belongs to {of}; give only the options of the step")
    if not any(word.startswith(("--batch", "--global-batch")) for word in others):
        raise InputError("the step is needed in simulate's words: --topology p3.2xlarge --workload resnet50 --batch 64")
    count = parse_count("steps", given.steps, From(1)) if given.steps is not None else None
    measured = read_trace(given.file)
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "predicted.json"
        found = captured([*others, "--trace", str(drawn), "--quiet"])
        if not drawn.is_file():
            raise InputError("; ".join(found.said) or "simulate draws no trace of that")
        predicted = read_trace(str(drawn))
    compared = compare_traces(measured, predicted, count)
    shown = one_line(given.file, 200)
    document = {"schema_version": SCHEMA_VERSION, "trace": shown, **asdict(compared)}
    given.answer(document, partial(trace_text, compared, shown))
    given.remark(compared.remarks)
    return 0
