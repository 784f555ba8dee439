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

__all__ = ["DEFAULT_COSTS", "FITTED_TO", "Costs", "ProtocolCost"]


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
    between GPUs reach, both ways at once; ``network_share`` that of a NIC, ``staged_share`` where
    the bytes go to the NIC through host memory.
    """

    launch_s: float
    peer_launch_s: float
    protocols: dict[str, ProtocolCost]
    pcie_share: float
    network_share: float
    staged_share: float


# The machines that the constants were fitted to; all others are judged without having been seen.
FITTED_TO = (
    "2xv100-pcie-16gb", "4xv100-pcie-gdr116", "8xh200-sxm", "a100-sxm4-80gb-node-2of8", "deepbench-8xm40-dual-root",
    "deepbench-8xp100-pcie-dual-root", "deepbench-8xtitanx-maxwell-dual-root", "dgx-spark", "dgxa100-8xa100",
    "llmcompass-4xa100-nvlink", "ndv4-8xa100", "p4d.24xlarge", "vtrain-8xa100-nvswitch", "xla-8xh100",
)  # fmt: skip
# As `validate fit` gives them for published measurements of those machines (Maxwell to Hopper, 2016
# to 2026).  docs/decisions/nccl-costs.md has the command, why some machines were held out, and the
# error on machines that a fit has not seen.
DEFAULT_COSTS = Costs(
    launch_s=4.34e-6,
    peer_launch_s=0.938e-6,
    protocols={
        "LL": ProtocolCost(9.38e-6, 0.318e-6, 9.53e-6, share=0.283, channel_Bps=3.28e9, wire=2.0),
        "LL128": ProtocolCost(34.4e-6, 1.92e-6, 24.7e-6, share=0.829, wire=16 / 15),
        "Simple": ProtocolCost(34.9e-6, 4.57e-6, 13.3e-6, share=0.947),
        "NVLS": ProtocolCost(62.1e-6, 0.0, 0.0, share=0.706),
        "P2P": ProtocolCost(19.9e-6, 4.07e-6, 4.07e-6, share=0.947),
    },
    pcie_share=0.514,
    network_share=0.974,
    staged_share=0.624,
)
