"""Processor time that the messages of a round cost the hosts that send and receive them: :func:`host_work`.

This is the overhead of LogP (Culler et al., LogP: towards a realistic model of parallel computation, 1993): a processor
is busy for each message that it sends or receives.  It works in parallel with the link, which transmits messages handed
over earlier, so a round takes the longer of the two.  Hosts that share processors (namespaces of one computer) share
this work too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Work

BINDING = "messages keep the hosts' processors busy for longer than bytes keep the links"

_SHARED = "the hosts' processors"


def host_work(machine: Machine, pairs: Iterable[tuple[int, int]]) -> tuple[Work, ...]:
    """Return the processor work of one message for each (source, target) pair of nodes; empty if messages cost nothing.

    A host that sends and receives k messages in a round keeps one processor busy for ``round + k message`` seconds.
    Messages within a host cost nothing.
    """
    costs = machine.messages
    if not costs.message and not costs.round:
        return ()
    ends: dict[int, int] = {}
    for pair in pairs:
        src, dst = (machine.locate(node)[1] for node in pair)
        if src != dst:
            ends[src] = ends.get(src, 0) + 1
            ends[dst] = ends.get(dst, 0) + 1
    if not ends:
        return ()
    busy_s = {f"processor of host {host}": costs.round + count * costs.message for host, count in ends.items()}
    if costs.processors is not None:
        busy_s[_SHARED] = sum(busy_s.values()) / costs.processors
    alone_s = max(busy_s.values())
    return (Work(alone_s, tuple((name, seconds / alone_s) for name, seconds in busy_s.items())),)


def bind(machine: Machine, work: Sequence[Work], flows: Sequence[Flow]) -> bool:
    """Return whether the processors' *work* of a round takes longer than its *flows* take on their links."""
    if not work:
        return False
    loads: dict[int, float] = {}
    for flow in flows:
        for resource, share in flow.route.loads:
            loads[resource] = loads.get(resource, 0.0) + share * flow.wire_bytes * flow.count
    wire_s = max((n_bytes / machine.capacity_Bps[resource] for resource, n_bytes in loads.items()), default=0.0)
    return max(part.duration_s for part in work) > wire_s
