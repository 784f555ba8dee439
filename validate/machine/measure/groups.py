"""The groups of cases: the names of ``--only``, their order and their shares of a time budget."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case

ASKED = "asked.json"
"""The file that lists the steps a user asked for."""
EXCHANGES = "exchanges.json"
"""The file that lists the exchange strategies a user asked for, with each rank's part."""
SCALING = "scaling.json"
"""The file that describes the step a user asked for over 1, 2, ... n ranks."""


@dataclass(frozen=True, slots=True)
class CaseGroup:
    """Cases of one kind.

    ``module``, in ``cases``, has a function ``cases(bench, machine)`` that yields the cases, ordered so that any first
    part is a representative sample.  It raises Unavailable where the machine has nothing to measure.  ``share`` is the
    group's weight in a time budget.
    """

    module: str
    share: float
    summary: str
    file: str = ""  # file in the measurements folder that the group needs, if any


GROUPS: dict[str, CaseGroup] = {
    "asked": CaseGroup("asked", 25, "the steps that --workload asked for", ASKED),
    "strategies": CaseGroup("strategies", 10, "the exchanges that --strategy asked for, rank by rank", EXCHANGES),
    "scaling": CaseGroup("scaling", 25, "the step that --gpus asked for, over more and more ranks", SCALING),
    "launch": CaseGroup("launch", 3, "what issuing work costs: kernels in a stream, alone, from a captured graph"),
    "ops": CaseGroup("operators", 50, "operators by class, size and precision"),
    "memory": CaseGroup("memory", 8, "bandwidth and latency by the size of what is touched"),
    "copies": CaseGroup("copies", 8, "copies between host and device, and between devices"),
    "overlap": CaseGroup("overlap", 3, "copies under way while the device computes"),
    "steps": CaseGroup("steps", 25, "whole training steps of networks"),
    "storage": CaseGroup("storage", 3, "sequential and random reads of a file"),
    "collectives": CaseGroup("collectives", 10, "collectives between the devices of this machine"),
}


def usual_groups(folder: Path) -> tuple[str, ...]:
    """Return the groups measured into *folder* when the user names none."""
    return tuple(name for name, group in GROUPS.items() if not group.file or (folder / group.file).is_file())


def cases_of(name: str, bench: Bench, machine: str) -> Iterator[Case]:
    """Return the cases of group *name*, not yet built; raises Unavailable where the machine has nothing to measure."""
    module = importlib.import_module(f"validate.machine.measure.cases.{GROUPS[name].module}")
    found: Iterator[Case] = module.cases(bench, machine)
    return found
