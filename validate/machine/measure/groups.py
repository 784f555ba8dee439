"""The groups of cases: what ``--only`` may name, in which order and with what share of a budget."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case

__all__ = ["ASKED", "GROUPS", "Group", "cases_of", "usual_groups"]


ASKED = "asked.json"
"""The file that says which steps a user asked for."""


@dataclass(frozen=True, slots=True)
class Group:
    """Cases of one kind.

    ``module``, in ``cases``, has a function ``cases(bench, machine)`` that yields them, the most telling first: any
    beginning of them is a fair sample; it raises Unavailable where the machine has nothing to measure.
    ``share`` is its part of a budget, relative to those of the others.
    """

    module: str
    share: float
    summary: str
    file: str = ""  # in the folder of the measurements, without which there is none of them


GROUPS: dict[str, Group] = {
    "asked": Group("asked", 25, "the steps that --workload asked for", ASKED),
    "launch": Group("launch", 3, "what issuing work costs: kernels in a stream, alone, from a captured graph"),
    "ops": Group("operators", 50, "operators by class, size and precision"),
    "memory": Group("memory", 8, "bandwidth and latency by the size of what is touched"),
    "copies": Group("copies", 8, "copies between host and device, and between devices"),
    "overlap": Group("overlap", 3, "copies under way while the device computes"),
    "steps": Group("steps", 25, "whole training steps of networks"),
    "storage": Group("storage", 3, "sequential and random reads of a file"),
    "collectives": Group("collectives", 10, "collectives between the devices of this machine"),
}


def usual_groups(folder: Path) -> tuple[str, ...]:
    """Return the groups that are measured into *folder* where none is named."""
    return tuple(name for name, group in GROUPS.items() if not group.file or (folder / group.file).is_file())


def cases_of(name: str, bench: Bench, machine: str) -> Iterator[Case]:
    """Return the cases of group *name*, none of them built yet; may raise Unavailable."""
    module = importlib.import_module(f"validate.machine.measure.cases.{GROUPS[name].module}")
    found: Iterator[Case] = module.cases(bench, machine)
    return found
