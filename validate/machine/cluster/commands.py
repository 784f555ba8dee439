"""The commands that make the network, and those that remove it, as data: ``--dry-run`` prints the same.

Each host is a namespace with one interface; the other end of its wire (a veth pair) is a port of a bridge
in a namespace of its own.  A token bucket (``tc tbf``) stands at both ends of each wire: what a host sends
passes the one at its interface, what it receives the one at its port.  So every host has a full-duplex
link of the rate to a switch that queues and does not lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from validate.machine.cluster.names import HOST_INTERFACE, Names

__all__ = ["Command", "Shape", "limit_commands", "make_commands", "remove_commands", "shape_commands", "steer_commands"]

Command = tuple[str, ...]
BRIDGE = "br0"
# A bucket lets its content pass at once: small, so that it hides little of a message; large enough for what
# passes while a timer fires late.
_BUCKET_S = 1e-3
_LEAST_BUCKET_BYTES = 16 * 1514
_QUEUE_BYTES = 64_000_000  # more than TCP keeps under way (4 MB a connection): nothing is lost for want of room
_LARGEST_PACKET_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Shape:
    """What a link is: its rate, and a delay one way between two hosts."""

    rate_Bps: float
    delay_s: float = 0.0

    @property
    def bucket_bytes(self) -> int:
        """How much may pass at once after a pause."""
        return max(_LEAST_BUCKET_BYTES, round(self.rate_Bps * _BUCKET_S))

    @property
    def packet_bytes(self) -> int:
        """The longest that the kernel hands to the interface in one piece (it is counted as the frames in it)."""
        return min(_LARGEST_PACKET_BYTES, self.bucket_bytes // 2)


def make_commands(names: Names, n_hosts: int) -> list[Command]:
    """Return what makes hosts, bridge and wires, without rates."""
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


def steer_commands(names: Names, n_hosts: int, cpus: Sequence[int]) -> list[Command]:
    """Return what lets one processor of *cpus* receive all packets of an interface.

    Otherwise each is received where it was sent from, and a token bucket sends now from one processor and now
    from another: packets would overtake each other, and TCP would take that for loss.  The kernel grants this
    to the machine's root alone.
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


def shape_commands(names: Names, n_hosts: int, shape: Shape) -> list[Command]:
    """Return what gives all links the rate and the delay of *shape*, whatever they had before."""
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


def limit_commands(names: Names, n_hosts: int, shape: Shape) -> list[Command]:
    """Return what bounds the bytes of a connection in queues: by what its link passes in 1 ms, and while they travel.

    TCP means to keep 1 ms of each connection in queues, by the rate that it sees (tcp_limit_output_bytes bounds that).
    Between veth pairs it sees that of memory, and counts what waits in the switch as its own: of several connections
    one fills the queue with hundreds of kB, and the others of its host wait behind it.
    """
    most_bytes = shape.bucket_bytes + round(2 * shape.delay_s * shape.rate_Bps)
    file = "/proc/sys/net/ipv4/tcp_limit_output_bytes"
    return [("ip", "netns", "exec", names.host(i), "sh", "-c", f"echo {most_bytes} > {file}") for i in range(n_hosts)]


def remove_commands(names: Names, n_hosts: int) -> list[Command]:
    """Return what removes all of it: interfaces, bridge and queues go with their namespaces."""
    return [("ip", "netns", "delete", name) for name in (*(names.host(i) for i in range(n_hosts)), names.switch)]
