"""What each version of NCCL can do, and the chips that it was built for: ``nccl.yaml``, with sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from simulator.package_data import own_data

Version = tuple[int, int]
"""Major and minor version, such as (2, 18)."""
_Algorithm = Literal["tree", "ring", "nvls", "nvls_tree", "pat"]
_Transport = Literal["send-recv", "pxn", "cumem", "lazy", "peers", "sockets", "amd_sockets"]
Feature = Literal[_Algorithm, _Transport, "ll128", "search", "strict"]
OLDEST_RULES: Version = (2, 6)  # the oldest version whose planning tables are known


class VersionNote(str):
    """What an answer says of the version of NCCL that it assumes."""

    __slots__ = ()


def _first(kind: str) -> Mapping[Any, Version]:
    told = own_data("simulator.questions", "nccl.yaml")[kind]
    return {name: (major, minor) for name, (major, minor, _) in told.items()}


FEATURES: Mapping[Feature, Version] = _first("features")
"""The first version with each feature."""
CHIPS: Mapping[int, Version] = _first("chips")
"""By the least compute capability of a generation: the first version made for it."""


def has(version: Version, feature: Feature) -> bool:
    """Return whether *version* has *feature*."""
    return version >= FEATURES[feature]


def chip_since(capability: int) -> Version:
    """Return the first version made for GPUs of a compute *capability*, such as 90 for 9.0."""
    return next((since for least, since in CHIPS.items() if capability >= least), (2, 0))


def version_words(version: Version) -> str:
    """Return *version* as people write it: 2.18."""
    return ".".join(map(str, version))
