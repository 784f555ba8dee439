"""Host files of DeepSpeed and Open MPI (``worker-1 slots=8``): :func:`read_hosts`."""

from __future__ import annotations

import re

from simulator.errors import Fault, InputError, one_line
from simulator.launch.arguments import Arguments

_MOST_BYTES = 1_000_000
_HOST = re.compile(
    r"(?P<name>[^\s=]{1,255})(?:\s+slots\s*=\s*(?P<slots>\d{1,6}))?(?:\s+max[-_]slots\s*=\s*\d+)?", re.ASCII
)
_NAMES = ("hostfile", "machinefile", "default-hostfile")


def read_hosts(launcher: Arguments, notes: list[str], *more: str) -> dict[str, int] | None:
    """Return the slots of each host in the file that *launcher* names, in order; a host without them has one.

    *more* are names of that argument besides the usual ones.

    None if it names none, or one that is not at hand, which a note says.  Faults of the file are added to those of
    *launcher*.
    """
    path = launcher.text(*_NAMES, *more)
    if path is None:
        return None
    if not launcher.files.has(path):
        notes.append(f"--hostfile {one_line(path, 60)}: is not here; the machines are those that the line tells")
        return None
    try:
        raw = launcher.files.read(path, _MOST_BYTES, needed="a host file", usual="a host file is a few kB")
    except InputError as error:
        launcher.faults += error.faults
        return None
    found: dict[str, int] = {}
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        match = _HOST.fullmatch(text)
        why = ""
        if text and (match is None or match["slots"] == "0"):
            why = f"'{one_line(text, 60)}' is no host; write for example worker-1 slots=8"
        elif match is not None and match["name"] in found:
            why = f"{one_line(match['name'], 60)} is there twice"
        if why:
            launcher.faults.append(Fault(why, path, number, 1))
            return None
        if match is not None:
            found[match["name"]] = int(match["slots"] or 1)
    if not found:
        launcher.faults.append(Fault("names no host; write for example worker-1 slots=8", path, 1, 1))
        return None
    return found
