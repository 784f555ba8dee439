"""Files of a run: tables written row by row, so that none is lost, documents, and the lock that lets one run write."""

import csv
import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CERTIFICATE = "certificate.json"
"""The file that says how a certificate was measured: its parts, each with its time and its end."""
RAN_DRY = "the queue ran dry: some of the host's time is in it"
CAPTURED = "captured graph"
_REMARKS = (RAN_DRY, CAPTURED)  # appended to a row's note by the measurement

_WRITTEN = json.loads(Path(__file__).with_name("columns.json").read_text(encoding="utf-8"))
COLUMNS: Mapping[str, tuple[str, ...]] = {
    name: tuple(" ".join((*words, *_WRITTEN["all"])).split()) for name, words in _WRITTEN["tables"].items()
}
"""Columns of each table: of published measurements (docs/scoring.md), and a result's quality (docs/measure.md)."""


def cell_text(value: Any) -> str:
    """Return *value* as a cell: floats with nine significant digits, None as an empty cell."""
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write *document* as a whole and onto the disk; raises OSError, leaving an earlier file unchanged."""
    new = path.with_name(path.name + ".new")
    try:
        with new.open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=1, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


def asked_note(text: str) -> str:
    """Return the part of a note that identifies the case, without remarks added by the measurement."""
    return "; ".join(part for part in text.split("; ") if part not in _REMARKS)


class RowFile:
    """The table at *path* with *columns*, but for a killed run's partial last line; raises ValueError and OSError."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._columns = tuple(columns)
        self._rows: list[dict[str, str]] = []
        self._asked: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, str]]] = {}  # rows by columns and cells
        if not path.exists():
            return
        if not path.is_file():  # a pipe has no end
            raise ValueError(f"{path}: is not a table; name another folder")
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # a run killed while writing leaves a partial row
        if whole != text:
            os.truncate(path, len(whole.encode()))
        lines = list(csv.reader(io.StringIO(whole)))
        if lines and tuple(lines[0]) != self._columns:
            raise ValueError(f"{path}: is a table of other columns; name another folder")
        self._rows = [dict(zip(self._columns, line, strict=False)) for line in lines[1:]]

    def find(self, asked: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return the row with the cells *asked*; None where there is none."""
        names = tuple(asked)
        if names not in self._asked:
            self._asked[names] = {_asked(row, names): row for row in self._rows}
        return self._asked[names].get(tuple(cell_text(value) for value in asked.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append *row* on the disk; raises ValueError for unknown columns, OSError, leaving the file as it was."""
        unknown = set(row) - set(self._columns)
        if unknown:
            raise ValueError(f"{self.path.name} has no column {', '.join(sorted(unknown))}")
        cells = {name: cell_text(row.get(name)) for name in self._columns}
        text = io.StringIO()
        before = self.path.stat().st_size if self.path.exists() else 0
        lines = [cells.values()] if before else [self._columns, cells.values()]
        csv.writer(text, lineterminator="\n").writerows(lines)
        try:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(text.getvalue())
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            if self.path.exists():
                os.truncate(self.path, before)
            raise
        self._rows.append(cells)
        for names, known in self._asked.items():
            known[_asked(cells, names)] = cells


def _asked(row: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(asked_note(row.get(name, "")) if name == "note" else row.get(name, "") for name in names)


_NAME = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock (flock) of *folder* in the body; raises ValueError where another process holds it, and OSError."""
    path = folder / _NAME
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file, 20).decode("ascii", "replace").strip()
            os.close(file)
            who = f" (process {owner})" if owner.isdigit() else ""
            told = f"another run measures into it{who}; wait for it, or name another folder with --out"
            raise ValueError(f"{folder}: {told}") from None
        with suppress(OSError):
            if os.path.samestat(os.fstat(file), path.stat()):
                break
        os.close(file)  # its owner has removed the file meanwhile
    try:
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(file)
