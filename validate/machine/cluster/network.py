"""The network of a run (docs/cluster.md): its commands, whether it can be made here, made on entry, always removed.

Names contain the run's process; all else lives inside their namespaces.  :func:`run_shell` alone changes the system.
"""

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.errors import MissingDependency, TopocastError, one_line
from simulator.records import dataclass, own_data

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


class RunNames:
    """Names of one run, of this process unless said: hosts, the bridge's ``switch``, and ``probe``, to test rights."""

    def __init__(self, run: str = "") -> None:
        self._run = f"{PREFIX}{run or f'{os.getpid()}-{process_start(os.getpid()) or 0}'}"
        self.switch, self.probe = f"{self._run}-switch", f"{self._run}-probe"

    def host(self, index: int) -> str:
        """Return the namespace of host *index*."""
        return f"{self._run}-host{index}"

    @staticmethod
    def address(index: int) -> str:
        """Return the private address of host *index*, visible only inside the namespaces."""
        return f"10.77.0.{index + 1}"


Command = tuple[str, ...]
# A token bucket passes its content at once.  It must be small enough to hide little of a message, and large enough
# for the traffic that accumulates when a timer fires late.
_BUCKET_S = 1e-3
_LEAST_BUCKET_BYTES = 16 * 1514
_LARGEST_PACKET_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class LinkShape:
    """The properties of a link: its rate, and the one-way delay between two hosts."""

    rate_Bps: float
    delay_s: float = 0.0

    @property
    def bucket_bytes(self) -> int:
        """Return the size of the token bucket: the burst that passes at once after a pause, in bytes."""
        return max(_LEAST_BUCKET_BYTES, round(self.rate_Bps * _BUCKET_S))

    @property
    def packet_bytes(self) -> int:
        """Return the largest packet that the kernel hands to the interface (tc counts the frames in it), in bytes."""
        return min(_LARGEST_PACKET_BYTES, self.bucket_bytes // 2)


_STEPS = own_data("validate.machine.cluster", "network.yaml")
_NO_LINK = LinkShape(0.0)


def network_commands(
    step: str, names: RunNames, n_hosts: int, shape: LinkShape = _NO_LINK, cpus: Sequence[int] = (0,)
) -> list[Command]:
    """Return the commands of *step*, a key of network.yaml, for *n_hosts* whose links are *shape*; *cpus* receive."""
    bucket_bytes = shape.bucket_bytes
    said: dict[str, Any] = {"switch": names.switch, "interface": HOST_INTERFACE, "rate": round(shape.rate_Bps * 8)}
    said |= {"bucket_bytes": bucket_bytes, "packet_bytes": shape.packet_bytes, "delay": round(shape.delay_s * 1e6)}
    said["queued_bytes"] = bucket_bytes + round(2 * shape.delay_s * shape.rate_Bps)
    lines: list[str] = []
    for each in [step, *(["delay"] if step == "shape" and shape.delay_s > 0 else [])]:
        of_step = {"before": [], "after": [], **_STEPS[each]}
        lines += [line.format(**said) for line in of_step["before"]]
        for i in range(n_hosts):
            said |= {"host": names.host(i), "port": f"port{i}", "address": names.address(i)}
            digits = f"{1 << cpus[i % len(cpus)]:x}"  # as the kernel writes sets of processors: in groups of eight
            digits = digits.rjust(-(-len(digits) // 8) * 8, "0")
            said["mask"] = ",".join(digits[i : i + 8] for i in range(0, len(digits), 8))
            lines += [line.format(**said) for line in of_step["host"]]
        lines += [line.format(**said) for line in of_step["after"]]
    return [tuple(shlex.split(line)) for line in lines]


_LIMIT_S = 30.0


class CommandFailed(TopocastError):  # noqa: N818  the name says the fault
    """A system command failed or timed out."""


def run_shell(command: Command) -> str:
    """Run *command* and return its standard output; raises CommandFailed with the command and its error message."""
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": _LIMIT_S}
    said: object = ""
    try:
        done = subprocess.run(command, check=False, **how)
        if done.returncode == 0:
            return str(done.stdout)
        said = done.stderr.strip() or f"exit status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        said = error
    raise CommandFailed(f"{' '.join(command)}: {one_line(said)}")


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
    return [int(word) for word in said.split() if word.isdecimal()]


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


def check_rights(names: RunNames, *, delay: bool) -> None:
    """Try a namespace with a rate limit (and a *delay*); raises NotPossible without the right or kernel feature."""
    try:
        for line, told in _STEPS["tried"][: None if delay else -1]:
            try:
                run_shell(tuple(line.format(probe=names.probe).split()))
            except CommandFailed as error:
                said = str(error).partition(": ")[2].removeprefix("Error: ").rstrip(".")
                raise NotPossible(told.format(said=said)) from None
    finally:
        with contextlib.suppress(CommandFailed):
            run_shell(("ip", "netns", "delete", names.probe))


class HostNetwork:
    """Hosts 0 to *n_hosts* - 1 on one switch, until left, or until its entry fails with CommandFailed."""

    def __init__(self, names: RunNames, n_hosts: int) -> None:
        self.names = names
        self.n_hosts = n_hosts
        self.is_steered = False  # whether each interface receives on one processor
        self._is_there = False

    def __enter__(self) -> "HostNetwork":
        self._is_there = True
        try:
            self._run("make")
            with contextlib.suppress(CommandFailed):  # a user namespace does not permit it; packets may overtake then
                self._run("steer", cpus=sorted(os.sched_getaffinity(0)))
                self.is_steered = True
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _run(self, step: str, shape: LinkShape = _NO_LINK, cpus: Sequence[int] = (0,)) -> None:
        for command in network_commands(step, self.names, self.n_hosts, shape, cpus):
            run_shell(command)

    def shape(self, shape: LinkShape) -> None:
        """Set the rate and the delay of all links to *shape*.  Raises CommandFailed where the kernel refuses."""
        self._run("shape", shape)
        with contextlib.suppress(CommandFailed):  # an old kernel has one limit for all namespaces
            self._run("limit", shape)

    def remove(self) -> None:
        """Remove everything once; ignore what does not exist."""
        if self._is_there:
            for command in network_commands("remove", self.names, self.n_hosts):
                with contextlib.suppress(CommandFailed):
                    run_shell(command)
            self._is_there = False


def leftovers() -> list[str]:
    """Return the namespaces left behind by runs that have ended; those of live runs are excluded."""
    owners = [(name, owner_of(name)) for name in list_namespaces()]
    return [name for name, owner in owners if owner is not None and process_start(owner[0]) != owner[1]]


def remove_leftovers() -> list[str]:
    """Kill the processes in leftover namespaces, remove these, and return their names; raises CommandFailed."""
    left = leftovers()
    for name in left:
        with contextlib.suppress(CommandFailed):
            for pid in processes_in(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        run_shell(("ip", "netns", "delete", name))
    return left
