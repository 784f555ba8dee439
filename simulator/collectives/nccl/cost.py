"""What NCCL's kernels cost on top of the links: launch, protocol latency, share of the link.

NCCL's own planning numbers (``tables.py``) decide what it chooses; they are too rough to say how long that takes.
These constants do, on every machine (``simulator/constants/nccl.json``, docs/decisions/nccl-costs.md).

A collective takes

    max(launch, pace x (base + hops x hop) + network hops x network hop + latency of the routes
                + bytes / min(share x bandwidth of the links, channels x rate of a channel)
                + passes x own part / bandwidth of the memory
                + fill x first window x (1 / bandwidth of the links + network stages / bandwidth of the NICs)
                + pace x rounds of chunks x (hop + heads x head))

where launch is the time that one host thread needs to start a kernel on each GPU that it
drives: collectives that follow each other cannot go faster than they are launched.  The pace is
that of the GPU's own steps, which its clock sets.

Recent versions take half the time of earlier ones between 64 KB and 4 MB on the same machine, so
there are constants of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from simulator.collectives.nccl.tables import generation
from simulator.constants import DEFAULT, Constants, Each, constants
from simulator.topology.parts import GpuPart, Part

__all__ = ["RECENT", "Costs", "NcclConstants", "ProtocolCost", "costs_of"]

RECENT = (2, 23)  # the oldest version whose kernels are known to cost what the constants of recent ones say
_REFERENCE_HZ = 1.41e9  # A100's clock: its pace is 1
_BLACKWELL = 3  # by tables.generation


@dataclass(frozen=True, slots=True)
class ProtocolCost:
    """One protocol: LL, LL128, Simple, or a feature with costs of its own (NVLS, point to point).

    ``base_s`` is paid once, ``hop_s`` by every hop inside a machine and ``net_hop_s`` by every
    hop between machines, on top of the route's latency.  The links are used at ``share`` of
    what they reach, and a channel (one block of threads) moves data at ``channel_Bps`` at most.
    ``wire`` is how many bytes cross the link for each byte of data (flags beside the data).

    A GPU that drives its links does more than send.  ``own_passes`` is how often the part that a rank keeps (1/n: the
    last step of a ring only receives, all-to-all copies it) goes through its memory.  ``fill`` is the share of the
    first window, all chunks that are under way at once, in which the links are not yet used, for each stage but the
    first.  NVLS serves its heads one after the other in each round of chunks, ``head_s`` each.
    """

    base_s: float
    hop_s: float = 0.0
    net_hop_s: float = 0.0
    share: float = 1.0
    channel_Bps: float = float("inf")
    wire: float = 1.0
    own_passes: float = 0.0
    fill: float = 0.0
    head_s: float = 0.0


@constants("nccl")
@dataclass(frozen=True, slots=True)
class NcclConstants:
    """All constants: the protocols' are of recent versions, and of earlier ones.

    ``launch_s`` is the start of one kernel on one GPU, ``peer_launch_s`` of each peer of a point-to-point group beyond
    that.  ``pcie_share`` is the share of a PCIe link that one flow between GPUs reaches through a CPU;
    ``network_share`` that of a NIC, ``staged_share`` where the bytes go to the NIC through host memory.
    """

    PARTS: ClassVar = {"recent": Each(ProtocolCost), "earlier": Each(ProtocolCost)}
    launch_s: float
    peer_launch_s: float
    pcie_share: float
    network_share: float
    staged_share: float
    blackwell_pace: float
    recent: Mapping[str, ProtocolCost]
    earlier: Mapping[str, ProtocolCost]


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """The constants, and the protocols' of one version."""

    shared: NcclConstants
    protocols: Mapping[str, ProtocolCost]

    def pace(self, part: Part | None) -> float:
        """Return how long the steps of a GPU of *part* take against those of an A100.

        Blackwell's take longer than its clock says: flags pass from die to die.
        """
        clock_Hz = (part.max_clock or part.boost_clock) if isinstance(part, GpuPart) else None
        if not isinstance(part, GpuPart) or clock_Hz is None:
            return 1.0
        major, _, minor = (part.compute_capability or "0.0").partition(".")
        is_blackwell = generation(10 * int(major) + int(minor)) == _BLACKWELL
        return (self.shared.blackwell_pace if is_blackwell else 1.0) * _REFERENCE_HZ / clock_Hz


def costs_of(version: tuple[int, int], known: Constants = DEFAULT) -> Costs:
    """Return the costs of NCCL's *version*."""
    shared = known(NcclConstants)
    return Costs(shared, shared.recent if version >= RECENT else shared.earlier)
