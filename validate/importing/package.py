"""The files of a published package: a wheel (a zip archive), or an unpacked one."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from simulator.errors import Fault, InputError, one_line
from simulator.user_files import open_user_file, read_user_file
from validate.tables.csv_text import MAX_BYTES


class Package:
    """The files in the wheel or folder *root* that match *pattern* (:meth:`pathlib.PurePath.match`).

    They are taken from the first of *folders* with any match, at the depth of the pattern; ``names`` are their paths
    relative to that folder.

    Raises InputError if *root* cannot be read, is neither wheel nor folder, or holds no such file.
    """

    def __init__(self, root: str, folders: Iterable[str], pattern: str) -> None:
        self.shown = one_line(root, 1000)
        self._zip: zipfile.ZipFile | None = None
        self._paths: dict[str, str] = {}
        path = Path(root)
        if path.is_dir():
            names = None
        else:
            self._zip = self._opened(path)
            names = [name for name in self._zip.namelist() if not name.endswith("/")]
        depth = len(PurePosixPath(pattern).parts)
        for folder in folders:
            if names is None:
                found = {str(file.relative_to(path / folder)): str(file) for file in (path / folder).glob(pattern)}
            else:
                inside = [PurePosixPath(name) for name in names if name.startswith(f"{folder}/" if folder else "")]
                relative = {str(name.relative_to(folder)): str(name) for name in inside}
                found = {
                    short: name
                    for short, name in relative.items()
                    if len(PurePosixPath(short).parts) == depth and PurePosixPath(short).match(pattern)
                }
            if found:
                self._paths = found
                break
        if not self._paths:
            raise InputError(Fault(f"holds no file {pattern} of measurements", self.shown))
        self.names = sorted(self._paths)

    def _opened(self, path: Path) -> zipfile.ZipFile:
        needed = "a wheel or an unpacked folder"
        try:
            open_user_file(path, self.shown, needed=needed).close()  # refuses what is no file
            return zipfile.ZipFile(path)
        except zipfile.BadZipFile:
            raise InputError(Fault(f"is not a zip; {needed} is needed", self.shown)) from None
        except (OSError, ValueError, NotImplementedError, OverflowError) as error:
            words = getattr(error, "strerror", None) or one_line(error)
            raise InputError(Fault(f"cannot be read: {words}", self.shown)) from None

    def place(self, name: str) -> str:
        """Return the path of the file *name* for messages."""
        return f"{self.shown}/{one_line(name)}"

    def read(self, name: str) -> bytes:
        """Return the content of the file *name*; raises InputError if it cannot be read or is too large."""
        if self._zip is None:
            return read_user_file(self._paths[name], MAX_BYTES, self.place(name))
        try:
            with self._zip.open(self._paths[name]) as member:
                raw = member.read(MAX_BYTES + 1)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            words = getattr(error, "strerror", None) or one_line(error)
            raise InputError(Fault(f"cannot be read: {words}", self.place(name))) from None
        if len(raw) > MAX_BYTES:
            raise InputError(Fault(f"is larger than {MAX_BYTES // 1_000_000} MB", self.place(name)))
        return raw
