"""The file from which a search resumes (``--resume``): its results so far, as lines of JSON."""

from __future__ import annotations

import hashlib
import json
import zlib
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

from simulator import __version__
from simulator.effects import effect
from simulator.errors import Fault, InputError, one_line
from simulator.search.run import StoredResults
from simulator.search.space import Space
from simulator.topology.load import load_topology
from simulator.user_files import read_user_file
from simulator.workload.network import Network

_MAX_BYTES = 1 << 28
_NO_LINE = "is not a line of a search; --resume names a file of its own"


def kept_in(path: str | None, space: Space, network: Network, stack: ExitStack) -> StoredResults:
    """Return the results in the file *path* for the search of *space*; new ones are appended until *stack* closes.

    *network* is the searched one, at any batch.  A last line cut off by an interrupt is dropped, and its result found
    again; a modified line is refused because of its checksum.

    Raises InputError if the file cannot be read or written, or belongs to another search; the file does not change
    then.
    """
    if path is None:
        return StoredResults()
    file, shown = Path(path), one_line(path)
    effect("writes a file", f"--resume {shown}")
    head = json.dumps({"search": _fingerprint(space, network)}) + "\n"
    try:
        raw = _content(file, shown)
        whole = raw[: raw.rfind(b"\n") + 1]
        first, *lines = whole.decode("utf-8", "replace").splitlines() or [""]
        if not (first == head.rstrip() if whole else head.encode().startswith(raw)):
            other = "is of another search, or of another version; name another file"
            ours = isinstance(_read(first), dict) and "search" in _read(first)
            raise InputError(Fault(other if ours else _NO_LINE, shown, 1, 1))
        found = {}
        for number, line in enumerate(lines, start=2):
            entry = _read(line)
            if not isinstance(entry, list) or len(entry) != 3 or entry[2] != _sum(entry[0], entry[1]):
                raise InputError(Fault(_NO_LINE, shown, number, 1))
            found[str(entry[0])] = entry[1]
        stream = file.open("ab", buffering=0)  # closing it writes nothing more
        stack.callback(stream.close)
        stream.truncate(len(whole))
    except (OSError, ValueError) as error:
        raise InputError(f"--resume {shown}: {getattr(error, 'strerror', None) or 'is no path'}") from None

    def write(text: str) -> None:
        try:
            left = text.encode()
            while left:
                left = left[stream.write(left) :]
        except OSError as error:
            raise InputError(f"--resume {shown}: cannot be written: {error.strerror}") from None

    if not whole:
        write(head)
    return StoredResults(found, lambda key, value: write(json.dumps([key, value, _sum(key, value)]) + "\n"))


def _content(file: Path, shown: str) -> bytes:
    if not file.exists():
        return b""
    try:
        return read_user_file(file, _MAX_BYTES, shown)
    except InputError as error:
        raise InputError(f"--resume {error}") from None


def _read(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _sum(key: object, found: object) -> int:
    """Return the checksum of an entry, which protects its figures against changes."""
    return zlib.crc32(json.dumps([key, found]).encode())


def _fingerprint(space: Space, network: Network) -> str:
    """Return a hash that identifies a search: its question, machine, network, constants and program version.

    Machines and networks count by content, not by file name.
    """
    where = space.question.where
    topology = load_topology(where.topology, n_nodes=where.nodes, fabric=where.fabric)
    data = [file for package in ("constants", "bands") for file in files(f"simulator.{package}").iterdir()]
    constants = [file.read_text(encoding="utf-8") for file in sorted(data, key=str) if file.name.endswith(".json")]
    said = [__version__, repr(space), repr(topology), repr(network), *constants]
    return hashlib.sha256("\0".join(said).encode("utf-8", "backslashreplace")).hexdigest()
