"""A file that is there to be read and written, has no name, and is gone when it is closed or its process ends."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from validate.machine.measure.case import Unavailable

__all__ = ["BLOCK", "Cache", "ScratchFile"]

Cache = Literal["page cache", "dropped", "direct"]
"""What serves reads: the system's pages in memory; the disk, its pages given up before; the disk, past the pages."""

BLOCK = 4 << 20  # bytes of a write; the file is a multiple of it


class ScratchFile:
    """A file of up to *size* bytes in *folder*; less where writing it takes longer than *longest_s*.

    Raises Unavailable where it cannot be written; nothing is left of it then.
    """

    def __init__(self, folder: Path, size: int, longest_s: float = 1.5) -> None:
        try:
            descriptor, name = tempfile.mkstemp(prefix=".topocast-", dir=folder)
        except OSError as error:
            raise _no_file(error) from error
        self._plain, self._direct = descriptor, -1
        try:
            with suppress(OSError):  # not every file system has it
                self._direct = os.open(name, os.O_RDWR | getattr(os, "O_DIRECT", 0))
        finally:
            os.unlink(name)
        self.size = 0
        self.block = mmap.mmap(-1, BLOCK)  # aligned to pages, as direct access asks for
        self.block[:] = os.urandom(BLOCK)  # what a file system cannot compress
        began_s = time.monotonic()
        try:
            while self.size + BLOCK <= size and (not self.size or time.monotonic() - began_s < longest_s):
                self.write(self.size, "page cache")
                self.size += BLOCK
                if self.size % (8 * BLOCK) == 0:
                    self.sync()
            self.sync()  # pages that are not on the disk yet cannot be given up
        except OSError as error:
            self.close()
            raise _no_file(error) from error
        except BaseException:
            self.close()
            raise

    def descriptor(self, cache: Cache) -> int:
        """Return what to read from; raises Unavailable where the system does not have such access."""
        if cache == "direct" and (self._direct < 0 or not hasattr(os, "O_DIRECT")):
            raise Unavailable("the file system has no direct access (O_DIRECT)")
        if cache == "dropped" and not hasattr(os, "posix_fadvise"):
            raise Unavailable("the system has no posix_fadvise")
        if not hasattr(os, "preadv"):
            raise Unavailable("the system has no preadv")
        return self._direct if cache == "direct" else self._plain

    def forget(self, offset: int = 0, length: int = 0) -> None:
        """Give up the pages in memory of *length* bytes from *offset*, all where it is 0."""
        os.posix_fadvise(self._plain, offset, length, os.POSIX_FADV_DONTNEED)

    def write(self, offset: int, cache: Cache) -> None:
        """Write a block at *offset*."""
        with _own_fault():
            done = os.pwritev(self.descriptor(cache), [self.block], offset)
            if done != BLOCK:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        with _own_fault():
            os.fsync(self._plain)

    def close(self) -> None:
        """Give its space back."""
        for descriptor in (self._plain, self._direct):
            if descriptor >= 0:
                os.close(descriptor)
        self._plain = self._direct = -1


def _no_file(error: OSError) -> Unavailable:
    return Unavailable(f"no file to be read could be written: {error.strerror or error}")


@contextmanager
def _own_fault() -> Iterator[None]:
    """Raise Unavailable where there is no room: a quota may be less than the disk has free.

    The file has its space to itself, and the tables may still be written; want of room for these is the end.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_file(error) from error
        raise
