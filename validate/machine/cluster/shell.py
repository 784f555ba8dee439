"""Run ``ip`` and ``tc``; every change to the system goes through this file."""

from __future__ import annotations

import subprocess

from simulator.errors import TopocastError, one_line
from validate.machine.cluster.commands import Command

_LIMIT_S = 30.0


class CommandFailed(TopocastError):  # noqa: N818  the name says the fault
    """A system command failed or timed out."""


def run_shell(command: Command) -> str:
    """Run *command* and return its standard output.

    Raises CommandFailed with the command and its error message.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"{' '.join(command)}: {one_line(error)}") from None
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        raise CommandFailed(f"{' '.join(command)}: {one_line(said)}")
    return done.stdout


def list_namespaces() -> list[str]:
    """Return the names of all network namespaces; raises CommandFailed."""
    return [line.split()[0] for line in run_shell(("ip", "netns", "list")).splitlines() if line.split()]


def processes_in(namespace: str) -> list[int]:
    """Return the IDs of the processes in the network namespace *namespace*; raises CommandFailed."""
    try:
        said = run_shell(("ip", "netns", "pids", namespace))
    except CommandFailed as error:
        if "No such file" in str(error):  # it has just been removed
            return []
        raise
    return [int(word) for word in said.split() if word.isdigit()]
