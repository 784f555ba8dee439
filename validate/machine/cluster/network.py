"""The network while it stands: made on entering, shaped while in use, removed whatever happens."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType

from validate.machine.cluster.commands import Shape, make_commands, remove_commands, shape_commands, steer_commands
from validate.machine.cluster.names import Names
from validate.machine.cluster.shell import CommandFailed, run

__all__ = ["Network"]


class Network:
    """Hosts 0 to *n_hosts* - 1 on one switch, as a context manager.

    Leaving removes the namespaces that entering made, also those of an entering that failed half way.
    """

    def __init__(self, names: Names, n_hosts: int) -> None:
        self.names = names
        self.n_hosts = n_hosts
        self.is_steered = False  # whether each interface receives on one processor
        self._is_there = False

    def __enter__(self) -> Network:
        self._is_there = True
        try:
            for command in make_commands(self.names, self.n_hosts):
                run(command)
            self._steer()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _steer(self) -> None:
        try:
            for command in steer_commands(self.names, self.n_hosts, sorted(os.sched_getaffinity(0))):
                run(command)
        except CommandFailed:  # in namespaces of one's own: packets may overtake each other, which costs some time
            return
        self.is_steered = True

    def shape(self, shape: Shape) -> None:
        """Give all links the rate and the delay of *shape*."""
        for command in shape_commands(self.names, self.n_hosts, shape):
            run(command)

    def remove(self) -> None:
        """Remove all that was made, once; what was not made is no fault."""
        if self._is_there:
            for command in remove_commands(self.names, self.n_hosts):
                with contextlib.suppress(CommandFailed):
                    run(command)
            self._is_there = False
