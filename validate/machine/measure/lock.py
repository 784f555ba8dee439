"""A lock that allows one run at a time in a folder; the system drops it when the process ends in any way."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of *folder* while the body runs.

    Raises ValueError, with the process ID, where another process holds it, and OSError where the lock file cannot be
    created.  The lock is the system's (flock) and not the file itself, so a file left by a killed run does not block.
    """
    path = folder / _NAME
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file, 20).decode("ascii", "replace").strip()
            os.close(file)
            who = f" (process {owner})" if owner.isdigit() else ""
            raise ValueError(
                f"{folder}: another run measures into it{who}; wait for it, or name another folder with --out"
            ) from None
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
