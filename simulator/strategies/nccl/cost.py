"""What NCCL's kernels cost on top of the links: launch, protocol latency, share of the link.

NCCL's own planning numbers (``tables.py``) decide what it chooses; they are too rough to say
how long that takes.  These constants do.  They hold for every machine; ``validate fit`` fits
them to a table of measurements, leaving out the machines it is told to.

A collective takes

    max(launch, pace x (base + hops x hop) + network hops x (network hop + plugin) + latency of the routes
                + bytes / min(share x bandwidth of the links, channels x rate of a channel)
                + passes x own part / bandwidth of the memory + fill x first window / bandwidth)

where launch is the time that one host thread needs to start a kernel on each GPU that it
drives: collectives that follow each other cannot go faster than they are launched.  The pace is
that of the GPU's own steps, which its clock sets.

Recent versions take half the time of earlier ones between 64 KB and 4 MB on the same machine, so
there are constants of either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.strategies.nccl.tables import generation
from simulator.topology.parts import GpuPart, Part

__all__ = ["DEFAULT_COSTS", "EARLIER_COSTS", "FITTED_TO", "RECENT", "Costs", "ProtocolCost", "costs_of", "pace_of"]


@dataclass(frozen=True, slots=True)
class ProtocolCost:
    """One protocol: LL, LL128, Simple, or a feature with costs of its own (NVLS, point to point).

    ``base_s`` is paid once, ``hop_s`` by every hop inside a machine and ``net_hop_s`` by every
    hop between machines, on top of the route's latency.  The links are used at ``share`` of
    what they reach, and a channel (one block of threads) moves data at ``channel_Bps`` at most.
    ``wire`` is how many bytes cross the link for each byte of data (flags beside the data).

    A GPU that drives its links does more than send.  ``own_passes`` is how often the part that a rank
    keeps (1/n: the last step of a ring only receives, all-to-all copies it) goes through its memory.
    ``fill`` is the share of the first window, all chunks that are under way at once, in which the
    links are not yet used.
    """

    base_s: float
    hop_s: float
    net_hop_s: float
    share: float = 1.0
    channel_Bps: float = float("inf")
    wire: float = 1.0
    own_passes: float = 0.0
    fill: float = 0.0


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
# Of gb200-nvl72 only the pace of its generation is.
FITTED_TO = (
    "2xv100-pcie-16gb", "4xv100-pcie-gdr116", "8xh200-sxm", "a100-sxm4-80gb-node-2of8", "deepbench-8xm40-dual-root",
    "deepbench-8xp100-pcie-dual-root", "deepbench-8xtitanx-maxwell-dual-root", "dgx-a100-80gb", "dgx-h100", "dgx-spark",
    "dgxa100-8xa100", "gb200-nvl72", "llmcompass-4xa100-nvlink", "ndv4-8xa100", "p4d.24xlarge",
    "vtrain-8xa100-nvswitch", "xla-8xh100",
)  # fmt: skip
# As `validate fit` gives them for published measurements of those machines (Maxwell to Hopper, 2016
# to 2026).  docs/decisions/nccl-costs.md has the command, why some machines were held out, and the
# error on machines that a fit has not seen.
DEFAULT_COSTS = Costs(
    launch_s=4.34e-6,
    peer_launch_s=0.941e-6,
    protocols={
        "LL": ProtocolCost(9.39e-6, 0.214e-6, 6e-6, share=0.757, channel_Bps=9.34e9, wire=2.0),
        "LL128": ProtocolCost(19.0e-6, 1.29e-6, 24.3e-6, share=0.917, wire=16 / 15, own_passes=4.62),
        "Simple": ProtocolCost(27.8e-6, 2.89e-6, 12.9e-6, share=0.952, own_passes=4.62),
        "NVLS": ProtocolCost(38.0e-6, 0.0, 0.0, share=0.679, fill=0.552),
        "P2P": ProtocolCost(10.1e-6, 0.9e-6, 4e-6, share=0.952, own_passes=3.35, fill=0.681),
    },
    pcie_share=0.492,
    network_share=0.969,
    staged_share=0.619,
)
EARLIER_COSTS = replace(
    DEFAULT_COSTS,
    protocols={
        "LL": ProtocolCost(11.2e-6, 0.35e-6, 6e-6, share=0.255, channel_Bps=2.96e9, wire=2.0),
        "LL128": ProtocolCost(34.3e-6, 2.02e-6, 24.3e-6, share=0.866, wire=16 / 15, own_passes=4.42),
        "Simple": ProtocolCost(29.7e-6, 4.03e-6, 12.9e-6, share=1.0, own_passes=4.42),
        "NVLS": ProtocolCost(59.5e-6, 0.0, 0.0, share=0.706, fill=0.617),
        "P2P": ProtocolCost(29.6e-6, 3.74e-6, 4e-6, share=1.0, own_passes=3.59, fill=0.629),
    },
)
RECENT = (2, 23)  # the oldest version whose kernels are known to cost what DEFAULT_COSTS says

_REFERENCE_HZ = 1.41e9  # A100's clock: its pace is 1
# By generation (tables.generation).  Blackwell's steps take longer than its clock says: flags pass from die to die.
_PACE = (1.0, 1.0, 1.0, 1.4)


def costs_of(version: tuple[int, int] | None) -> Costs:
    """Return the costs of NCCL's *version*; where a measurement does not say, it is taken for an earlier one."""
    return DEFAULT_COSTS if version is not None and version >= RECENT else EARLIER_COSTS


def pace_of(part: Part | None) -> float:
    """Return how long the steps of a GPU of *part* take against those of an A100."""
    clock_Hz = (part.max_clock or part.boost_clock) if isinstance(part, GpuPart) else None
    if not isinstance(part, GpuPart) or clock_Hz is None:
        return 1.0
    major, _, minor = (part.compute_capability or "0.0").partition(".")
    return _PACE[generation(10 * int(major) + int(minor))] * _REFERENCE_HZ / clock_Hz
