"""The command ``validate certify``: what a certificate's archive holds, its calibration, and a page of its worth."""

import io
import json
import math
import shutil
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

import yaml

from reports.page import Block, Page, page_of
from simulator.api.calibrations import Certificate
from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass
from simulator.results import Heading, PlainTable
from simulator.units import format_duration
from simulator.user_files import read_user_file
from validate.cli.calibrate import folder_yaml
from validate.cli.command import Given
from validate.compare import comparison
from validate.compare.calibrating import FolderDevice
from validate.compare.classes import ClassErrors, class_errors
from validate.compare.folder import RECORD, Folder, read_folder
from validate.constants.calibrate import FittedCalibration
from validate.kinds.kind import MeasuredRow, Rows
from validate.machine.measure.certificate import JUDGES, MOST_BYTES, PARTS
from validate.machine.measure.table import CERTIFICATE

_MOST_UNPACKED = 256 << 20
_TOP = "certificate"
FITTED, JUDGED = "fitted", "judged"  # folders of an unpacked archive: what is fitted to, and what judges that
_FACTS = {"device": 80, "driver": 40, "torch": 40}  # of the environment, and their most characters


@dataclass(frozen=True, slots=True)
class CertifiedCalibration:
    """A calibration made of an archive, and what it is worth.

    ``parts`` says how each part ended; ``before`` are the steps and operators that judge it, uncalibrated; ``others``
    the errors of the node's other rows, which calibrate nothing, by table; ``left`` what could not be measured.
    """

    places: comparison.ScoringPlaces
    bench: FolderDevice
    fitted: FittedCalibration
    environment: Mapping[str, Any]
    date: str
    parts: Sequence[Mapping[str, Any]]
    before: tuple[MeasuredRow, ...]
    left: Sequence[Mapping[str, str]]
    others: Mapping[str, ClassErrors]

    def certificate(self, after: Rows) -> Certificate:
        """Return the certificate, by the judging steps *after* calibration."""
        before, found = (class_errors(steps_of(rows)) for rows in (self.before, after))
        limit = self.environment.get("power_limit_W")
        facts = {name: one_line(self.environment.get(name) or "", most) for name, most in _FACTS.items()}
        shares = {"uncalibrated": before.median, "calibrated": found.median, "in_band": found.in_band}
        return Certificate(
            date=self.date,
            **facts,
            power_limit_W=float(limit) if isinstance(limit, int | float) else None,
            steps=found.scored,
            **{name: None if share is None else round(share, 4) for name, share in shares.items()},
        )


def unpack(archive: str, into: Path) -> Mapping[str, Any]:
    """Unpack *archive* into ``FITTED`` and ``JUDGED`` of *into*; return its record, ``left`` the cases not measured."""
    shown, held = one_line(archive, 1000), dict[str, bytes]()
    raw = io.BytesIO(read_user_file(Path(archive), MOST_BYTES + 1, shown))
    try:
        with tarfile.open(fileobj=raw, mode="r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if not member.isfile() or path.parts[:1] != (_TOP,) or ".." in path.parts:
                    continue
                if sum(map(len, held.values())) + member.size > _MOST_UNPACKED:
                    raise InputError(Fault(f"unpacks to more than {_MOST_UNPACKED >> 20} MiB", shown))
                file = tar.extractfile(member)
                held[str(PurePosixPath(*path.parts[1:]))] = file.read() if file is not None else b""
        record = json.loads(held[CERTIFICATE])
        if not all(isinstance(part["name"], str) for part in record["parts"]):
            raise ValueError("a part without a name")
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        raise InputError(Fault("is not an archive of python -m validate.measure --certificate", shown)) from None
    for part in PARTS:
        folder = into / (JUDGED if part.name in JUDGES else FITTED)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in held.items():
            place, _, own = name.partition("/")
            first = own == RECORD and not (folder / RECORD).exists()  # the machine's own
            if place == part.name and "/" not in own and (own.endswith(".csv") or first):
                (folder / own).write_bytes(content)
    if not (into / JUDGED / RECORD).exists() and (into / FITTED / RECORD).exists():
        shutil.copyfile(into / FITTED / RECORD, into / JUDGED / RECORD)
    left: list[Mapping[str, str]] = []
    for name, content in held.items():
        if name.endswith(f"/{RECORD}"):
            with suppress(ValueError, AttributeError):
                left += [row for row in json.loads(content).get("left", ()) if isinstance(row, dict)]
    return dict(record) | {"left": left}


def certify(folder: Path, record: Mapping[str, Any], asked: comparison.ComparisonOptions) -> CertifiedCalibration:
    """Return the calibration of what *folder* holds unpacked; raises InputError as :func:`fit_folder` does."""
    fitting = read_folder(str(folder / FITTED))
    places = comparison.find_places(fitting, asked.topology, asked.devices)
    bench = FolderDevice(places.part, comparison.scoring_at(places).names)
    operators_only = {name: table for name, table in fitting.tables.items() if name != "training.csv"}
    fitted, rows = comparison.fit_folder(bench, Folder(fitting.path, fitting.record, operators_only), asked)
    others = {
        table: class_errors(mine)
        for table in sorted({row.table for row in rows})
        if table != "ops.csv" and any(mine := [row for row in rows if row.table == table and row.counts])
    }
    date = one_line(record.get("began") or fitting.record.get("date") or "", 40)[:10]
    told = date, record["parts"], tuple(judged_rows(folder, places, fitted.rows)), record["left"], others
    return CertifiedCalibration(places, bench, fitted, fitting.environment, *told)


def judged_rows(
    folder: Path, places: comparison.ScoringPlaces, fitted: Rows, calibration: str | None = None
) -> list[MeasuredRow]:
    """Return the judging steps and operators predicted by *calibration*, but operators that *fitted* ask."""
    if not any((folder / JUDGED / name).is_file() for name in ("training.csv", "ops.csv")):
        return []
    known = {row.digest for row in fitted}
    rows = comparison.compare_folder(read_folder(str(folder / JUDGED)), comparison.scoring_at(places, calibration))
    return [row for row in rows if row.kind == "training" or (row.kind == "operators" and row.digest not in known)]


def steps_of(rows: Rows) -> list[MeasuredRow]:
    """Return the steps among the judging *rows*."""
    return [row for row in rows if row.kind == "training"]


_MOST_REASONS = 12


def certify_command(given: Given) -> None:
    """Make a calibration of a certificate, and judge it on steps that nothing was fitted to."""
    archive, out, report = given.archive, given.out, given.report
    with given.opened("out") as calibration, given.opened("report") as page, tempfile.TemporaryDirectory() as held:
        assert calibration is not None
        assert page is not None
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
        yield f"{table}: calibrates nothing; {each.scored} rows, median error {_percent(each.median)}"
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
                rows.append((f"{each.scored} {name}, {how}", _percent(each.median), _percent(each.in_band)))
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
        lines.append((row.name, measured, *shown, _percent(median(memory) if memory else None)))
    yield PlainTable(
        ("step", "measured", "uncalibrated", "calibrated", "memory"), lines, (False, True, True, True, True)
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
