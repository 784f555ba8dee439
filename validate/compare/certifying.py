"""Archives of ``validate.measure --certificate``: what they hold, and a calibration with its errors on other steps."""

import io
import json
import shutil
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from simulator.api.calibrations import Certificate
from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass
from simulator.user_files import read_user_file
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
