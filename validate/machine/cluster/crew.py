"""The controller's side of the workers: start them in their namespaces, query them together, always end them."""

from __future__ import annotations

from functools import partial
from typing import Any

from simulator.errors import TopocastError, one_line
from validate.machine.cluster.commands import RunNames

_START_S = 180.0


class WorkerFailed(TopocastError):  # noqa: N818  the name says the fault
    """A worker has exited, reported an error, or not answered in time."""


class HostWorkers:
    """One worker on each of *n_hosts* hosts, as a context manager.

    ``versions`` holds what worker 0 reports of its software.  Entering raises WorkerFailed where one does not start.
    """

    def __init__(self, names: RunNames, n_hosts: int, node_counts: list[int]) -> None:
        self.versions: dict[str, str] = {}
        self._names = names
        self._n_hosts = n_hosts
        self._node_counts = node_counts
        self._ranks: Any = None

    def __enter__(self) -> HostWorkers:
        from validate.machine.cluster.operations import begin  # imports torch
        from validate.machine.measure.ranks import RankProcesses, RanksFailed

        addresses = [self._names.address(host) for host in range(self._n_hosts)]
        how: dict[str, Any] = {"begin": partial(begin, self._names), "called": "the worker of host"}
        try:
            self._ranks = RankProcesses(self._n_hosts, cuda=False, start_s=_START_S, **how)
            self.versions = self.ask("start", addresses, self._node_counts, within_s=_START_S)[0]
        except RanksFailed as fault:
            raise WorkerFailed(one_line(fault, 250)) from None
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, do: str, *arguments: Any, within_s: float) -> list[Any]:
        """Have all workers run the function *do* of the operations, and return what it returns, ordered by host.

        Raises WorkerFailed where a worker exits, raises an error, or does not answer within *within_s* seconds.
        """
        from validate.machine.cluster import operations  # imports torch
        from validate.machine.measure.ranks import RanksFailed

        try:
            found: list[Any] = self._ranks.run(getattr(operations, do), *arguments, timeout_s=within_s)
        except RanksFailed as fault:
            raise WorkerFailed(one_line(fault, 250)) from None
        return found

    def end(self) -> None:
        """Kill the workers and forget them."""
        if self._ranks is not None:
            self._ranks.close(kill=True)
        self._ranks = None
