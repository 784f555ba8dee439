"""The names of vendors' tools in advice: :func:`named_for`."""

from __future__ import annotations

from collections.abc import Iterable

_OF_AMD = (  # the longest first
    ("nvidia-smi topo -p2p r", "amd-smi topology"),
    ("nvidia-smi topo -m", "rocm-smi --showtopo"),
    ("nvidia-smi nvlink -s", "amd-smi xgmi"),
    ("nvidia-smi -q", "amd-smi static"),
    ("nvidia-smi -L", "amd-smi list"),
    ("p2pBandwidthLatencyTest", "rocm-bandwidth-test"),
    ("nvbandwidth", "rocm-bandwidth-test"),
    ("--use_cuda", "--use_rocm"),
    ("nvidia-peermem", "ib_peer_mem"),
    (" (fabric manager, links down)", " (links down)"),
    ("NVLink", "xGMI"),
)
"""What AMD's machines have in place of NVIDIA's (ROCm's amd-smi and rocm-smi, linux-rdma/perftest, RCCL's README)."""


def named_for(words: str, vendors: Iterable[str]) -> str:
    """Return *words* with AMD's tools in place of NVIDIA's where all GPUs are AMD's, as *vendors* say."""
    if {*vendors} != {"amd"}:
        return words
    for nvidia, amd in _OF_AMD:
        words = words.replace(nvidia, amd)
    return words
