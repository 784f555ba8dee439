"""The names of vendors' tools in advice: :func:`named_for`."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.package_data import own_data

_OF_AMD = own_data("validate.machine", "tools.yaml")


def named_for(words: str, vendors: Iterable[str]) -> str:
    """Return *words* with AMD's tools in place of NVIDIA's where all GPUs are AMD's, as *vendors* say."""
    if {*vendors} != {"amd"}:
        return words
    for nvidia, amd in _OF_AMD.items():
        words = words.replace(nvidia, amd)
    return words
