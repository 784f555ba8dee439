"""Settings of NCCL that a log shows: on its command line, in its environment, or as NCCL's own lines report them.

NCCL reports a setting as ``NCCL_ALGO set by environment to Ring.`` or ``NCCL_IB_HCA set to mlx5_0``
(NVIDIA/nccl@5067397c ``src/misc/param.cc``, ``src/transport/net_ib.cc``).
"""

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

    A value that a shell would still expand (``$ALGO``) is not known and left out too.  Sockets that NCCL reports to use
    are as if they were asked for.
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
