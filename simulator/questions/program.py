"""A program on a machine: :class:`ProgramQuestion`."""

from __future__ import annotations

from typing import ClassVar, Literal

from simulator.questions.where import Where
from simulator.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramQuestion:
    """The time of the program in the file ``workload``, or in ``text``, and the timeline of its parts.

    ``device`` runs everything that names no device; by default the machine's first GPU, or its CPUs.  ``threads`` are a
    CPU's.  ``compiled`` and ``captured`` apply to all its networks, whatever the file says.
    ``trust_code``: the file may run code (``run: torch:...``).
    """

    topic: ClassVar[Literal["program"]] = "program"

    where: Where
    workload: str
    text: str = ""
    device: str | None = None
    threads: int | None = None
    compiled: bool = False
    captured: bool = False
    trust_code: bool = False
