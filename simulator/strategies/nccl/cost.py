"""What NCCL's kernels cost on top of the links: launch, protocol latency, share of the link.

NCCL's own planning numbers (``tables.py``) decide what it chooses; they are too rough to say
how long that takes.  These constants do.  They hold for every machine; ``validate fit`` fits
them to a table of measurements, leaving out the machines it is told to.

A collective takes

    max(launch, base + hops x hop + network hops x (network hop + plugin) + latency of the routes
                + bytes / min(share x bandwidth of the links, channels x rate of a channel))

where launch is the time that one host thread needs to start a kernel on each GPU that it
drives: collectives that follow each other cannot go faster than they are launched.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULT_COSTS", "Costs", "ProtocolCost"]


@dataclass(frozen=True, slots=True)
class ProtocolCost:
    """One protocol: LL, LL128, Simple, or a feature with costs of its own (NVLS, point to point).

    ``base_s`` is paid once, ``hop_s`` by every hop inside a machine and ``net_hop_s`` by every
    hop between machines, on top of the route's latency.  The links are used at ``share`` of
    what they reach, and a channel (one block of threads) moves data at ``channel_Bps`` at most.
    ``wire`` is how many bytes cross the link for each byte of data (flags beside the data).
    """

    base_s: float
    hop_s: float
    net_hop_s: float
    share: float = 1.0
    channel_Bps: float = float("inf")
    wire: float = 1.0


@dataclass(frozen=True, slots=True)
class Costs:
    """All constants.

    ``launch_s`` is the start of one kernel on one GPU, ``peer_launch_s`` of each peer of a
    point-to-point group beyond that.  ``pcie_share`` is the share of a PCIe link that copies
    between GPUs reach, both ways at once.  ``network_share`` is that of a NIC in a ring,
    ``fan_share`` in trees and point to point, where it carries several flows at once, and
    ``staged_share`` where the bytes go to the NIC through host memory.
    """

    launch_s: float
    peer_launch_s: float
    protocols: dict[str, ProtocolCost]
    pcie_share: float
    network_share: float
    fan_share: float
    staged_share: float


# As `validate fit` gives them for published measurements of 19 machines (Maxwell to Hopper, 2016
# to 2026) with the V100 cube mesh held out.  docs/decisions/nccl-costs.md has the command, and
# the error on machines that a fit has not seen.
DEFAULT_COSTS = Costs(
    launch_s=4.33e-6,
    peer_launch_s=0.941e-6,
    protocols={
        "LL": ProtocolCost(10.4e-6, 0.475e-6, 6.0e-6, share=0.719, channel_Bps=1.58e9, wire=2.0),
        "LL128": ProtocolCost(27.9e-6, 3.44e-6, 13.2e-6, share=0.9, wire=16 / 15),
        "Simple": ProtocolCost(34.4e-6, 4.67e-6, 17.0e-6, share=0.957),
        "NVLS": ProtocolCost(62.1e-6, 0.0, 0.0, share=0.706),
        "P2P": ProtocolCost(17.3e-6, 4.62e-6, 4.64e-6, share=0.957),
    },
    pcie_share=0.512,
    network_share=0.957,
    fan_share=0.581,
    staged_share=0.622,
)
