"""Costs of NCCL's kernels on top of the links: launch, protocol latency, achieved share of the link rate.

NCCL's planning numbers (``tables.py``) determine its choices, but are too rough to predict times.  The constants here
do that, for all machines (``simulator/constants/nccl.json``, docs/decisions/nccl-costs.md).

A collective takes

    max(launch, pace x (base + hops x hop) + network hops x network hop + latency of the routes
                + bytes / min(share x bandwidth of the links, channels x rate of a channel)
                + passes x own part / bandwidth of the memory
                + fill x first window x (1 / bandwidth of the links + network stages / bandwidth of the NICs)
                + pace x rounds of chunks x (hop + heads x head))

where launch is the time one host thread takes to start a kernel on each of its GPUs: successive collectives cannot run
faster than they are launched.  The pace scales the GPU's own steps with its clock.

Recent versions take half the time of earlier ones between 64 KB and 4 MB on the same machine, so each has its own
constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from simulator.collectives.nccl.paths import capability
from simulator.collectives.nccl.tables import NVLS_EFFICIENCY, generation
from simulator.constants import DEFAULT, Constants, Each, constants
from simulator.network.machine import Node
from simulator.records import dataclass, replace
from simulator.topology.parts import GpuPart, Part

RECENT = (2, 23)  # the oldest version known to match the constants of recent versions
_REFERENCE_HZ = 1.41e9  # clock of the A100, whose pace is 1
_HOPPER, _BLACKWELL = 2, 3  # as returned by tables.generation


@dataclass(frozen=True, slots=True)
class ProtocolCost:
    """The cost of one protocol (LL, LL128, Simple), or of a feature with its own costs (NVLS, point to point).

    ``base_s`` is paid once, ``hop_s`` for every hop inside a machine and ``net_hop_s`` for every hop between machines,
    on top of the route's latency.  Links run at ``share`` of their bandwidth, and a channel (one thread block) at
    ``channel_Bps`` at most.  ``wire`` is the number of bytes on the link per byte of data (flags accompany the data).

    The threads that drive the links have other work too.  ``own_passes`` is the number of times that the rank's own
    part (1/n of the data) passes through its memory: the last step of a ring only receives, and all-to-all copies this
    part.  ``fill`` is the fraction of the first window (all chunks in flight) during which links are idle, for each
    stage but the first.  In each round of chunks, NVLS serves its heads one after another, ``head_s`` each.
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
    """All constants of NCCL, with protocol costs for recent and for earlier versions.

    ``launch_s`` is the time to start one kernel on one GPU, and ``peer_launch_s`` the extra time for each peer of a
    point-to-point group.  ``pcie_share`` is the fraction of a PCIe link's rate that one flow between GPUs reaches
    through a CPU; ``network_share`` is that of a NIC, or ``staged_share`` if bytes reach the NIC through host memory.
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
class NcclCosts:
    """The shared constants, and the protocol costs of one version."""

    shared: NcclConstants
    protocols: Mapping[str, ProtocolCost]

    def pace(self, part: Part | None) -> float:
        """Return the duration of a step on a GPU of *part* relative to an A100; 1 if the clock is unknown.

        Blackwell's steps take longer than its clock suggests, because flags pass from die to die.
        """
        clock_Hz = (part.max_clock or part.boost_clock) if isinstance(part, GpuPart) else None
        if not isinstance(part, GpuPart) or clock_Hz is None:
            return 1.0
        major, _, minor = (part.compute_capability or "0.0").partition(".")
        is_blackwell = generation(10 * int(major) + int(minor)) == _BLACKWELL
        return (self.shared.blackwell_pace if is_blackwell else 1.0) * _REFERENCE_HZ / clock_Hz

    def nvls(self, gpus: Iterable[Node], *, several: bool) -> ProtocolCost:
        """Return the cost of NVLS on *gpus*, of one machine or of *several*, where trees join the heads.

        Hopper's share counts, as NCCL has no NVLS on older GPUs; a younger GPU's links reach less of it by NCCL's own
        figures (NVLS_EFFICIENCY).
        """
        cost = self.protocols["NVLSTree" if several else "NVLS"]
        least = min(NVLS_EFFICIENCY[generation(capability(gpu))] for gpu in gpus)
        return replace(cost, share=cost.share * least / NVLS_EFFICIENCY[_HOPPER])


def costs_of(version: tuple[int, int], known: Constants = DEFAULT) -> NcclCosts:
    """Return the costs of NCCL's *version*, (major, minor)."""
    shared = known(NcclConstants)
    return NcclCosts(shared, shared.recent if version >= RECENT else shared.earlier)
