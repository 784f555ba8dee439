"""Names of the namespaces of a run; they contain the run's process, so that no other run's are touched.

Everything else (interfaces, the bridge, queues) lives inside these namespaces and vanishes with them.  The machine's
own network is not changed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from simulator.records import dataclass

PREFIX = "topocast-cluster-"
HOST_INTERFACE = "eth0"
_OURS = re.compile(rf"{PREFIX}(\d{{1,10}})-(\d{{1,20}})-(?:switch|probe|host\d{{1,3}})", re.ASCII)


def process_start(pid: int) -> int | None:
    """Return when process *pid* started, in kernel ticks since boot; None if it has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The program's name is in parentheses and may hold any character; the start time is field 22 of the line.
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None


def owner_of(namespace: str) -> tuple[int, int] | None:
    """Return the process ID and start time of the run that made *namespace*; None if no run made it."""
    match = _OURS.fullmatch(namespace)
    return (int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class RunNames:
    """Names of one run, made unique by its process ID and that process's start time."""

    run: str

    @classmethod
    def of_this_process(cls) -> RunNames:
        """Return the names for a run in this process."""
        pid = os.getpid()
        return cls(f"{pid}-{process_start(pid) or 0}")

    @property
    def switch(self) -> str:
        """Return the namespace of the bridge."""
        return f"{PREFIX}{self.run}-switch"

    @property
    def probe(self) -> str:
        """Return the namespace used to test the user's rights."""
        return f"{PREFIX}{self.run}-probe"

    def host(self, index: int) -> str:
        """Return the namespace of host *index*."""
        return f"{PREFIX}{self.run}-host{index}"

    @staticmethod
    def port(index: int) -> str:
        """Return the bridge port of host *index*."""
        return f"port{index}"

    @staticmethod
    def address(index: int) -> str:
        """Return the private address of host *index*, visible only inside the namespaces."""
        return f"10.77.0.{index + 1}"
