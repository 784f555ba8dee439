"""The tables by which NCCL's tuner chooses, of each version whose source is known.

``rules.json`` has them, from ``src/graph/tuning.cc`` (Apache-2.0) at the commits named there.  They are planning
figures, not measurements.  As in NCCL, latencies are in microseconds and bandwidths in GB/s = 1e9 B/s; rows are GPU
generations (Volta and older, Ampere, Hopper, Blackwell) and columns 1, 2 and more nodes.

A version between two known ones chooses by the older.  The search for rings is that of 2.30 for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from simulator.collectives.nccl.tables import Triple
from simulator.package_data import own_data
from simulator.questions.collective import Algorithm, Protocol
from simulator.questions.nccl import Version, VersionNote, chip_since, version_words
from simulator.questions.where import NCCL_TODAY
from simulator.records import dataclass
from simulator.workload import Collective

Rows = tuple[Triple, ...]


class Latencies(NamedTuple):
    """Base latency of an algorithm, and latency per hop over NVLink, PCIe and the network; by protocol."""

    base_us: Triple
    nvlink_us: Triple
    pcie_us: Triple
    network_us: Triple


@dataclass(frozen=True, slots=True)
class Rules:
    """The tables and formulas of one version.

    Shares are fractions of the rings' planned bandwidth; ``*_max`` limit it, per channel except ``bus_max``, ``ll_max``
    and ``tree_total_max``.  ``ring_ll_share`` holds for all-reduce, reduce and several nodes, and otherwise;
    ``ring_ll128_share`` for several ranks on a node, and for one.  ``ll128_each`` limits a channel of rings and trees.
    ``ll_max`` has rows by generation on one node, else by vendor of the CPUs.  ``tree_correction``: the share reached,
    by floor(log2(size / 64 B)).  ``crossing``: the steps of a ring's all-reduce that cross the network.  ``plateau``:
    factor on the latency of a ring over several nodes from a size per rank, or per rank and channel, on; by generation.
    ``nvls``: the formula of its bandwidth.
    """

    version: Version
    latencies: Mapping[Algorithm, Latencies]
    ll_max: Rows
    tree_max: Rows
    tree_correction: Mapping[Protocol, tuple[float, ...]]
    ring_ll_share: tuple[float, float]
    ring_ll128_share: tuple[float, float]
    ring_ll128_max: Rows
    ring_ll128_total: Mapping[Collective, float] | None
    ll128_each: Mapping[Collective, float] | None
    tree_share: float
    tree_total_max: Triple
    tree_ll_share: float
    tree_ll128_share: tuple[float, float]
    tree_ll128_max: Rows
    tree_alone: float
    bus_max: tuple[float, ...]
    crossing: Literal["all", "nodes", "between"]
    ll_hop_factor: float
    nic_latency: Literal["adds", "replaces", "ignored"]
    posts: bool
    alone_as_tree: bool
    plateau: tuple[float, ...]
    plateau_by_channel: bool
    ll128_on: tuple[int, ...] | None  # compute capabilities; None: from 7.0 on
    ll128_inside: Literal["nvl", "nvb"]
    nvls: Literal["ring", "intra", "both", "efficiency"]
    nvls_gathers: bool


def rules_of(version: Version) -> Rules:
    """Return the rules of *version*: those of the newest known one up to it, or of the oldest."""
    return next((rules for rules in reversed(KNOWN) if rules.version <= version), KNOWN[0])


def version_notes(version: Version, capability: int) -> list[VersionNote]:
    """Return what an answer says of an earlier *version*: whose rules it uses, and whether it knows the GPUs.

    *capability*: the newest GPU's compute capability, such as 90 for 9.0.
    """
    notes = []
    own, rules = version_words(version), rules_of(version).version
    if version < NCCL_TODAY:
        whose = f"the tables of {version_words(rules)}, the newest known before it"
        if rules == version:
            whose = "its own tables"
        elif rules > version:
            whose = f"the tables of {version_words(rules)}, the oldest known, without what came later"
        told = f"NCCL {own} chooses by {whose}, among the rings that {version_words(NCCL_TODAY)} finds"
        notes.append(VersionNote(told))
    if version < chip_since(capability):
        since = version_words(chip_since(capability))
        told = (
            f"NCCL {own} is older than these GPUs (compute capability {capability / 10:.1f}), for which {since} is "
            "the first: it runs only where the driver translates its kernels, and no such time is measured"
        )
        notes.append(VersionNote(told))
    return notes


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
