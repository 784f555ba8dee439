"""The ``ip`` and ``tc`` commands that create and remove the network, as data; ``--dry-run`` prints these.

Each host is a network namespace with one interface.  A veth pair connects it to a port of a bridge, which has its
own namespace.  A token bucket (``tc tbf``) at each end of the pair limits what the host sends (at its interface)
and what it receives (at the port).  Each host thus has a full-duplex link of the given rate to a switch that queues
and loses nothing.

Names of namespaces contain the run's process, so that no other run's are touched.  Everything else (interfaces, the
bridge, queues) lives inside these namespaces and vanishes with them.  The machine's own network is not changed, and
every change to the system goes through :func:`run_shell`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from simulator.errors import TopocastError, one_line
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
    def process(self) -> int:
        """Return the ID of the run's process."""
        return int(self.run.partition("-")[0])

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


Command = tuple[str, ...]
BRIDGE = "br0"
# A token bucket passes its content at once.  It must be small enough to hide little of a message, and large enough
# for the traffic that accumulates when a timer fires late.
_BUCKET_S = 1e-3
_LEAST_BUCKET_BYTES = 16 * 1514
_QUEUE_BYTES = 64_000_000  # more than TCP keeps in flight (4 MB per connection), so that the queue never overflows
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


def make_commands(names: RunNames, n_hosts: int) -> list[Command]:
    """Return the commands that create the hosts, the bridge and the wires, without rates."""
    commands: list[Command] = [
        ("ip", "netns", "add", names.switch),
        ("ip", "-n", names.switch, "link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "mcast_snooping", "0"),
        ("ip", "-n", names.switch, "link", "set", BRIDGE, "up"),
    ]
    for i in range(n_hosts):
        host, port = names.host(i), names.port(i)
        wire = ("type", "veth", "peer", "name", HOST_INTERFACE, "netns", host)
        commands += [
            ("ip", "netns", "add", host),
            ("ip", "link", "add", port, "netns", names.switch, *wire),
            ("ip", "-n", names.switch, "link", "set", port, "master", BRIDGE, "up"),
            ("ip", "-n", host, "address", "add", f"{names.address(i)}/24", "dev", HOST_INTERFACE),
            ("ip", "-n", host, "link", "set", "lo", "up"),
            ("ip", "-n", host, "link", "set", HOST_INTERFACE, "up"),
        ]
    return commands


def steer_commands(names: RunNames, n_hosts: int, cpus: Sequence[int]) -> list[Command]:
    """Return the commands that bind the receive processing of each interface to one processor of *cpus*.

    Without them, a packet is received on the processor that sent it.  A token bucket sends from changing processors,
    so packets would overtake each other, which TCP takes for loss.  Only the machine's own root may run these
    commands.
    """
    commands = []
    for i in range(n_hosts):
        cpu = cpus[i % len(cpus)]
        commands += [_steer(names.host(i), HOST_INTERFACE, cpu), _steer(names.switch, names.port(i), cpu)]
    return commands


def _steer(namespace: str, interface: str, cpu: int) -> Command:
    digits = f"{1 << cpu:x}"
    digits = digits.rjust(-(-len(digits) // 8) * 8, "0")
    mask = ",".join(digits[i : i + 8] for i in range(0, len(digits), 8))
    file = f"/sys/class/net/{interface}/queues/rx-0/rps_cpus"
    return ("ip", "netns", "exec", namespace, "sh", "-c", f"echo {mask} > {file}")


def shape_commands(names: RunNames, n_hosts: int, shape: LinkShape) -> list[Command]:
    """Return the commands that set the rate and the delay of *shape* on all links, replacing earlier settings."""
    bucket = (
        *("tbf", "rate", f"{round(shape.rate_Bps * 8)}bit"),
        *("burst", f"{shape.bucket_bytes}b", "limit", f"{_QUEUE_BYTES}b"),
    )
    longest = ("gso_max_size", str(shape.packet_bytes))
    commands: list[Command] = []
    for i in range(n_hosts):
        host, port = names.host(i), names.port(i)
        commands += [
            ("ip", "-n", host, "link", "set", HOST_INTERFACE, *longest),
            ("ip", "-n", names.switch, "link", "set", port, *longest),
            ("tc", "-n", host, "qdisc", "replace", "dev", HOST_INTERFACE, "root", "handle", "1:", *bucket),
            ("tc", "-n", names.switch, "qdisc", "replace", "dev", port, "root", "handle", "1:", *bucket),
        ]
        if shape.delay_s > 0:
            delay = ("netem", "delay", f"{round(shape.delay_s * 1e6)}us", "limit", "100000")
            child = ("parent", "1:1", "handle", "10:")
            commands.append(("tc", "-n", host, "qdisc", "replace", "dev", HOST_INTERFACE, *child, *delay))
    return commands


def limit_commands(names: RunNames, n_hosts: int, shape: LinkShape) -> list[Command]:
    """Return the commands that limit a connection's queued bytes to 1 ms of its link plus one round trip.

    TCP bounds the bytes that a connection keeps in local queues to 1 ms at the rate that it observes
    (tcp_limit_output_bytes caps this).  Over veth pairs it observes the speed of memory and counts bytes queued in the
    switch as its own: one connection then fills the queue with hundreds of kB, and the host's other connections wait
    behind it.
    """
    most_bytes = shape.bucket_bytes + round(2 * shape.delay_s * shape.rate_Bps)
    file = "/proc/sys/net/ipv4/tcp_limit_output_bytes"
    return [("ip", "netns", "exec", names.host(i), "sh", "-c", f"echo {most_bytes} > {file}") for i in range(n_hosts)]


def remove_commands(names: RunNames, n_hosts: int) -> list[Command]:
    """Return the commands that remove everything; interfaces, bridge and queues vanish with their namespaces."""
    return [("ip", "netns", "delete", name) for name in (*(names.host(i) for i in range(n_hosts)), names.switch)]


_LIMIT_S = 30.0


class CommandFailed(TopocastError):  # noqa: N818  the name says the fault
    """A system command failed or timed out."""


def run_shell(command: Command) -> str:
    """Run *command* and return its standard output; raises CommandFailed with the command and its error message."""
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
    return [int(word) for word in said.split() if word.isdecimal()]
