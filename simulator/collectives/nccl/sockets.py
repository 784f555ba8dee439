"""What NCCL plans between the sockets of a machine, and what GPUs that copy directly reach there.

From ``src/graph/topo.h`` and ``topo.cc`` of NVIDIA/nccl: 5067397c (2.30.7) and later, and copies of 2.13 to 2.28.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.collectives.nccl.tables import LOCAL, CpuKind
from simulator.network.machine import Link, Node
from simulator.questions.nccl import Version, has
from simulator.topology.parts import CpuPart

# GB/s by architecture (substring of the part's, lower case), then by vendor.
_Rates = tuple[tuple[tuple[str, ...], float], ...]
_SKYLAKE = ("skylake", "cascade", "cooper", "ice lake")
_INTEL: _Rates = ((("emerald", "granite"), 40.0), (("sapphire",), 22.0), (_SKYLAKE, 10.0))
_INTEL_BEFORE: _Rates = (((*_SKYLAKE, "sapphire", "emerald", "granite"), 10.0),)  # all from Skylake on alike
_INTEL_OLD = 6.0
_AMD: _Rates = ((("turin",), 32.0), (("milan", "genoa"), 24.0))  # after 2.30; before that all as _BY_VENDOR says
_BY_VENDOR: Mapping[CpuKind, float] = {"amd": 16.0, "ibm": 32.0, "arm": 6.0}


def cpu_kind(node: Node) -> CpuKind:
    """Return the vendor of a CPU."""
    return node.part.vendor if isinstance(node.part, CpuPart) else "other"


def planned_socket(cpu: Node, link: Link | None, version: Version) -> float:
    """Return what NCCL's *version* plans in GB/s from *cpu* over *link* to another socket."""
    vendor = cpu_kind(cpu)
    if vendor == "intel":
        return _of_design(cpu, _INTEL if has(version, "sockets") else _INTEL_BEFORE, _INTEL_OLD)
    if vendor == "amd" and not has(version, "amd_sockets"):
        return LOCAL
    return _BY_VENDOR.get(vendor, link.bandwidth_Bps / 1e9 if link is not None else LOCAL)


def peers_between_sockets_bps(cpu: Node) -> float:
    """Return the B/s from the socket *cpu* to another one of GPUs that copy directly, all together.

    Their writes cross sockets more slowly than accesses to memory do.  NCCL's newest planning figures are what they
    reach: NVIDIA/nccl#2036 measured 32 GB/s between two GPUs at two EPYC 9575F, and that became the figure.  Infinite
    for CPUs of which NCCL has no such figure.
    """
    vendor = cpu_kind(cpu)
    if vendor == "intel":
        return 1e9 * _of_design(cpu, _INTEL, _INTEL_OLD)
    return 1e9 * _of_design(cpu, _AMD, _BY_VENDOR["amd"]) if vendor == "amd" else float("inf")


def _of_design(cpu: Node, rates: _Rates, otherwise: float) -> float:
    architecture = cpu.part.architecture.lower() if isinstance(cpu.part, CpuPart) else ""
    return next((rate for names, rate in rates if any(name in architecture for name in names)), otherwise)
