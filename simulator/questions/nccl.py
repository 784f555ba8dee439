"""What each version of NCCL can do, and the chips that it was built for, dated.

Sources are NVIDIA's release notes (docs.nvidia.com/deeplearning/nccl/release-notes, github.com/NVIDIA/nccl/releases),
or the oldest source known to have the feature and the newest known to lack it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Version = tuple[int, int]
"""Major and minor version, such as (2, 18)."""
Feature = Literal[
    "tree",
    "ring",
    "nvls",
    "nvls_tree",
    "pat",
    "ll128",
    "search",
    "send-recv",
    "pxn",
    "strict",
    "cumem",
    "lazy",
    "peers",
    "sockets",
    "amd_sockets",
]
OLDEST_RULES: Version = (2, 6)  # the oldest version whose planning tables are known


class VersionNote(str):
    """What an answer says of the version of NCCL that it assumes."""

    __slots__ = ()


class FirstVersion(NamedTuple):
    """The first version with something, and where that is said."""

    version: Version
    source: str


FEATURES: Mapping[Feature, FirstVersion] = {
    "ring": FirstVersion((2, 0), "the only algorithm before 2.4"),
    "tree": FirstVersion((2, 4), "v2.4.2-1: tree algorithms for allreduce"),
    "ll128": FirstVersion((2, 5), "LL128 is in the tables of 2.6.2 (src/graph/tuning.cc); UNVERIFIED: 2.5 or 2.6"),
    "search": FirstVersion(
        (2, 5), "src/graph/search.cc; before it src/transport/net.cc (groupBestEnd) ordered the ranks"
    ),
    "send-recv": FirstVersion((2, 7), "2.7.3: send/receive operations (beta)"),
    "pxn": FirstVersion(
        (2, 12), "PATH_PXN is in 2.17.1 and not in 2.11; UNVERIFIED: 2.12, as NVIDIA's blog on it says"
    ),
    "nvls": FirstVersion((2, 17), "in the tables of 2.17.1, for one node; not in 2.16.2's"),
    "nvls_tree": FirstVersion((2, 18), "2.18.1: inter-node algorithms for NVLink SHARP"),
    "strict": FirstVersion(
        (2, 24), "2.24.3: strict enforcement of NCCL_ALGO; before it rings stayed for all but all-reduce (issue 1304)"
    ),
    "cumem": FirstVersion((2, 19), "user guide, NCCL_CUMEM_ENABLE: since 2.19 used where the system supports it"),
    "lazy": FirstVersion((2, 22), "NCCL_RUNTIME_CONNECT (src/init.cc): in 178b6b75, not in 2.20.3; UNVERIFIED: 2.22"),
    "amd_sockets": FirstVersion(
        (2, 19),
        "AMD_BW in src/graph/topo.h; UNVERIFIED: 2.19, as the file with 20.6 for SM90 has it, not that with 20.0",
    ),
    "sockets": FirstVersion(
        (2, 28),
        "figures of Sapphire Rapids and Emerald Rapids in src/graph/topo.h; UNVERIFIED: 2.28, as the file that"
        " has 40.1 for SM100, and not the one with 40.0 (2.25 to 2.27)",
    ),
    "peers": FirstVersion((2, 20), "issue 1272: fewer channels to a peer among many ranks than in 2.19.4"),
    "pat": FirstVersion((2, 23), "not in the tables of 2.20.3; in those of 2.24; UNVERIFIED: 2.23"),
}
# By the least compute capability of a generation: the first version made for it.
CHIPS: Mapping[int, FirstVersion] = {
    100: FirstVersion((2, 25), "2.25.1: Blackwell/SM100 support"),
    90: FirstVersion((2, 16), "2.16.2: support for H100 features"),
    80: FirstVersion((2, 7), "2.7.3: support for A100 GPU and related platforms"),
}


def has(version: Version, feature: Feature) -> bool:
    """Return whether *version* has *feature*."""
    return version >= FEATURES[feature].version


def chip_since(capability: int) -> Version:
    """Return the first version made for GPUs of a compute *capability*, such as 90 for 9.0."""
    return next((since.version for least, since in CHIPS.items() if capability >= least), (2, 0))


def version_words(version: Version) -> str:
    """Return *version* as people write it: 2.18."""
    return ".".join(map(str, version))
