"""The command ``validate certify``: a calibration of a certificate's archive, and a page of what it is worth."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import yaml

from reports.page import Block, Page, page_of
from simulator.api.calibrations import Certificate
from simulator.console.files import OutputFile
from simulator.errors import one_line
from simulator.results import Heading, PlainTable
from simulator.units import format_duration
from validate.cli.calibrate import folder_yaml
from validate.cli.command import Given
from validate.compare import comparison
from validate.compare.certifying import CertifiedCalibration, certify, judged_rows, steps_of, unpack
from validate.compare.classes import class_errors
from validate.kinds.kind import Rows
from validate.machine.measure.certificate import PARTS
from validate.tables.statistics import percent_text

_MOST_REASONS = 12


def certify_command(given: Given) -> None:
    """Make a calibration of a certificate, and judge it on steps that nothing was fitted to."""
    archive, out, report = given.archive, given.out, given.report
    with OutputFile("--out", out) as calibration, OutputFile("--report", report) as page, TemporaryDirectory() as held:
        folder = Path(held)
        asked = comparison.ComparisonOptions(given.topology, (given.device,) if given.device else ())
        found = certify(folder, unpack(archive, folder), asked)
        part = found.places.part
        text = folder_yaml(part, Path(archive).name, found.bench, found.fitted)
        made = folder / "calibration.yaml"
        made.write_text(text, encoding="utf-8")
        after = judged_rows(folder, found.places, found.fitted.rows, str(made))
        certificate = found.certificate(after)
        facts = {name: value for name, value in certificate.model_dump().items() if value not in ("", None)}
        said = yaml.safe_dump({"certificate": facts}, sort_keys=False, default_flow_style=None, width=math.inf)
        calibration.write((text + "".join(f"    {line}\n" for line in said.splitlines())).encode())
        blocks = list(_blocks(found, after, certificate))
        again = given.again("certify", archive, options="topology device out report")
        page.write(page_of(Page(blocks, again)).encode())
    given.remark([f"{certificate.words(part)}; wrote {one_line(out)} and {one_line(report)}"])


def _blocks(found: CertifiedCalibration, after: Rows, certificate: Certificate) -> Iterator[Block]:
    facts, limit, part = found.environment, certificate.power_limit_W, found.places.part
    yield f"{part}: {certificate.words(part)}"
    software = {"driver": certificate.driver, "torch": certificate.torch, "CUDA": one_line(facts.get("cuda") or "", 20)}
    said = [f"{name} {version or 'not said'}" for name, version in software.items()]
    said.append(f"power limit {'not said' if limit is None else f'{limit:g} W'}")
    yield f"measured on {certificate.date}: {', '.join([certificate.device, *said])}"
    yield "It ends when one of these changes: driver, torch, CUDA, power limit. Measure again, and compare both."
    yield from _judged(found.before, after)
    yield Heading("Fitted to")
    kinds = Counter(row.labels.get("op", "") for row in found.fitted.rows)
    said = [f"{count} {op}" for op, count in sorted(kinds.items())]
    said += [f"{found.fitted.launches} constants of the host"] if found.fitted.launches else []
    said += [f"{found.fitted.clocks} factors of the board's power"] if found.fitted.clocks else []
    yield f"{', '.join(said) or 'nothing'}."
    yield Heading("Not covered")
    yield f"kernels that keep the data sheet: {', '.join(found.fitted.calibration.by_data_sheet) or 'none'}"
    for table, each in found.others.items():
        yield f"{table}: calibrates nothing; {each.scored} rows, median error {percent_text(each.median)}"
    yield "exchanges between nodes, which no node shows by itself"
    ends = {row["name"]: one_line(row.get("end") or "not ended", 160) for row in reversed(found.parts)}
    yield from (f"{part.name}: {end}" for part in PARTS if (end := ends.get(part.name, "not begun")) != "done")
    reasons = Counter((one_line(row.get("group"), 20), one_line(row.get("reason"), 160)) for row in found.left)
    yield from (f"{group}: {count} x {reason}" for (group, reason), count in reasons.most_common(_MOST_REASONS))


def _judged(before: Rows, after: Rows) -> Iterator[Block]:
    yield Heading("Steps and operators that nothing was fitted to")
    steps, rows = steps_of(after), []
    for kind in ("training", "operators"):
        for how, judging in (("uncalibrated", before), ("calibrated", after)):
            mine = [row for row in judging if row.kind == kind]
            if mine:
                each = class_errors(mine)
                name = "steps" if kind == "training" else "operators"
                rows.append((f"{each.scored} {name}, {how}", percent_text(each.median), percent_text(each.in_band)))
    if rows:
        yield PlainTable(("", "median error", "within the 80 % band"), rows, (False, True, True))
    if not steps:
        yield "No step was measured, so this is a calibration without a judge of steps."
        return
    lines = []
    for bare, row in zip(steps_of(before), steps, strict=True):
        memory = [abs(figure.error) for figure in row.memory if figure.error is not None]
        measured = "-" if row.measured_s is None else format_duration(row.measured_s, 3)
        shown = (
            one_line(each.skipped, 60) if each.error is None or each.skipped else f"{100 * each.error:+.1f} %"
            for each in (bare, row)
        )
        lines.append((row.name, measured, *shown, percent_text(median(memory) if memory else None)))
    heads = ("step", "measured", "uncalibrated", "calibrated", "memory")
    yield PlainTable(heads, lines, (False, True, True, True, True))
