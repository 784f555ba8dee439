"""A message between machines: both ends, frames, switches, and distance (docs/decisions/host.md)."""

import math

from simulator.errors import InputError, mention, stated
from simulator.host.answer import HostTime
from simulator.network.machine import Link
from simulator.network.route import Route
from simulator.network.routing import Router
from simulator.places import Places
from simulator.questions.single import MessageQuestion, Protocol
from simulator.records import dataclass
from simulator.topology.parts import NETWORK_LINKS
from simulator.units import format_bandwidth, format_duration, format_size

_MTUS = (1500.0, 9000.0)
_LARGE_BYTES = 1e9  # large enough for its payload share to be the limit


def message_answer(question: MessageQuestion, places: Places, router: Router) -> HostTime:
    """Return the time of a message or a round trip, and its reason; raises InputError where it does not fit."""
    machine, costs = router.machine, places.constants["distance"]
    if question.switches < 1:
        raise InputError(f"switches is at least 1; got {question.switches}")
    route, line = _line(question, router)
    wire_bytes, said = _on_the_line(question, line)
    links = [(machine.links[number], share) for number, share in route.links]
    inside_Bps = [link.bandwidth_Bps / share for link, share in links if link.kind not in NETWORK_LINKS]
    metres, medium = 1e3 * question.distance_km, "space" if question.in_vacuum else "glass"
    ends_s, wire_s = route.latency_s, wire_bytes / min([line.nominal_Bps, *inside_Bps])
    switches_s = (question.switches - 1) * costs.switch_s
    distance_s = metres / costs.vacuum_mps / (1.0 if question.in_vacuum else costs.glass_share)
    parts = {
        "latency of both ends": ends_s,
        "network bandwidth": wire_s,
        "switches on the way": switches_s,
        "the speed of light": distance_s,
    }
    why = [
        f"both ends and the links between take {format_duration(ends_s, 3)}",
        f"{said}: {format_duration(wire_s, 3)} at {format_bandwidth(line.nominal_Bps, 3)}",
    ]
    if switches_s:
        why.append(f"{question.switches - 1} more switches add {format_duration(switches_s, 3)}")
    if distance_s:
        why.append(f"{question.distance_km} km of {medium} take {format_duration(distance_s, 3)}")
    if question.round_trip:
        why.append("there and back: twice")
    figures = {"ends_s": ends_s, "wire_s": wire_s, "switches_s": switches_s, "distance_s": distance_s}
    figures |= {"wire_bytes": wire_bytes, "payload_share": question.size_bytes / wire_bytes}
    time_s, of = (2.0, "a round trip") if question.round_trip else (1.0, "a message")
    bound = max(parts, key=lambda name: parts[name])
    return HostTime(time_s * sum(parts.values()), of, bound, tuple(why), figures)


def message_bound_s(question: MessageQuestion, router: Router) -> float:
    """Return the bytes over the line rate, in seconds, twice for a round trip; raises InputError as message_answer."""
    _, line = _line(question, router)
    return (2.0 if question.round_trip else 1.0) * question.size_bytes / line.nominal_Bps


def _on_the_line(question: MessageQuestion, line: Link) -> tuple[float, str]:
    """Return the bytes that cross the line, and a description of them."""
    share = line.bandwidth_Bps / line.nominal_Bps
    if line.kind != "ethernet":
        if question.mtu_bytes:
            raise InputError(f"mtu applies to Ethernet; the machines are joined by {line.kind}")
        return question.size_bytes / share, f"{format_size(question.size_bytes, 4)} and what {line.kind} adds"
    mtu_bytes = question.mtu_bytes or min(_MTUS, key=lambda mtu: abs(frames_of(_LARGE_BYTES, "tcp", mtu).share - share))
    frames = frames_of(question.size_bytes, question.protocol, mtu_bytes)
    said = (
        f"{frames.count} frame{'s' if frames.count > 1 else ''} of up to {mtu_bytes:.0f} B with headers of "
        f"{question.protocol.upper()}, {frames.wire_bytes:.0f} B on the line, {frames.share:.1%} of them payload"
    )
    return frames.wire_bytes, said


def _line(question: MessageQuestion, router: Router) -> tuple[Route, Link]:
    """Return the route between the two and its slowest network link; raises InputError where there is none."""
    machine, cpus = router.machine, []
    for name, host in (("src", question.src), ("dst", question.dst)):
        if not 0 <= host < machine.n_hosts:
            two = f"; {mention('nodes', 2)} {mention('fabric', 'ethernet-10g')} makes two"
            hint = two if machine.n_hosts == 1 else ""
            raise InputError(f"{name}={host}: {machine.name} has {machine.n_hosts} machines, from 0{hint}")
        first = next((node.index for node in machine.nodes_of(host) if node.kind == "cpu"), None)
        cpus.append(stated(first, f"{name}={host}: the machine has no CPU"))
    route = router.route(*cpus)
    lines = [machine.links[index] for index, _ in route.links if machine.links[index].kind in NETWORK_LINKS]
    if not lines:
        raise InputError(f"src={question.src} and dst={question.dst} are one machine; a message goes to another one")
    return route, min(lines, key=lambda link: link.nominal_Bps)


_AROUND_BYTES = 14 + 4 + 8 + 12
_LEAST_BYTES = 46
_IP_BYTES, _TCP_BYTES, _UDP_BYTES = 20, 32, 8
_LEAST_MTU, _MOST_MTU = 576, 65_535
_DATAGRAM_BYTES = 65_535 - _IP_BYTES - _UDP_BYTES


@dataclass(frozen=True, slots=True)
class Frames:
    """``count`` frames that take ``wire_bytes`` on the line, of which ``payload_bytes`` belong to the message."""

    count: int
    payload_bytes: float
    wire_bytes: float

    @property
    def share(self) -> float:
        """The share of the line rate that is payload."""
        return self.payload_bytes / self.wire_bytes


def frames_of(size_bytes: float, protocol: Protocol, mtu_bytes: float) -> Frames:
    """Return the frames of a message; raises InputError where *mtu_bytes* is no valid packet size of Ethernet."""
    if not _LEAST_MTU <= mtu_bytes <= _MOST_MTU:
        sizes = f"{_LEAST_MTU} to {_MOST_MTU} B, 1500 B as a rule, or 9000 B"
        raise InputError(f"mtu={format_size(mtu_bytes)}: a packet has {sizes}")
    if protocol == "tcp":
        return _cut(size_bytes, mtu_bytes - _IP_BYTES - _TCP_BYTES, _IP_BYTES + _TCP_BYTES, 0)
    datagrams, rest = divmod(size_bytes, _DATAGRAM_BYTES)
    piece = (mtu_bytes - _IP_BYTES) // 8 * 8
    whole = _cut(_DATAGRAM_BYTES, piece, _IP_BYTES, _UDP_BYTES)
    last = _cut(rest, piece, _IP_BYTES, _UDP_BYTES) if rest or not datagrams else Frames(0, 0.0, 0.0)
    n = int(datagrams)
    return Frames(n * whole.count + last.count, size_bytes, n * whole.wire_bytes + last.wire_bytes)


def _cut(size_bytes: float, piece_bytes: float, header_bytes: int, once_bytes: int) -> Frames:
    """Return frames that carry *piece_bytes* each, with a header in each and another once in the first."""
    carried = size_bytes + once_bytes
    count = max(1, math.ceil(carried / piece_bytes))
    last = carried - (count - 1) * piece_bytes
    inside = (count - 1) * (piece_bytes + header_bytes) + max(last + header_bytes, _LEAST_BYTES)
    return Frames(count, size_bytes, inside + count * _AROUND_BYTES)
