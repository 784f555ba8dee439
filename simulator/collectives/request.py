"""The request that a strategy plans, and the protocol of a strategy."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol

from simulator.collectives.communicator import Communicator
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Plan, PlanBuilder
from simulator.records import dataclass, field
from simulator.spelling import mention, spelt
from simulator.topology.parts import GpuPart
from simulator.workload import Collective

# The most ranks that are simulated, by how many flows each rank has at once.  Keeps a run to seconds and 500 MB.
MAX_RANKS = {"one": 16_384, "two": 8_192, "many": 4_096}
MAX_DIRECT_RANKS = 256  # with a flow for each pair


class Unsuitable(Exception):  # noqa: N818  an answer, not an error
    """The strategy does not fit the machine, the ranks or the collective; ``why``, which errors spell, says why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return spelt(self.why)


def refuse_beyond(request: Request, most: int) -> None:
    """Raise :class:`Unsuitable` if *request* has more than *most* ranks."""
    if request.n_ranks > most:
        text = f"{request.n_ranks:,} ranks are more than it is simulated for (up to {most:,})"
        parts = (node.part for node in request.group.unlike())
        runs = not any(isinstance(part, GpuPart) and part.vendor == "other" for part in parts)
        raise Unsuitable(f"{text}; {mention('strategy', 'nccl')} does it" if runs else text)


def refuse_too_many(request: Request) -> None:
    """Raise :class:`Unsuitable` if a flow for each pair of ranks would need too much memory."""
    if request.n_ranks > MAX_DIRECT_RANKS:
        most = f"more than is simulated (up to {MAX_DIRECT_RANKS} ranks)"
        raise Unsuitable(f"a flow between any two of {request.n_ranks} ranks is {most}")


@dataclass(frozen=True, slots=True)
class Request:
    """A collective of a group of ranks, to be planned.

    ``root`` is a rank.  ``size_bytes`` is nccl-tests' size (see :mod:`simulator.workload`).  ``pairs`` are
    the (source, target) ranks of a send-recv; if empty, each rank sends to the next.  ``gpus_per_process`` is the
    number of GPUs for which one host thread launches kernels.
    """

    group: Communicator
    collective: Collective
    size_bytes: float
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()
    gpus_per_process: int = 1

    @property
    def machine(self) -> Machine:
        """The group's machine."""
        return self.group.machine

    @property
    def router(self) -> Router:
        """The machine's router."""
        return self.group.router

    @property
    def ranks(self) -> tuple[int, ...]:
        """The node of each rank, rank 0 first."""
        return self.group.ranks

    @property
    def n_ranks(self) -> int:
        """The number of ranks."""
        return len(self.group.ranks)

    def by_host(self) -> dict[int, list[int]]:
        """Return the ranks (not nodes) of each machine, in order, by host number."""
        return self.group.by_host()


class Strategy(Protocol):
    """A way to run collectives.  ``name`` is its name on the command line, ``summary`` a description of one line."""

    name: str
    summary: str

    def plan(self, request: Request) -> Plan:
        """Return the plan for *request*.  Raises Unsuitable if the strategy does not fit it."""
        ...


@dataclass(frozen=True, slots=True)
class Planned:
    """A strategy of this package: ``write`` adds a request of two ranks or more to a plan.

    It is refused beyond ``most`` ranks (0: no limit) and for collectives that are not in ``forms`` (None: it has all),
    of which ``cannot`` says why, as a pattern.  Strategies of one name are the same.
    """

    name: str
    summary: str
    write: Callable[[PlanBuilder, Request], None] = field(compare=False)
    most: int = 0
    forms: Container[str] | None = field(default=None, compare=False)
    cannot: str = ""

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable if the strategy does not fit *request*."""
        builder = PlanBuilder()
        if request.n_ranks > 1:
            if self.most:
                refuse_beyond(request, self.most)
            if self.forms is not None and request.collective not in self.forms:
                raise Unsuitable(self.cannot.format(request.collective))
            self.write(builder, request)
        return builder.build()
