"""What a strategy is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Plan
from simulator.workload.collective import Collective

__all__ = ["Request", "Strategy", "Unsuitable"]


class Unsuitable(Exception):  # noqa: N818  an answer and no fault
    """The strategy does not fit the machine, the ranks or the collective; the message says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """One collective to plan.

    ``ranks`` are GPU nodes of the machine, rank 0 first; ``root`` is a rank.  ``size_bytes``
    is nccl-tests' size (see :mod:`simulator.workload.collective`).  ``pairs`` are the
    (source, target) ranks of a send-recv; empty: each rank to the next.  ``gpus_per_process``
    is how many GPUs one host thread launches for.
    """

    machine: Machine
    router: Router
    ranks: tuple[int, ...]
    collective: Collective
    size_bytes: float
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()
    gpus_per_process: int = 1

    @property
    def n_ranks(self) -> int:
        """How many GPUs take part."""
        return len(self.ranks)

    def by_host(self) -> dict[int, list[int]]:
        """Return the ranks (not nodes) by machine, in order."""
        hosts: dict[int, list[int]] = {}
        for rank, node in enumerate(self.ranks):
            hosts.setdefault(self.machine.nodes[node].host, []).append(rank)
        return hosts


class Strategy(Protocol):
    """A way to synchronise.  ``name`` is what the command line takes; ``summary`` one line."""

    name: str
    summary: str

    def plan(self, request: Request) -> Plan:
        """Return the plan for *request*.

        Raises
        ------
        Unsuitable
            Where the strategy does not fit.

        """
        ...
