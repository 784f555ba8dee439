"""What NCCL's kernels cost on top of the links: launch, protocol latency, share of the link.

NCCL's own planning numbers (``tables.py``) decide what it chooses; they are too rough to say
how long that takes.  These constants do.  They hold for every machine; ``validate fit`` fits
them to a table of measurements, leaving out the machines it is told to.

A collective takes

    max(launch, base) + rounds x (hop + route latency) + bytes / (share x bandwidth)

where launch is the time one host thread needs to start a kernel on each of the GPUs that it
drives, and the rest are the protocol's.  All but the constants comes from the plan's routes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Costs", "ProtocolCost", "DEFAULT_COSTS"]


@dataclass(frozen=True, slots=True)
class ProtocolCost:
    """One protocol: LL, LL128, Simple, or a feature with costs of its own (NVLS, point to point).

    ``base_s`` is paid once, ``hop_s`` by every round on top of the route's latency, and the
    links are used at ``share`` of what they reach.  ``wire`` is how many bytes cross the link
    for each byte of data (flags beside the data).
    """

    base_s: float
    hop_s: float
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
        "LL": ProtocolCost(4.0e-6, 2.2e-6, 0.19, wire=2.0),
        "LL128": ProtocolCost(48e-6, 0.0, 0.71, wire=16 / 15),
        "Simple": ProtocolCost(42e-6, 3.9e-6, 0.945),
        "NVLS": ProtocolCost(40e-6, 0.0, 0.72),
        "P2P": ProtocolCost(10e-6, 0.0, 0.90),
    },
    medium_share={"nvlink": 1.0, "pcie": 0.6, "host": 0.6, "network": 0.95},
)
