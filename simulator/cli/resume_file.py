"""What a search has found so far, as lines of JSON in a file that it can go on from (``--resume``)."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from simulator import __version__
from simulator.errors import Fault, InputError, one_line
from simulator.search.run import Kept
from simulator.search.space import Space

__all__ = ["kept_in"]


def kept_in(path: str | None, space: Space, stack: ExitStack) -> Kept:
    """Return what the file *path* keeps of the search of *space*; what is found is added to it until *stack* is left.

    Raises InputError where it cannot be read or written, or is of another search.
    """
    if path is None:
        return Kept()
    of, shown, found = _fingerprint(space), one_line(path), {}
    try:
        text = Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a line that was cut off where a run was ended is found again
        for number, line in enumerate(whole.splitlines(), start=1):
            entry = _entry(line)
            if entry is None or (number == 1) == ("key" in entry):
                raise InputError(Fault("is not a line of a search; --resume names a file of its own", shown, number, 1))
            if number == 1 and entry.get("search") != of:
                raise InputError(Fault("is of another search, or of another version; name another file", shown, 1, 1))
            if number > 1:
                found[str(entry["key"])] = entry["found"]
        stream = Path(path).open("r+" if text else "w", encoding="utf-8")  # noqa: SIM115  closed with the stack
        stack.callback(stream.close)
        stream.seek(len(whole.encode()))
        stream.truncate()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is no UTF-8 text"
        raise InputError(f"--resume {shown}: {why}") from None

    def write(entry: dict[str, Any]) -> None:
        stream.write(json.dumps(entry) + "\n")
        stream.flush()

    if not whole:
        write({"search": of})
    return Kept(found, lambda key, value: write({"key": key, "found": value}))


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and ("search" in entry or {"key", "found"} <= entry.keys()) else None


def _fingerprint(space: Space) -> str:
    """Return what tells searches apart: all that is asked, files that it names, and the program's version."""
    question = space.question
    files = [Path(name) for name in (question.where.topology, question.workload)]
    contents = [file.read_bytes() if file.is_file() else b"" for file in files]
    return hashlib.sha256(b"\0".join([__version__.encode(), repr(space).encode(), *contents])).hexdigest()
