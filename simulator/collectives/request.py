"""What a strategy is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from simulator.collectives.communicator import Communicator
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Plan
from simulator.workload.collective import Collective

__all__ = ["MAX_RANKS", "Request", "Strategy", "Unsuitable", "refuse_beyond"]

# By how many flows for each rank a strategy has at once: what ends in some seconds within 500 MB.
MAX_RANKS = {"one": 16_384, "two": 8_192, "many": 4_096}


class Unsuitable(Exception):  # noqa: N818  an answer and no fault
    """The strategy does not fit the machine, the ranks or the collective; the message says why."""


def refuse_beyond(request: Request, most: int) -> None:
    """Raise :class:`Unsuitable` where there are more ranks than the strategy is simulated for."""
    if request.n_ranks > most:
        raise Unsuitable(f"{request.n_ranks:,} ranks are more than it is simulated for (up to {most:,}); nccl does it")


@dataclass(frozen=True, slots=True)
class Request:
    """One collective of a group to plan.

    ``root`` is a rank.  ``size_bytes`` is nccl-tests' size (see :mod:`simulator.workload.collective`).
    ``pairs`` are the (source, target) ranks of a send-recv; empty: each rank to the next.
    ``gpus_per_process`` is how many GPUs one host thread launches for.
    """

    group: Communicator
    collective: Collective
    size_bytes: float
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()
    gpus_per_process: int = 1

    @property
    def machine(self) -> Machine:
        """The machine that the group is on."""
        return self.group.machine

    @property
    def router(self) -> Router:
        """The routes of the machine."""
        return self.group.router

    @property
    def ranks(self) -> tuple[int, ...]:
        """The nodes of the machine that take part, rank 0 first."""
        return self.group.ranks

    @property
    def n_ranks(self) -> int:
        """How many take part."""
        return len(self.group.ranks)

    def by_host(self) -> dict[int, list[int]]:
        """Return the ranks (not nodes) by machine, in order."""
        return self.group.by_host()


class Strategy(Protocol):
    """A way to synchronise.  ``name`` is what the command line takes; ``summary`` one line."""

    name: str
    summary: str

    def plan(self, request: Request) -> Plan:
        """Return the plan for *request*.  Raises Unsuitable where the strategy does not fit."""
        ...
