"""The network during a run: whether it can be made here, made on entry, always removed; leftovers of crashed runs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from simulator.errors import MissingDependency, TopocastError
from validate.machine.cluster import commands

_TRY = "as root, or in namespaces of your own: unshare -rnm sh -c 'mount -t tmpfs none /run && validate cluster ...'"


class NotPossible(TopocastError):  # noqa: N818  an answer and no fault
    """The machine or the user cannot create the network; the message says what is missing and how to get it."""


def check_system() -> None:
    """Raise :class:`NotPossible` if this is not Linux, or ``ip`` or ``tc`` is missing."""
    if not sys.platform.startswith("linux"):
        raise NotPossible(f"network namespaces need Linux; this is {sys.platform}")
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise NotPossible(f"{' and '.join(missing)} not found; Debian and Ubuntu have them in the package iproute2")


def check_torch() -> None:
    """Raise :class:`MissingDependency` if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingDependency("the collectives are torch's; install it, for example: pip install torch")


def check_rights(names: commands.RunNames, *, delay: bool) -> None:
    """Try a namespace with a rate limit (and a *delay*); raises NotPossible without the right or kernel feature."""
    probe = names.probe
    try:
        commands.run_shell(("ip", "netns", "add", probe))
    except commands.CommandFailed as error:
        _remove(probe)
        raise NotPossible(f"no right to make a network namespace ({_said(error)}); run it {_TRY}") from None
    try:
        _step(("ip", "-n", probe, "link", "add", "try0", "type", "veth", "peer", "name", "try1"), "veth pairs", "veth")
        _step(("ip", "-n", probe, "link", "add", "try2", "type", "bridge"), "bridges", "bridge")
        rate = ("tbf", "rate", "1gbit", "burst", "32kb", "limit", "1mb")
        on_try = ("tc", "-n", probe, "qdisc", "add", "dev", "try0")
        _step((*on_try, "root", "handle", "1:", *rate), "rates (tc tbf)", "sch_tbf")
        if delay:
            _step((*on_try, "parent", "1:1", "netem", "delay", "1ms"), "--delay (tc netem)", "sch_netem")
    finally:
        _remove(probe)


def _step(command: tuple[str, ...], what: str, module: str) -> None:
    try:
        commands.run_shell(command)
    except commands.CommandFailed as error:
        raise NotPossible(f"this kernel has no {what} ({_said(error)}); its module is {module}") from None


def _remove(name: str) -> None:
    with contextlib.suppress(commands.CommandFailed):
        commands.run_shell(("ip", "netns", "delete", name))


def _said(error: commands.CommandFailed) -> str:
    return str(error).partition(": ")[2].removeprefix("Error: ").rstrip(".")


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HostNetwork:
    """Hosts 0 to *n_hosts* - 1 on one switch, as a context manager.

    Leaving removes the namespaces, as does an entry that fails half way.  Raises CommandFailed on entry.
    """

    def __init__(self, names: commands.RunNames, n_hosts: int) -> None:
        self.names = names
        self.n_hosts = n_hosts
        self.is_steered = False  # whether each interface receives on one processor
        self._is_there = False

    def __enter__(self) -> HostNetwork:
        self._is_there = True
        try:
            for command in commands.network_commands("make", self.names, self.n_hosts):
                commands.run_shell(command)
            self._steer()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _steer(self) -> None:
        try:
            cpus = sorted(os.sched_getaffinity(0))
            for command in commands.network_commands("steer", self.names, self.n_hosts, cpus=cpus):
                commands.run_shell(command)
        except commands.CommandFailed:  # not permitted in a user namespace; packets may overtake each other
            return
        self.is_steered = True

    def shape(self, shape: commands.LinkShape) -> None:
        """Set the rate and the delay of all links to *shape*.  Raises CommandFailed where the kernel refuses."""
        for command in commands.network_commands("shape", self.names, self.n_hosts, shape):
            commands.run_shell(command)
        with contextlib.suppress(commands.CommandFailed):  # an old kernel has one limit for all namespaces
            for command in commands.network_commands("limit", self.names, self.n_hosts, shape):
                commands.run_shell(command)

    def remove(self) -> None:
        """Remove everything once; ignore what does not exist."""
        if self._is_there:
            for command in commands.network_commands("remove", self.names, self.n_hosts):
                with contextlib.suppress(commands.CommandFailed):
                    commands.run_shell(command)
            self._is_there = False


@contextlib.contextmanager
def removed_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on the first SIGINT, SIGTERM or SIGHUP and ignore later ones, so cleanup completes."""
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
    """Return the namespaces left behind by runs that have ended; those of live runs are excluded."""
    found = []
    for name in commands.list_namespaces():
        owner = commands.owner_of(name)
        if owner is not None and commands.process_start(owner[0]) != owner[1]:
            found.append(name)
    return found


def remove_leftovers() -> list[str]:
    """Kill the processes in leftover namespaces, remove these, and return their names.

    Raises CommandFailed where a namespace cannot be removed.
    """
    removed = []
    for name in leftovers():
        with contextlib.suppress(commands.CommandFailed):
            for pid in commands.processes_in(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        commands.run_shell(("ip", "netns", "delete", name))
        removed.append(name)
    return removed
