"""Every fault that a user can meet, and how it is worded.

::

    ToposimError
    ├── InputError           what the user wrote cannot be used: exit status 2
    │   └── carries one or more Fault, each with its place
    ├── SimulationError      the model could not be run to its end: exit status 1
    └── MissingDependency    an optional library is needed and absent: exit status 4

A ``Fault`` is one line: ``file:line:column: what was found, what is allowed``.  All
faults of one input are collected before anything is raised.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "Fault",
    "InputError",
    "MissingDependency",
    "SimulationError",
    "ToposimError",
    "nearest",
    "one_line",
]


def one_line(text: object, limit: int = 120) -> str:
    """Return *text* without line breaks or control characters, cut to *limit* characters."""
    flat = "".join(c if c.isprintable() else " " for c in str(text))
    flat = " ".join(flat.split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def nearest(found: str, allowed: Iterable[str], listed: int = 12) -> str:
    """Say what would have been right in place of *found*.

    Returns ``did you mean 'x'?`` where a name is close, otherwise the allowed names (at
    most *listed* of them), otherwise an empty string.
    """
    names = sorted(set(allowed))
    lowered = {name.lower(): name for name in names}
    wanted = found.lower()
    close = difflib.get_close_matches(wanted, list(lowered), n=8, cutoff=0.6)
    if close:
        # What goes on after all that was written comes first: h200-sxm and not b200 for h200.  Of equally close
        # names the one that begins alike: cpu0 and not gpu1 for cpu1.
        def likeness(name: str) -> tuple[bool, float, int]:
            ratio = difflib.SequenceMatcher(None, name, wanted).ratio()
            alike = sum(name[: i + 1] == wanted[: i + 1] for i in range(len(name)))
            return name.startswith(wanted), round(ratio, 6), alike

        return f"did you mean '{lowered[max(close, key=likeness)]}'?"
    if not names:
        return ""
    shown = ", ".join(names[:listed])
    more = f", ... ({len(names)} in all)" if len(names) > listed else ""
    return f"allowed: {shown}{more}"


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake and its place.  Lines and columns count from 1; 0 means not known."""

    message: str
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = one_line(self.file)
        if self.line:
            place += f":{self.line}:{self.column}"
        return f"{place}: {self.message}" if place else self.message


class ToposimError(Exception):
    """Root of all errors that this project raises on purpose."""

    exit_status = 1


class InputError(ToposimError):
    """The user's input holds one or more faults."""

    exit_status = 2

    def __init__(self, faults: Sequence[Fault] | Fault | str) -> None:
        if isinstance(faults, str):
            faults = Fault(faults)
        if isinstance(faults, Fault):
            faults = [faults]
        self.faults: tuple[Fault, ...] = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class SimulationError(ToposimError):
    """The engine found a state that it cannot continue from."""


class MissingDependency(ToposimError):  # noqa: N818  the name says the fault
    """An optional library is needed for what was asked."""

    exit_status = 4
