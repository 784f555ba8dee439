"""The groups of cases: what ``--only`` may name, in which order and with what share of a budget."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case

__all__ = ["GROUPS", "Group", "cases_of"]


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


GROUPS: dict[str, Group] = {
    "launch": Group("launch", 3, "what issuing work costs: kernels in a stream, alone, from a captured graph"),
    "ops": Group("operators", 50, "operators by class, size and precision"),
    "memory": Group("memory", 8, "bandwidth and latency by the size of what is touched"),
    "copies": Group("copies", 8, "copies between host and device, and between devices"),
    "overlap": Group("overlap", 3, "copies under way while the device computes"),
    "steps": Group("steps", 25, "whole training steps of networks"),
    "storage": Group("storage", 3, "sequential and random reads of a file"),
    "collectives": Group("collectives", 10, "collectives between the devices of this machine"),
}


def cases_of(name: str, bench: Bench, machine: str) -> Iterator[Case]:
    """Return the cases of group *name*, none of them built yet; may raise Unavailable."""
    module = importlib.import_module(f"validate.machine.measure.cases.{GROUPS[name].module}")
    found: Iterator[Case] = module.cases(bench, machine)
    return found
