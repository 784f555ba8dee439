"""What NCCL's kernels cost on top of the links: launch, protocol latency, share of the link.

NCCL's own planning numbers (``tables.py``) decide what it chooses; they are too rough to say
how long that takes.  These constants do.  They hold for every machine; ``validate fit`` fits
them to a table of measurements, leaving out the machines it is told to.

A collective takes

    max(launch, base + hops x hop + network hops x (network hop + plugin) + latency of the routes
                + bytes / (share x bandwidth))

where launch is the time that one host thread needs to start a kernel on each GPU that it
drives: collectives that follow each other cannot go faster than they are launched.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Costs", "ProtocolCost", "DEFAULT_COSTS"]


@dataclass(frozen=True, slots=True)
class ProtocolCost:
    """One protocol: LL, LL128, Simple, or a feature with costs of its own (NVLS, point to point).

    ``base_s`` is paid once, ``hop_s`` by every hop inside a machine and ``net_hop_s`` by every
    hop between machines, on top of the route's latency.  The links are used at ``share`` of
    what they reach.  ``wire`` is how many bytes cross the link for each byte of data (flags
    beside the data).
    """

    base_s: float
    hop_s: float
    net_hop_s: float
    share: float
    wire: float = 1.0


@dataclass(frozen=True, slots=True)
class Costs:
    """All constants.  ``medium_share`` multiplies ``share`` by the slowest medium that a ring crosses."""

    launch_s: float
    peer_launch_s: float
    protocols: dict[str, ProtocolCost]
    medium_share: dict[str, float] = field(default_factory=dict)


DEFAULT_COSTS = Costs(
    launch_s=4.35e-6,
    peer_launch_s=0.9e-6,
    protocols={
        "LL": ProtocolCost(4.0e-6, 2.2e-6, 5e-6, 0.16, wire=2.0),
        "LL128": ProtocolCost(48e-6, 0.0, 8e-6, 0.71, wire=16 / 15),
        "Simple": ProtocolCost(42e-6, 3.9e-6, 14e-6, 0.945),
        "NVLS": ProtocolCost(40e-6, 0.0, 14e-6, 0.72),
        "P2P": ProtocolCost(10e-6, 0.0, 14e-6, 0.90),
    },
    medium_share={"nvlink": 1.0, "pcie": 0.6, "host": 0.6, "network": 0.95},
)
