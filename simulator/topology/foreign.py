"""Recognition of machine dumps that are not topologies; ``validate describe --from`` drafts a topology from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Foreign = Literal[
    "nccl-xml", "hwloc-xml", "xml", "topo", "peers", "amd", "ibstat", "query", "lspci", "lspci-vv", "lstopo",
    "nccl-log", "gpu-list", "link-classes",
]  # fmt: skip

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_ROOT = re.compile(r"<([A-Za-z_][\w.-]{0,60})")
_GPUS = re.compile(r"^[ \t]*GPU0[ \t](?:[ \t]*GPU1\b|.*CPU Affinity|[ \t]*X[ \t]*$)", re.MULTILINE | re.ASCII)
_PEERS = re.compile(r"^[ \t]*GPU0[ \t]+X[ \t]+(?:OK|CNS|GNS|TNS|NS|DR|U)\b", re.MULTILINE | re.ASCII)
_AMD = re.compile(r"Link Type between two GPUs|^[ \t]*LINK TYPE TABLE", re.MULTILINE)
_IBSTAT = re.compile(r"^CA '[^'\n]+'[ \t\r]*$", re.MULTILINE)
_QUERY = re.compile(r"=NVSMI LOG=|^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]", re.MULTILINE | re.ASCII)
_VERBOSE = re.compile(r"^[ \t]+(?:LnkCap:|Bus: primary=|NUMA node: \d)", re.MULTILINE | re.ASCII)
_LSTOPO = re.compile(r"^Machine \([^\n]*\n(?:.*\n)*?[ \t]+(?:Package|HostBridge|NUMANode|PCI)\b")
_MATRIX = re.compile(r"^[ \t]*GPU0[ \t]*$", re.MULTILINE | re.ASCII)
_LSPCI = re.compile(r"^[ \t]*[-+\\|]*[-+\\]-?\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-", re.MULTILINE | re.IGNORECASE | re.ASCII)
_LOG = re.compile(r"\[\d+\] NCCL (?:INFO|WARN)\b", re.ASCII)
_LISTED = re.compile(r"^GPU \d+: .+\(UUID:", re.MULTILINE | re.ASCII)
_NUMBERS = re.compile(r"\s*[0-3](?:\s+[0-3])+\s*", re.ASCII)
_LOOKED_AT = 200_000
_LINES: Sequence[tuple[re.Pattern[str], Foreign]] = (
    (_LOG, "nccl-log"), (_AMD, "amd"), (_PEERS, "peers"), (_IBSTAT, "ibstat"), (_QUERY, "query"),
    (_VERBOSE, "lspci-vv"), (_LSTOPO, "lstopo"), (_GPUS, "topo"), (_MATRIX, "topo"), (_LSPCI, "lspci"),
    (_LISTED, "gpu-list"),
)  # fmt: skip


def foreign_kind(text: str) -> Foreign | None:
    """Return the kind of dump that *text* is, by its first element or by characteristic lines, or None.

    ``link-classes`` is a square of numbers with a zero diagonal, as MXNet prints links.
    """
    start = _ANSI.sub("", text[:_LOOKED_AT]).lstrip("\ufeff \t\r\n")
    if start.startswith("<"):
        tags = {tag.lower() for tag in _ROOT.findall(_COMMENT.sub("", start)[:2_000])}
        return "nccl-xml" if "system" in tags else "hwloc-xml" if "topology" in tags else "xml"
    for line, kind in _LINES:
        if line.search(start) and (line is not _MATRIX or "X" in start):
            return kind
    rows = [line for line in start.splitlines() if line.strip() and not line.startswith("#")]
    if len(rows) > 1 and all(_NUMBERS.fullmatch(row) for row in rows):
        cells = [row.split() for row in rows]
        if all(len(row) == len(cells) and row[i] == "0" for i, row in enumerate(cells)):
            return "link-classes"
    return None
