"""A program on a machine: :class:`ProgramQuestion`."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.questions.where import Where

__all__ = ["ProgramQuestion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramQuestion:
    """How long the program in the file ``workload`` takes, or that is written in ``text``, and when each part happens.

    ``device`` is where it runs what names no device: else the machine's first GPU, or its CPUs.  ``threads`` are a
    CPU's.  ``compiled`` and ``captured``: all its networks are, whatever the file says of each.
    """

    where: Where
    workload: str
    text: str = ""
    device: str | None = None
    threads: int | None = None
    compiled: bool = False
    captured: bool = False
