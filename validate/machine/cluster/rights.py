"""Checks that this machine can host the network, made before anything is created."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys

from simulator.errors import MissingDependency, TopocastError
from validate.machine.cluster.names import Names
from validate.machine.cluster.shell import CommandFailed, run

_TRY = "as root, or in namespaces of your own: unshare -rnm sh -c 'mount -t tmpfs none /run && validate cluster ...'"


class NotPossible(TopocastError):  # noqa: N818  an answer and no fault
    """The machine or the user cannot create the network; the message says what is missing and how to get it."""


def check_machine() -> None:
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


def check_rights(names: Names, *, delay: bool) -> None:
    """Create a namespace with a rate limit (and a *delay*), then remove it.

    Raises NotPossible where the user lacks the right or the kernel a feature.
    """
    probe = names.probe
    try:
        run(("ip", "netns", "add", probe))
    except CommandFailed as error:
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
        run(command)
    except CommandFailed as error:
        raise NotPossible(f"this kernel has no {what} ({_said(error)}); its module is {module}") from None


def _remove(name: str) -> None:
    with contextlib.suppress(CommandFailed):
        run(("ip", "netns", "delete", name))


def _said(error: CommandFailed) -> str:
    return str(error).partition(": ")[2].removeprefix("Error: ").rstrip(".")
