"""What a log shows besides its table: settings of NCCL (:func:`settings_in`), transports (:func:`shown_in`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = r"((?:NCCL|RCCL)_[A-Z0-9_]{1,60}|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES)"
_VALUE = r"(\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|[^\s;\"'`]{1,400})"
_GIVEN = re.compile(rf"\b{_NAME}(?:=|\s+set (?:by environment )?to )" + _VALUE, re.ASCII)
_SPACED = re.compile(rf"(?:-g?env|\bsetenv)\s{{1,20}}{_NAME}\s{{1,20}}" + _VALUE, re.ASCII)  # MPICH, csh
_SOCKETS = re.compile(r"\bUsing network Socket\b", re.ASCII)
_ABOUT_OUTPUT = ("NCCL_DEBUG", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE", "NCCL_TESTS_")


def settings_in(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings that *texts* show, each with its last value; those that change only output are left out.

    NCCL reports a setting as ``NCCL_ALGO set by environment to Ring.`` or ``NCCL_IB_HCA set to mlx5_0``
    (NVIDIA/nccl@5067397c ``src/misc/param.cc``, ``src/transport/net_ib.cc``); others stand on the command line or in
    the environment.  A value that a shell would still expand (``$ALGO``) is not known and left out too.  Sockets that
    NCCL reports to use are as if they were asked for.
    """
    found: dict[str, str] = {}
    for text in texts:
        for pattern in (_GIVEN, _SPACED):
            for name, value in pattern.findall(text):
                plain = value.strip("\"'").rstrip(".")
                if plain and "$" not in plain and not name.startswith(_ABOUT_OUTPUT):
                    found[name] = plain
        if _SOCKETS.search(text):
            found["NCCL_NET"] = "Socket"
    return tuple(found.items())


_SHOWN = {
    "RDMA": re.compile(r"\bUsing network (?:IB|AWS Libfabric|Libfabric|IBext\w*|GPUDirect)", re.ASCII),
    "GDRDMA": re.compile(r"\bvia NET/\S{1,40}/GDRDMA", re.ASCII),
    "no GDRDMA": re.compile(
        r"\bvia NET/(?!Socket)[^\s/]{1,30}/\d{1,3}(?:\(\d{1,3}\))?(?:\s|$)", re.ASCII | re.MULTILINE
    ),
    "P2P": re.compile(r"\bvia P2P/", re.ASCII),
    "no P2P": re.compile(r"\bvia SHM\b", re.ASCII),
    "NVLS": re.compile(r"\bNVLS multicast support is available", re.ASCII),
    "no NVLS": re.compile(r"\bNVLS multicast support is not available", re.ASCII),
}


def shown_in(text: str) -> frozenset[str]:
    """Return what NCCL_DEBUG=INFO in *text* shows of its transports: a key of ``_SHOWN``, or its contrary.

    A contrary counts only where NCCL reports nothing else: channels to other GPUs may differ
    (NVIDIA/nccl@5067397c ``src/transport/net.cc``, ``p2p.cc``, ``nvls.cc``).
    """
    if " NCCL INFO " not in text:
        return frozenset()
    found = {name for name, pattern in _SHOWN.items() if pattern.search(text)}
    return frozenset(name for name in found if name.removeprefix("no ") not in found or not name.startswith("no "))
