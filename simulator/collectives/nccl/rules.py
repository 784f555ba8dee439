"""The tables by which NCCL's tuner chooses, of each version whose source is known.

From ``src/graph/tuning.cc`` (Apache-2.0), at the commits named beside each version.  They are planning figures, not
measurements.  As in NCCL, latencies are in microseconds and bandwidths in GB/s = 1e9 B/s; rows are GPU generations
(Volta and older, Ampere, Hopper, Blackwell) and columns 1, 2 and more nodes.

A version between two known ones chooses by the older.  The search for rings is that of 2.30 for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from simulator.collectives.nccl.tables import Triple
from simulator.questions.collective import Algorithm, Protocol
from simulator.questions.nccl import Version, VersionNote, chip_since, version_words
from simulator.questions.where import NCCL_TODAY
from simulator.records import dataclass, replace
from simulator.workload import Collective

Rows = tuple[Triple, ...]
_NONE = (0.0, 0.0, 0.0)
_ANY = (math.inf, math.inf, math.inf)


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
    ring_ll_share: tuple[float, float] = (1 / 2, 1 / 2)
    ring_ll128_share: tuple[float, float] = (0.92, 0.92)
    ring_ll128_max: Rows = (_ANY,) * 4
    ring_ll128_total: Mapping[Collective, float] | None = None
    ll128_each: Mapping[Collective, float] | None = None
    tree_share: float = 0.92
    tree_total_max: Triple = _ANY
    tree_ll_share: float = 1 / 3.8
    tree_ll128_share: tuple[float, float] = (7 / 9, 120 / 128)
    tree_ll128_max: Rows = (_ANY,) * 4
    tree_alone: float = 0.85
    bus_max: tuple[float, ...] = (math.inf,) * 4
    crossing: Literal["all", "nodes", "between"] = "between"
    ll_hop_factor: float = 1.0
    nic_latency: Literal["adds", "replaces", "ignored"] = "adds"
    posts: bool = True
    alone_as_tree: bool = True
    plateau: tuple[float, ...] = (1.9, 1.4, 1.4, 1.4)
    plateau_by_channel: bool = True
    ll128_on: tuple[int, ...] | None = None  # compute capabilities; None: from 7.0 on
    ll128_inside: Literal["nvl", "nvb"] = "nvb"
    nvls: Literal["ring", "intra", "both", "efficiency"] = "efficiency"
    nvls_gathers: bool = True


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


_LL_2_13: Rows = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (87.7, 22.5, 19.0), (87.7, 22.5, 19.0))
_LL_2_24: Rows = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
_RING_LL128: Rows = ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (40.0, 40.0, 40.0))
_TREE_LL128: Rows = ((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
_TREE: Rows = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
_CORRECTION: Mapping[Protocol, tuple[float, ...]] = {
    "LL": (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0),
    ),
    "LL128": (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0),
    ),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
_CORRECTION_2_6: Mapping[Protocol, tuple[float, ...]] = {
    "LL": (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 1.0, 1.0, 1.0),
    ),
    "LL128": (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.8, 0.7),
        *(0.7, 0.7, 0.6, 0.6, 0.7, 0.7, 0.8, 0.8, 0.9, 0.9, 1.0),
    ),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6),
        *(0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9),
    ),
}
_RING_LATENCIES = Latencies((6.6, 14.0, 8.4), (0.6, 1.9, 3.4), (1.0, 2.5, 5.7), (2.7, 4.0, 14.0))
_PAT = Latencies((8.0, 8.0, 8.0), (0.0, 0.0, 4.0), (0.0, 0.0, 4.0), (0.0, 0.0, 14.0))

_2_30 = Rules(  # NVIDIA/nccl@5067397c (2.30.7)
    version=(2, 30),
    latencies={
        "tree": Latencies((6.8, 14.0, 8.4), (0.6, 1.25, 4.0), (1.0, 1.9, 4.0), (5.0, 8.5, 14.0)),
        "ring": _RING_LATENCIES,
        "nvls": Latencies(_NONE, (0.0, 0.0, 25.0), _NONE, (0.0, 0.0, 18.0)),
        "nvls_tree": Latencies(_NONE, (0.0, 0.0, 25.0), _NONE, (0.0, 0.0, 20.9)),
        "pat": _PAT,
    },
    ll_max=_LL_2_24,
    tree_max=_TREE,
    tree_correction=_CORRECTION,
    ring_ll128_max=_RING_LL128,
    tree_ll128_max=_TREE_LL128,
)
_2_24 = replace(  # ruben-laso/nccl@3704cac2, a fork of a version with RAS, which came with 2.24
    _2_30,
    version=(2, 24),
    latencies={
        **_2_30.latencies,
        "nvls_tree": Latencies(_NONE, (0.0, 0.0, 25.0), _NONE, (0.0, 0.0, 14.0)),
    },
    ll128_on=(70, 80, 90),
    nvls="both",
)
_2_20 = replace(  # NVIDIA/nccl@b6475625 (2.20.3)
    _2_24,
    version=(2, 20),
    latencies={
        "tree": Latencies((6.8, 14.0, 0.0), (0.6, 1.25, 28.0), (1.0, 1.9, 28.0), (5.0, 8.5, 28.0)),
        "ring": _RING_LATENCIES,
        "nvls": Latencies(_NONE, (0.0, 0.0, 23.0), _NONE, (0.0, 0.0, 18.0)),
        "nvls_tree": Latencies(_NONE, (0.0, 0.0, 23.0), _NONE, (0.0, 0.0, 14.0)),
        "pat": _PAT,  # 2.23 has it, with the figures of 2.24
    },
    ll_max=_LL_2_13,
    ring_ll_share=(1 / 4, 1 / 3),
    ring_ll128_share=(0.92, 0.7),
    crossing="nodes",
    alone_as_tree=False,
)
_2_18 = replace(  # wfu-fb/nccl@1f220ee0 (2.18.3)
    _2_20,
    version=(2, 18),
    latencies={
        "tree": Latencies((6.8, 14.0, 0.0), (0.6, 1.25, 4.0), (1.0, 1.9, 6.0), (5.0, 8.5, 14.0)),
        "ring": _RING_LATENCIES,
        "nvls": Latencies((0.0, 0.0, 23.0), _NONE, _NONE, (0.0, 0.0, 18.0)),
        "nvls_tree": Latencies((0.0, 0.0, 23.0), _NONE, _NONE, (0.0, 0.0, 19.0)),
    },
    nvls="intra",
    nvls_gathers=False,
)
_2_17 = replace(  # NVIDIA/nccl@5d3ab08b (2.17.1)
    _2_18,
    version=(2, 17),
    latencies={
        "tree": Latencies((4.4, 4.4, 0.0), (0.52, 1.25, 28.0), (1.0, 1.9, 28.0), (5.0, 8.5, 28.0)),
        "ring": Latencies((3.6, 10.0, 8.4), (0.47, 1.9, 3.4), (1.0, 2.5, 5.7), (2.7, 4.0, 9.6)),
        "nvls": Latencies((0.0, 0.0, 40.0), _NONE, _NONE, _NONE),
    },
    tree_max=(*_TREE[:2], (38.7, 41.4, 33.0), (38.7, 41.4, 33.0)),
    ring_ll128_max=((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (36.7,) * 3),
    tree_ll128_max=((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (36.7,) * 3),
    tree_alone=1.0,
    bus_max=(math.inf, 235.0, 370.0, 370.0),
    ll_hop_factor=1.8,
    nic_latency="replaces",
    posts=False,
    plateau=(1.9, 1.9, 1.5, 1.5),
    plateau_by_channel=False,
    ll128_inside="nvl",
    nvls="ring",
    nvls_gathers=True,
)
_2_13 = replace(  # Oneflow-Inc/occl@2f7b9326, a fork of 2.13.2
    _2_17,
    version=(2, 13),
    latencies={
        "tree": _2_17.latencies["tree"],
        "ring": Latencies((3.6, 10.0, 8.4), (0.47, 1.9, 3.4), (1.0, 2.5, 5.7), (2.7, 4.0, 28.0)),
    },
    tree_max=(*_TREE[:2], _TREE[1], _TREE[1]),
    ring_ll128_max=((20.0,) * 3,) * 4,
    tree_ll128_max=((20.0,) * 3,) * 4,
    bus_max=(math.inf, 235.0, math.inf, math.inf),
    plateau=(1.9,) * 4,
    ll128_on=(70, 80),
)
_LL128_2_8: Mapping[Collective, float] = {
    "broadcast": 18.8,
    "reduce": 12.0,
    "all-gather": 18.3,
    "reduce-scatter": 15.2,
    "all-reduce": 16.9,
}
_2_8 = replace(  # NVIDIA/nccl@920dbe5b (2.8.3)
    _2_13,
    version=(2, 8),
    latencies={
        "tree": _2_17.latencies["tree"],
        "ring": _2_17.latencies["ring"],
    },
    tree_max=(_TREE[0], *((24.0, 22.5, 16.0),) * 3),
    tree_correction={
        **_CORRECTION,
        "LL128": (
            *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
            *(0.6, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9, 0.92, 0.92),
        ),
    },
    ring_ll128_max=(_ANY,) * 4,
    tree_ll128_max=(_ANY,) * 4,
    ll128_each=_LL128_2_8,
    tree_ll128_share=(7 / 9, 0.915),
    crossing="between",
    nic_latency="ignored",
)
_2_6 = replace(  # yzs981130/nccl@543e9067, a fork of 2.6.2
    _2_8,
    version=(2, 6),
    latencies={
        "tree": Latencies((4.4, 4.4, 0.0), (0.5, 1.9, 28.0), (1.0, 1.9, 28.0), (5.0, 7.5, 50.0)),
        "ring": Latencies((3.6, 3.6, 8.4), (0.4, 2.5, 5.7), (1.0, 2.5, 5.7), (0.9, 2.5, 6.6)),
    },
    ll_max=(_ANY,) * 4,
    tree_max=(_ANY,) * 4,
    tree_correction=_CORRECTION_2_6,
    ring_ll_share=(1 / 4, 1 / 4),
    ring_ll128_share=(120 / 128, 120 / 128),
    ring_ll128_total={
        "broadcast": 113.0,
        "reduce": 72.0,
        "all-gather": 110.0,
        "reduce-scatter": 91.0,
        "all-reduce": 100.0,
    },
    tree_share=0.9,
    tree_total_max=(110.0, 110.0, 80.0),
    tree_ll_share=1 / 3,
    tree_ll128_share=(7 / 9, 7 / 9),
    ll128_each=None,
    bus_max=(math.inf,) * 4,
    crossing="all",
    ll_hop_factor=1.0,
    plateau=(1.0,) * 4,
    ll128_on=(70,),
)
KNOWN: tuple[Rules, ...] = (_2_6, _2_8, _2_13, _2_17, _2_18, _2_20, _2_24, _2_30)
"""All known rules, the oldest version first."""
