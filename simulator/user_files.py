"""Files that users name, opened safely: folders, devices and named pipes are refused before they are opened."""

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from simulator.errors import Fault, InputError, one_line

_PIECE_BYTES = 1 << 20
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_KINDS |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")


def open_user_file(path: str | Path, shown: str | None = None, *, needed: str = "a file") -> BufferedReader:
    """Open *path*, *shown* in messages, for reading; raises InputError if it cannot be read or is not *needed*."""
    name = one_line(path, 1000) if shown is None else shown
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
        of_shell = kind == stat.S_IFIFO and os.path.basename(os.path.realpath(path)).startswith("pipe:[")
        if kind in _KINDS and not of_shell:
            raise InputError(Fault(f"is {_KINDS[kind]}; {needed} is needed", name))
        flags = os.O_RDONLY | (0 if of_shell else os.O_NONBLOCK)  # some files of /proc wait for news
        stream = os.fdopen(os.open(path, flags), "rb")
        if not of_shell and os.fstat(stream.fileno()).st_size == 0 and stream.read(1) is None:
            stream.close()
            raise InputError(Fault(f"waits for news; {needed} is needed", name))
        if not of_shell:
            stream.seek(0)
        return stream
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or "is not a path"
        raise InputError(Fault(f"cannot be read: {words}", name)) from None


def read_user_file(
    path: str | Path, most: int, shown: str | None = None, *, needed: str = "a file", usual: str = ""
) -> bytes:
    """Return the at most *most* bytes of *path*, *usual* as the refusal says; raises as :func:`open_user_file`."""
    name = one_line(path, 1000) if shown is None else shown
    with open_user_file(path, name, needed=needed) as stream:
        try:
            raw = b"".join(_pieces(stream, most + 1))
            if stream.read(1) is None:  # it had news, and waits for more
                raise InputError(Fault(f"waits for news; {needed} is needed", name))
        except OSError as error:
            raise InputError(Fault(f"cannot be read: {error.strerror or error}", name)) from None
    if len(raw) > most:
        raise InputError(Fault(f"is larger than {most // 1_000_000} MB{usual and f'; {usual}'}", name, 1, 1))
    return raw


def _pieces(stream: BufferedReader, most: int) -> Iterator[bytes]:
    while most > 0 and (piece := stream.read(min(most, _PIECE_BYTES))):
        most -= len(piece)
        yield piece
