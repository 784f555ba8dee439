"""Table files, read whole with a size limit and with clear errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from simulator.errors import Fault, InputError, one_line
from validate.tables.csv_text import MAX_BYTES

__all__ = ["STDIN", "read_bytes", "same_file", "shown_as"]

STDIN = "-"


def shown_as(file: str) -> str:
    """Return the name of *file* in messages."""
    return "<stdin>" if file == STDIN else one_line(file, 1000)


def read_bytes(file: str) -> bytes:
    """Return the content of *file* (``-``: standard input), cut off just above the size limit of tables.

    Raises InputError with the reason where it cannot be read.
    """
    if file == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        if Path(file).is_dir():
            raise InputError(Fault("is a folder; a CSV table is needed", one_line(file)))
        with Path(file).open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or one_line(error)
        raise InputError(Fault(f"cannot be read: {words}", one_line(file))) from None


def same_file(file: str, out: str) -> bool:
    """Return whether both paths lead to one file; *out* need not exist, and standard input is never a file."""
    if file == STDIN:
        return False
    try:
        return os.path.samefile(file, out)
    except (OSError, ValueError):
        return os.path.realpath(file) == os.path.realpath(out)
