"""The command ``validate certify``: a calibration of a certificate's archive, and a page of what it is worth."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated

from simulator.api.calibrations import Certificate
from simulator.errors import one_line
from simulator.units import format_duration
from validate.cli.calibrate import folder_yaml, with_certificate
from validate.cli.command import Quiet, Text, command_named, positional, value
from validate.cli.words import opened, print_remarks
from validate.compare.certifying import CertifiedCalibration, certify, judged_rows, unpack
from validate.compare.classes import class_errors
from validate.compare.rows import ComparedRow
from validate.machine.measure.certificate import PARTS

_MOST_REASONS = 12


@command_named("certify")
def certify_command(
    archive: Annotated[str, positional("CERT.tar.gz", "Archive of python -m validate.measure --certificate.")],
    topology: Annotated[Text, value("FILE", "The measured machine.  [default: that of its GPUs, if built in]")] = None,
    device: Annotated[Text, value("NAME=PART", "Which part a device is, if its name does not say so.")] = None,
    out: Annotated[str, value("FILE", "Write the calibration to FILE.")] = "mine.calibration.yaml",
    page: Annotated[str, value("FILE", "Write what it is worth to FILE, as Markdown.")] = "mine.certificate.md",
    quiet: Quiet = False,
) -> None:
    """Make a calibration of a certificate, and judge it on steps that nothing was fitted to.

    The calibration is for simulate --calibration, of the measured machine and of clusters of such nodes: exchanges
    between nodes stay uncalibrated.  docs/first-gpu-run.md explains it.
    """
    with opened(out) as calibration, opened(page, "--page") as paper, tempfile.TemporaryDirectory() as held:
        assert calibration is not None
        assert paper is not None
        folder = Path(held)
        found = certify(folder, unpack(archive, folder), topology, (device,) if device else ())
        part = found.places.part
        text = folder_yaml(part, Path(archive).name, found.bench, found.fitted)
        made = folder / "calibration.yaml"
        made.write_text(text, encoding="utf-8")
        after = judged_rows(folder, found.places, str(made))
        certificate = found.certificate(after)
        calibration.write(with_certificate(text, certificate).encode())
        paper.write("\n".join(_page(found, after, certificate, part)).encode())
    print_remarks([f"{certificate.words(part)}; wrote {one_line(out)} and {one_line(page)}"], quiet=quiet)


def _page(
    found: CertifiedCalibration, after: Sequence[ComparedRow], certificate: Certificate, part: str
) -> Iterator[str]:
    """Yield the lines of the page."""
    facts = found.environment
    yield f"# {part}: {certificate.words(part)}"
    yield ""
    yield f"Measured on {certificate.date}: {certificate.device}, driver {certificate.driver or 'not said'}, torch "
    yield f"{certificate.torch or 'not said'}, CUDA {one_line(facts.get('cuda') or 'not said', 20)}, power limit "
    limit = certificate.power_limit_W
    yield f"{'not said' if limit is None else f'{limit:g} W'}."
    yield ""
    yield "It ends when one of these changes: driver, torch, CUDA, power limit. Measure again, and compare both."
    yield ""
    yield "## Steps that nothing was fitted to"
    yield ""
    if not certificate.steps:
        yield "None was measured, so this is a calibration without a judge."
    else:
        yield "| | median error | within the 80 % band |"
        yield "|---|--:|--:|"
        for name, rows in (("uncalibrated", found.before), ("calibrated", after)):
            yield f"| {name} | {_percent(class_errors(rows).median)} | {_percent(class_errors(rows).in_band)} |"
        yield ""
        yield "| step | measured | uncalibrated | calibrated | memory |"
        yield "|---|--:|--:|--:|--:|"
        for bare, row in zip(found.before, after, strict=True):
            yield _step_line(bare, row)
    yield ""
    yield "## Fitted to"
    yield ""
    kinds = Counter(row.cells.get("op", "") for row in found.fitted.rows)
    said = [f"{count} {op}" for op, count in sorted(kinds.items())]
    said += [f"{found.fitted.launches} constants of the host"] if found.fitted.launches else []
    said += [f"{found.fitted.clocks} factors of the board's power"] if found.fitted.clocks else []
    yield f"{', '.join(said) or 'nothing'}."
    yield ""
    yield "## Not covered"
    yield ""
    kept = found.fitted.calibration.by_data_sheet
    yield f"- kernels that keep the data sheet: {', '.join(kept) or 'none'}"
    for table, errors in found.others.items():
        yield f"- {table}: calibrates nothing; {errors.scored} rows, median error {_percent(errors.median)}"
    yield "- exchanges between nodes, which no node shows by itself"
    for name, end in ((part.name, _end_of(found, part.name)) for part in PARTS):
        if end != "done":
            yield f"- {name}: {end}"
    reasons = Counter((one_line(row.get("group"), 20), one_line(row.get("reason"), 160)) for row in found.left)
    for (group, reason), count in reasons.most_common(_MOST_REASONS):
        yield f"- {group}: {count} x {reason}"
    yield ""


def _end_of(found: CertifiedCalibration, name: str) -> str:
    return next(
        (one_line(row.get("end") or "not ended", 160) for row in found.parts if row["name"] == name), "not begun"
    )


def _step_line(bare: ComparedRow, row: ComparedRow) -> str:
    memory = [abs(figure.error) for figure in row.memory if figure.error is not None]
    measured = "-" if row.measured_s is None else format_duration(row.measured_s, 3)
    errors = [f"{100 * each.error:+.1f} %" if each.counts else one_line(each.skipped, 60) for each in (bare, row)]
    return f"| {row.name} | {measured} | {' | '.join(errors)} | {_percent(median(memory) if memory else None)} |"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
