"""What crashed runs left behind: namespaces of our names whose process is gone."""

from __future__ import annotations

import contextlib
import os
import signal

from validate.machine.cluster.names import owner_of, process_start
from validate.machine.cluster.shell import CommandFailed, list_namespaces, processes_in, run

__all__ = ["leftovers", "remove_leftovers"]


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
