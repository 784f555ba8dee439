"""An unnamed file for reads and writes, which disappears when it is closed or its process ends."""

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

Cache = Literal["page cache", "dropped", "direct"]
"""What serves reads: the page cache; the disk, after dropping the pages; or the disk, bypassing the page cache."""

BLOCK = 4 << 20  # bytes per write; the file is a multiple of this


class ScratchFile:
    """A file of up to *size* bytes in *folder*, smaller where writing it takes longer than *longest_s* seconds.

    Raises Unavailable where it cannot be written, leaving nothing behind.
    """

    def __init__(self, folder: Path, size: int, longest_s: float = 1.5) -> None:
        try:
            descriptor, name = tempfile.mkstemp(prefix=".topocast-", dir=folder)
        except OSError as error:
            raise _no_file(error) from error
        self._plain, self._direct = descriptor, -1
        try:
            with suppress(OSError):  # not every file system supports O_DIRECT
                self._direct = os.open(name, os.O_RDWR | getattr(os, "O_DIRECT", 0))
        finally:
            os.unlink(name)
        self.size = 0
        self.block = mmap.mmap(-1, BLOCK)  # page-aligned, as direct access requires
        self.block[:] = os.urandom(BLOCK)  # incompressible for the file system
        began_s = time.monotonic()
        try:
            while self.size + BLOCK <= size and (not self.size or time.monotonic() - began_s < longest_s):
                self.write(self.size, "page cache")
                self.size += BLOCK
                if self.size % (8 * BLOCK) == 0:
                    self.sync()
            self.sync()  # dirty pages cannot be dropped
        except OSError as error:
            self.close()
            raise _no_file(error) from error
        except BaseException:
            self.close()
            raise

    def descriptor(self, cache: Cache) -> int:
        """Return the file descriptor for reads; raises Unavailable where the system lacks this kind of access."""
        if cache == "direct" and (self._direct < 0 or not hasattr(os, "O_DIRECT")):
            raise Unavailable("the file system has no direct access (O_DIRECT)")
        if cache == "dropped" and not hasattr(os, "posix_fadvise"):
            raise Unavailable("the system has no posix_fadvise")
        if not hasattr(os, "preadv"):
            raise Unavailable("the system has no preadv")
        return self._direct if cache == "direct" else self._plain

    def forget(self) -> None:
        """Drop the cached pages."""
        os.posix_fadvise(self._plain, 0, 0, os.POSIX_FADV_DONTNEED)

    def write(self, offset: int, cache: Cache) -> None:
        """Write a block at *offset*; raises Unavailable where the disk is full, OSError on other faults."""
        with _own_fault():
            done = os.pwritev(self.descriptor(cache), [self.block], offset)
            if done != BLOCK:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Wait until all writes are on the disk; raises as :meth:`write`."""
        with _own_fault():
            os.fsync(self._plain)

    def close(self) -> None:
        """Close the file, which frees its space."""
        for descriptor in (self._plain, self._direct):
            if descriptor >= 0:
                os.close(descriptor)
        self._plain = self._direct = -1


def _no_file(error: OSError) -> Unavailable:
    return Unavailable(f"no file to be read could be written: {error.strerror or error}")


@contextmanager
def _own_fault() -> Iterator[None]:
    """Raise Unavailable where space runs out, since a quota may be lower than the disk's free space.

    The space is the file's own problem; the tables may still be written.  If they cannot, the run ends.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_file(error) from error
        raise
