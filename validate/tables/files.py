"""Table files, read whole with a size limit and with clear errors."""

from __future__ import annotations

import os
import sys

from simulator.errors import one_line
from simulator.user_files import read_user_file
from validate.tables.csv_text import MAX_BYTES

STDIN = "-"


def shown_as(file: str) -> str:
    """Return the name of *file* in messages."""
    return "<stdin>" if file == STDIN else one_line(file, 1000)


def read_bytes(file: str) -> bytes:
    """Return the content of *file* (``-``: standard input, cut off just above the size limit of tables).

    Raises InputError with the reason where it cannot be read, and where it is larger than that limit.
    """
    if file == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    return read_user_file(file, MAX_BYTES, needed="a CSV table", usual="score it in parts")


def same_file(file: str, out: str) -> bool:
    """Return whether both paths lead to one file; *out* need not exist, and standard input is never a file."""
    if file == STDIN:
        return False
    try:
        return os.path.samefile(file, out)
    except (OSError, ValueError):
        return os.path.realpath(file) == os.path.realpath(out)
