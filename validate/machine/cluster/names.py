"""Names of what a run makes: namespaces that carry the run's process, so that no other run's are touched.

Everything else (interfaces, the bridge, queues) lives inside these namespaces and goes with them; the
machine's own network holds nothing of a run.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HOST_INTERFACE", "PREFIX", "Names", "owner_of", "process_start"]

PREFIX = "topocast-cluster-"
HOST_INTERFACE = "eth0"
_OURS = re.compile(rf"{PREFIX}(\d{{1,10}})-(\d{{1,20}})-(?:switch|probe|host\d{{1,3}})", re.ASCII)


def process_start(pid: int) -> int | None:
    """Return when process *pid* started, in the kernel's ticks since boot; None where it is over, reaped or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name of the program stands in parentheses and may hold anything; field 22 of the line is the start.
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None


def owner_of(namespace: str) -> tuple[int, int] | None:
    """Return process and start of the run that made *namespace*; None where the name is not one of ours."""
    match = _OURS.fullmatch(namespace)
    return (int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one run, told from others by its process and when that started."""

    run: str

    @classmethod
    def of_this_process(cls) -> Names:
        """Return the names of the run that this process is."""
        pid = os.getpid()
        return cls(f"{pid}-{process_start(pid) or 0}")

    @property
    def switch(self) -> str:
        """The namespace of the bridge."""
        return f"{PREFIX}{self.run}-switch"

    @property
    def probe(self) -> str:
        """The namespace in which rights are tried."""
        return f"{PREFIX}{self.run}-probe"

    def host(self, index: int) -> str:
        """Return the namespace of host *index*."""
        return f"{PREFIX}{self.run}-host{index}"

    @staticmethod
    def port(index: int) -> str:
        """Return the bridge's interface that leads to host *index*."""
        return f"port{index}"

    @staticmethod
    def address(index: int) -> str:
        """Return the address of host *index* (of a private range, seen inside the namespaces alone)."""
        return f"10.77.0.{index + 1}"
