"""Output files that appear whole or not at all."""

import os
import platform
import re
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from simulator.effects import effect
from simulator.errors import InputError, one_line

_HOST = re.sub(r"[^A-Za-z0-9-]", "", platform.node())[:40] or "host"


class OutputFile:
    """The output file of *option*, which is tested for writing at once and appears only when it is complete.

    Create it before the work, so that an unwritable path is found early.  The content goes to a temporary file beside
    it, which is renamed by :meth:`write`, or by :meth:`finish` after parts written with :meth:`add`.  Leaving the
    ``with`` block before that removes it.  Special files (``/dev/null``) are written directly.  Raises InputError with
    the reason if the path cannot be written.
    """

    def __init__(self, option: str, path: str) -> None:
        self.option = option
        self.shown = one_line(path)
        self._target = Path(os.path.realpath(path))
        self._part: Path | None = None
        if not path:
            raise InputError(f"{option} needs the name of a file")
        if path == "-":
            raise InputError(f"{option} -: names no file; name one, for example {option} ./result")
        effect("writes a file", f"{option} {self.shown}", path)
        try:
            if path.endswith(os.sep) or self._target.is_dir():
                raise InputError(f"{option} {self.shown}: is a folder; name a file")
            if not self._target.parent.is_dir():
                raise InputError(f"{option} {self.shown}: there is no folder '{one_line(os.path.dirname(path))}'")
            if self._target.exists() and not self._target.is_file():
                self._stream: BinaryIO = self._target.open("ab")
                return
            if self._target.exists() and not os.access(self._target, os.W_OK):
                raise PermissionError(13, "Permission denied")
            self._part, self._stream = _new_file(self._target)
        except (OSError, ValueError) as error:
            raise self._refused(error) from None

    def __enter__(self) -> "OutputFile":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._stream.close()
        if self._part is not None:
            self._part.unlink(missing_ok=True)
            self._part = None

    def write(self, content: bytes) -> None:
        """Write *content* and put the file in place; raises InputError."""
        self.add(content)
        self.finish()

    def add(self, content: bytes) -> None:
        """Append *content* to the temporary file; raises InputError."""
        try:
            self._stream.write(content)
        except OSError as error:
            raise self._refused(error) from None

    def finish(self) -> None:
        """Put the complete file in place; raises InputError."""
        try:
            self._stream.close()
            if self._part is None:
                return
            if self._target.exists():
                shutil.copymode(self._target, self._part)
            self._part.replace(self._target)
            self._part = None
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> InputError:
        why = getattr(error, "strerror", None) or error
        return InputError(f"{self.option} {self.shown}: cannot be written: {why}")


def write_output(option: str, path: Path | str, content: bytes) -> None:
    """Write *content* to the file *path* of *option*, whole; raises InputError as :class:`OutputFile` does."""
    with OutputFile(option, str(path)) as output:
        output.write(content)


def _new_file(target: Path) -> tuple[Path, BinaryIO]:
    """Open an empty file of a new name beside *target*; files left by killed processes here are removed."""
    stem = f".{target.name.encode()[:120].decode(errors='ignore')}.{_HOST}."
    for name in os.listdir(target.parent):
        process = name.removeprefix(stem).removesuffix(".part").partition("-")[0]
        if name.startswith(stem) and name.endswith(".part") and process.isascii() and process.isdigit():
            try:
                os.kill(int(process), 0)
            except (ProcessLookupError, OverflowError):
                with suppress(OSError):
                    (target.parent / name).unlink()
            except OSError:
                continue  # another user's process, which is still alive
    for number in count():
        part = target.with_name(f"{stem}{os.getpid()}-{number}.part")
        with suppress(FileExistsError):
            return part, part.open("xb")
    raise AssertionError
