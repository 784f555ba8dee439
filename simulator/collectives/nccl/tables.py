"""The numbers by which NCCL plans, of 2.30.7 or by version (docs/decisions/collectives.md)."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args

from simulator.network.machine import Link, Node
from simulator.questions.collective import Algorithm, Protocol
from simulator.questions.where import NCCL_TODAY, Version, VersionNote, chip_since, has, version_words
from simulator.records import dataclass, own_data
from simulator.topology.parts import CpuPart
from simulator.workload import Collective

PathType = Literal["loc", "nvl", "nvb", "c2c", "pix", "pxb", "p2c", "pxn", "phb", "sys", "net"]
PATH_TYPES: tuple[PathType, ...] = get_args(PathType)  # best first
CpuKind = Literal["intel", "amd", "arm", "ibm", "mixed", "other"]

Triple = tuple[float, float, float]

# tuning.cc: latencies (the rest, by version, is below)
PAT_LOG_SHARE = 3.5  # network hops of PAT overlap: each counts 1 / 3.5
PAT_LINEAR_US = 2.8  # per rank
POST_US, POST_AMD_US = 1.0, 2.0  # of one network operation for the proxy thread; Simple pays three times that


def generation(compute_capability: int) -> int:
    """Return the row of the tables: 0 for Volta and older, 1 Ampere, 2 Hopper, 3 Blackwell."""
    return sum(compute_capability >= first for first in (80, 90, 100))


TREE_CORRECTED_UP_TO = 22  # last index for trees; NVLS trees use one more

# enqueue.cc: channels and threads
MAX_CHANNELS = 64
NVLS_THREADS = 640
MAX_NVLS_HEADS = 32
FEW_THREADS = 256  # for a Simple ring no faster than one PCIe 3 x16
NVLS_CHUNK = 128 * 1024  # bytes of one head in one channel (src/transport/nvls.cc)
NVLS_CHUNK_EFA = 512 * 1024  # as the plugin for EFA sets it (aws/aws-ofi-nccl, log of issue 715)
NVLS_TREE_CHUNK_FAR, NVLS_TREE_FAR_HOSTS = 64 * 1024, 4  # largest chunk in bytes, with this many machines or more
RING_CHUNK = 2048 * 1024  # bytes of a rank's part in one channel of a Simple ring: four steps of 512 KiB (device.h)
P2P_CHUNK = 512 * 1024  # bytes of a channel over NVLink (src/init.cc)
P2P_CHANNELS = 32  # of point to point if a switch joins the GPUs

# Algorithms of each collective; speeds tried for a channel (search.cc), by GPU generation, fastest first; caps of NVLS
# (tuning.cc; rows by generation, columns for 1, 2 and more nodes), and with fewer rounds of chunks than so many, the
# largest chunk in bytes; GB/s between sockets (topo.h, topo.cc of 2.30.7 and later, and copies of 2.13 to 2.28): by a
# part of the architecture's name ("": any), "planned" by vendor (AMD's designs count in what is reached after 2.30);
# of an NVLink, by the first and last compute capability (topo.h; GA102, 8.6, has slower links than GA100).
PLANS: Mapping[str, Any] = own_data("simulator.collectives.nccl", "plans.json")

# topo.h: link bandwidths for the search, in GB/s
PCIE3_X16 = 12.0
LOCAL = 5000.0
INTEL_P2P_OVERHEAD = 6 / 5  # factor on the load of each PCIe link between GPUs through an Intel CPU


def planned_nvlink(compute_capability: int) -> float:
    """Return NCCL's GB/s for one NVLink, in one direction, of a GPU of *compute_capability* (70 for 7.0)."""
    return float(next(speed for first, last, speed in PLANS["nvlink"] if first <= compute_capability <= last))


def planned_pcie(nominal_Bps: float) -> float:
    """Return NCCL's GB/s for a PCIe link of *nominal_Bps*: lanes x 60 / 80, rounded to a power of two if within 4 %."""
    lanes = nominal_Bps / (8e9 * 128 / 130 / 8)
    whole = 2.0 ** round(math.log2(lanes))
    return (whole if abs(lanes / whole - 1) < 0.04 else lanes) * 60 / 80


def cpu_kind(node: Node) -> CpuKind:
    """Return the vendor of a CPU."""
    return node.part.vendor if isinstance(node.part, CpuPart) else "other"


def planned_socket(cpu: Node, link: Link | None, version: Version) -> float:
    """Return what NCCL's *version* plans in GB/s from *cpu* over *link* to another socket."""
    vendor = cpu_kind(cpu)
    if vendor == "intel":
        return _of_design(cpu, "intel" if has(version, "sockets") else "intel before")
    if vendor == "amd" and not has(version, "amd_sockets"):
        return LOCAL
    return float(PLANS["sockets"]["planned"].get(vendor, link.bandwidth_Bps / 1e9 if link is not None else LOCAL))


def peers_between_sockets_bps(cpu: Node) -> float:
    """Return the B/s of all direct copies from the socket *cpu* to another (NVIDIA/nccl#2036), or infinity."""
    vendor = cpu_kind(cpu)
    return 1e9 * _of_design(cpu, vendor) if vendor in ("intel", "amd") else math.inf


def _of_design(cpu: Node, rates: str) -> float:
    architecture = cpu.part.architecture.lower() if isinstance(cpu.part, CpuPart) else ""
    return float(next(rate for name, rate in PLANS["sockets"][rates] if name in architecture))


def search_speeds(compute_capability: int, *, inter: bool) -> tuple[float, ...]:
    """Return the speeds in GB/s that the search tries, fastest first, given the communicator's lowest capability."""
    return tuple(PLANS["speeds"]["network" if inter else "inside"][sum(compute_capability >= n for n in (90, 100))])


Rows = tuple[Triple, ...]


class Latencies(NamedTuple):
    """Base latency of an algorithm, and latency per hop over NVLink, PCIe and the network; by protocol."""

    base_us: Triple
    nvlink_us: Triple
    pcie_us: Triple
    network_us: Triple


@dataclass(frozen=True, slots=True)
class Rules:
    """The tables and formulas of one version; shares are of the rings' planned bandwidth, ``*_max`` per channel."""

    version: Version
    latencies: Mapping[Algorithm, Latencies]
    ll_max: Rows  # whole; by generation on one node, else by vendor of the CPUs
    tree_max: Rows
    tree_correction: Mapping[Protocol, tuple[float, ...]]  # share reached, by floor(log2(size / 64 B))
    ring_ll_share: tuple[float, float]  # for all-reduce, reduce and several nodes, and otherwise
    ring_ll128_share: tuple[float, float]  # for several ranks on a node, and for one
    ring_ll128_max: Rows
    ring_ll128_total: Mapping[Collective, float] | None
    ll128_each: Mapping[Collective, float] | None  # of a channel of rings and trees
    tree_share: float
    tree_total_max: Triple  # whole
    tree_ll_share: float
    tree_ll128_share: tuple[float, float]
    tree_ll128_max: Rows
    tree_alone: float
    bus_max: tuple[float, ...]  # whole
    crossing: Literal["all", "nodes", "between"]  # steps of a ring's all-reduce that cross the network
    ll_hop_factor: float
    nic_latency: Literal["adds", "replaces", "ignored"]
    posts: bool
    alone_as_tree: bool
    plateau: tuple[float, ...]  # factor on a ring's latency over nodes from a size per rank or channel on
    plateau_by_channel: bool
    ll128_on: tuple[int, ...] | None  # compute capabilities; None: from 7.0 on
    ll128_inside: Literal["nvl", "nvb"]
    nvls: Literal["ring", "intra", "both", "efficiency"]  # formula of its bandwidth
    nvls_gathers: bool


def rules_of(version: Version) -> Rules:
    """Return the rules of *version*: those of the newest known one up to it, or of the oldest."""
    return next((rules for rules in reversed(KNOWN) if rules.version <= version), KNOWN[0])


def version_notes(version: Version, capability: int) -> list[VersionNote]:
    """Return what to say of an earlier *version* on GPUs of the compute *capability*, such as 90 for 9.0."""
    told = []
    own, rules, since = version_words(version), rules_of(version).version, chip_since(capability)
    if version < NCCL_TODAY:
        whose = f"the tables of {version_words(rules)}, the newest known before it"
        if rules == version:
            whose = "its own tables"
        elif rules > version:
            whose = f"the tables of {version_words(rules)}, the oldest known, without what came later"
        told.append(f"NCCL {own} chooses by {whose}, among the rings that {version_words(NCCL_TODAY)} finds")
    if version < since:
        told.append(
            f"NCCL {own} is older than these GPUs (compute capability {capability / 10:.1f}), for which "
            f"{version_words(since)} is the first: it runs only where the driver translates its kernels, and no such "
            "time is measured"
        )
    return [VersionNote(each) for each in told]


def _read(value: Any) -> Any:
    """Return *value* of the file with tuples for lists, in which null is no limit, and with quotients such as 7/9."""
    if isinstance(value, list):
        return tuple(math.inf if each is None else _read(each) for each in value)
    if isinstance(value, dict):
        return {key: _read(each) for key, each in value.items()}
    if isinstance(value, str) and "/" in value:
        above, _, below = value.partition("/")
        return float(above) / float(below)
    return value


def _written() -> Iterator[Rules]:
    """Yield the rules in ``rules.json``, newest version first; each is written as what differs from the one before."""
    known: dict[str, Any] = {}
    for version, written in own_data("simulator.collectives.nccl", "rules.json").items():
        known |= _read({name: value for name, value in written.items() if name != "from"})
        known["latencies"] = {name: Latencies(**rows) for name, rows in _read(written["latencies"]).items()}
        major, minor = version.split(".")
        yield Rules(version=(int(major), int(minor)), **known)


KNOWN: tuple[Rules, ...] = tuple(_written())[::-1]
"""All known rules, the oldest version first."""
