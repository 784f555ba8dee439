"""One run at a time in a folder: a lock that the system drops when its process ends, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["alone_in"]

_NAME = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of *folder* while the body runs.

    Raises ValueError where another process holds it, with its number; OSError where no file can be made there.  The
    lock is the system's (flock), not the file: one that a killed run left is taken over.
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
        os.close(file)  # its owner removed it in between
    try:
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(file)
