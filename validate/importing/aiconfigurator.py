"""NVIDIA's package aiconfigurator: finding and reading its files of measurements.

Its wheel holds CSV files ``aiconfigurator/systems/data/<device>/<framework>/<version>/<what>_perf.txt`` with times in
milliseconds; for collectives the framework is ``nccl``.  Columns differ between versions, so they are found by name.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.package_data import own_data
from simulator.records import dataclass
from simulator.user_files import open_user_file, read_user_file
from validate.tables.csv_text import MAX_BYTES
from validate.tables.table import read_table

_DEVICES: Mapping[str, tuple[str, str]] = own_data("validate.importing", "formats.yaml")["aiconfigurator"]
MACHINES = {part: machine for part, machine in _DEVICES.values() if machine}
_PATTERN = "*/*/*/*_perf.txt"
_FOLDERS = ("aiconfigurator/systems/data", "systems/data", "data", "")
_MAX_ROWS = 500_000
_STAGES = {"dev": -3, "a": -2, "b": -2, "rc": -1, "post": 1}
_RELEASE = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})*)(?:\.?(dev|a|b|rc|post)(\d{1,9}))?(?:\.?(dev|post)(\d{1,9}))?(?!\d)", re.ASCII
)


def release(version: str) -> tuple[tuple[int, ...], tuple[int, int], tuple[int, int]]:
    """Return a sort key for versions: 1.0 < 1.2rc5 < 1.2 < 1.2.post1; text that is no version comes first."""
    match = _RELEASE.match(version)
    if match is None:
        return (), (0, 0), (0, 0)
    numbers, stage, count, after, more = match.groups()
    pieces = tuple(int(piece) for piece in numbers.split("."))
    return pieces, (_STAGES.get(stage, 0), int(count or 0)), (_STAGES.get(after, 0), int(more or 0))


@dataclass(frozen=True, slots=True)
class SourceTable:
    """One file of measurements, with its device (our part), framework and version."""

    device: str
    framework: str
    version: str
    name: str


Cell = Callable[[str], str]
Number = Callable[[str], int]


class Source:
    """The measurements in the wheel or folder *root*; raises InputError if it is neither or holds none."""

    def __init__(self, root: str) -> None:
        self.shown = one_line(root, 1000)
        needed = "a wheel or an unpacked folder"
        self._zip: zipfile.ZipFile | None = None
        if not Path(root).is_dir():
            try:
                open_user_file(Path(root), self.shown, needed=needed).close()  # refuses what is no file
                self._zip = zipfile.ZipFile(root)
            except zipfile.BadZipFile:
                raise InputError(Fault(f"is not a zip; {needed} is needed", self.shown)) from None
            except (OSError, ValueError, NotImplementedError, OverflowError) as error:
                words = getattr(error, "strerror", None) or one_line(error)
                raise InputError(Fault(f"cannot be read: {words}", self.shown)) from None
        self._paths = next(filter(None, (self._files_in(Path(root), folder) for folder in _FOLDERS)), {})
        if not self._paths:
            raise InputError(Fault(f"holds no file {_PATTERN} of measurements", self.shown))
        self.unknown: Counter[str] = Counter()  # number of tables by folder, for devices without a part
        self._tables: dict[str, list[SourceTable]] = {}
        for name in sorted(self._paths):
            folder, framework, version, file = name.split("/")
            if folder in _DEVICES:
                table = SourceTable(_DEVICES[folder][0], framework, version, name)
                self._tables.setdefault(file.removesuffix("_perf.txt"), []).append(table)
            else:
                self.unknown[folder] += 1

    def _files_in(self, root: Path, folder: str) -> dict[str, str]:
        if self._zip is None:
            return {str(file.relative_to(root / folder)): str(file) for file in (root / folder).glob(_PATTERN)}
        inside = [name for name in self._zip.namelist() if name.startswith(f"{folder}/" if folder else "")]
        found = {str(PurePosixPath(name).relative_to(folder)): name for name in inside if not name.endswith("/")}
        return {short: name for short, name in found.items() if short.count("/") == 3 and short.endswith("_perf.txt")}

    def _read(self, name: str) -> bytes:
        place = f"{self.shown}/{one_line(name)}"
        if self._zip is None:
            return read_user_file(self._paths[name], MAX_BYTES, place)
        try:
            with self._zip.open(self._paths[name]) as member:
                raw = member.read(MAX_BYTES + 1)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            words = getattr(error, "strerror", None) or one_line(error)
            raise InputError(Fault(f"cannot be read: {words}", place)) from None
        if len(raw) > MAX_BYTES:
            raise InputError(Fault(f"is larger than {MAX_BYTES // 1_000_000} MB", place))
        return raw

    @property
    def devices(self) -> list[str]:
        """The parts with measurements."""
        return sorted({table.device for tables in self._tables.values() for table in tables})

    def chosen(self, text: str | None) -> list[str]:
        """Return the parts named by the option *text*, all if None; raises InputError with the nearest name."""
        wanted = self.devices if text is None else [name.strip() for name in text.split(",")]
        for name in wanted:
            if name not in self.devices:
                found = f"'{one_line(name, 60)}' in {self.shown}"
                raise InputError(f"--device: no measurements of {found}; {nearest(name, self.devices)}")
        return sorted(set(wanted))

    def tables(self, what: str) -> list[SourceTable]:
        """Return the tables of *what*, by device and framework, the newest first."""
        found = sorted(self._tables.get(what, ()), key=lambda table: release(table.version), reverse=True)
        return sorted(found, key=lambda table: (table.device, table.framework))

    def newest(self, what: str, device: str) -> list[SourceTable]:
        """Return the newest table of *what* on *device* for each framework."""
        mine = [table for table in self.tables(what) if table.device == device]
        return list({table.framework: table for table in reversed(mine)}.values())[::-1]

    def count(self, table: SourceTable) -> int:
        """Return the number of rows of *table*; raises InputError if it cannot be read."""
        return max(0, sum(1 for line in self._read(table.name).splitlines() if line.strip()) - 1)

    def rows(self, table: SourceTable, needed: Sequence[str]) -> Iterator[tuple[Cell, Number]]:
        """Yield each row as two functions of a column: for its text, empty for a missing column, and for its number.

        Raises InputError if the table cannot be read, a column of *needed* is missing, or a number is not whole.
        """
        place = f"{self.shown}/{one_line(table.name)}"
        found = read_table(self._read(table.name), place, needed, needed, "measurements", _MAX_ROWS)
        for row in found.rows:
            if len(row.fields) != len(found.header):
                message = f"{len(row.fields)} fields where the header has {len(found.header)}"
                raise InputError(Fault(message, place, row.line, 1))
            cell = partial(found.written, row)

            def number(column: str, line: int = row.line, cell: Cell = cell) -> int:
                text = cell(column)
                if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
                    raise InputError(Fault(f"{column} is not a whole number: '{one_line(text, 30)}'", place, line, 1))
                return int(text)

            yield cell, number
