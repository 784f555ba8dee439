"""The network during a run: created on entry, always removed; and leftovers of crashed runs."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

from validate.machine.cluster.commands import (
    Shape,
    limit_commands,
    make_commands,
    remove_commands,
    shape_commands,
    steer_commands,
)
from validate.machine.cluster.names import Names, owner_of, process_start
from validate.machine.cluster.shell import CommandFailed, list_namespaces, processes_in, run

__all__ = ["Network", "leftovers", "remove_leftovers", "removed_on_signals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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

    def __exit__(self, *_: object) -> None:
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
        with contextlib.suppress(CommandFailed):  # an old kernel has one limit for all namespaces
            for command in limit_commands(self.names, self.n_hosts, shape):
                run(command)

    def remove(self) -> None:
        """Remove all that was made, once; what was not made is no fault."""
        if self._is_there:
            for command in remove_commands(self.names, self.n_hosts):
                with contextlib.suppress(CommandFailed):
                    run(command)
            self._is_there = False


@contextlib.contextmanager
def removed_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt once on SIGINT, SIGTERM or SIGHUP; a second one does not cut the removal short."""
    before: dict[signal.Signals, Any] = {}

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        for one in _SIGNALS:
            before[one] = signal.signal(one, stop)
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def leftovers() -> list[str]:
    """Return the namespaces that runs made which are over; those of a run under way are not among them."""
    found = []
    for name in list_namespaces():
        owner = owner_of(name)
        if owner is not None and process_start(owner[0]) != owner[1]:
            found.append(name)
    return found


def remove_leftovers() -> list[str]:
    """End what still runs in them, remove them and return their names."""
    removed = []
    for name in leftovers():
        with contextlib.suppress(CommandFailed):
            for pid in processes_in(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        run(("ip", "netns", "delete", name))
        removed.append(name)
    return removed
