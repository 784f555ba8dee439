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


def foreign_kind(text: str) -> Foreign | None:
    """Return the kind of dump that *text* is, by its first element or by characteristic lines, or None.

    ``link-classes`` is a square of numbers with a zero diagonal, as MXNet prints links.
    """
    start = _ANSI.sub("", text[:_LOOKED_AT]).lstrip("\ufeff \t\r\n")
    if start.startswith("<"):
        tags = {tag.lower() for tag in _ROOT.findall(_without_comments(start)[:2_000])}
        return "nccl-xml" if "system" in tags else "hwloc-xml" if "topology" in tags else "xml"
    if _LOG.search(start):
        return "nccl-log"
    of_line: Sequence[tuple[re.Pattern[str], Foreign]] = (
        (_AMD, "amd"), (_PEERS, "peers"), (_IBSTAT, "ibstat"), (_QUERY, "query"), (_VERBOSE, "lspci-vv"),
        (_LSTOPO, "lstopo"),
    )  # fmt: skip
    for line, kind in of_line:
        if line.search(start):
            return kind
    if _GPUS.search(start) or (_MATRIX.search(start) and "X" in start):
        return "topo"
    if _LSPCI.search(start):
        return "lspci"
    if _LISTED.search(start):
        return "gpu-list"
    rows = [line for line in start.splitlines() if line.strip() and not line.startswith("#")]
    if len(rows) > 1 and all(_NUMBERS.fullmatch(row) for row in rows):
        cells = [row.split() for row in rows]
        if all(len(row) == len(cells) and row[i] == "0" for i, row in enumerate(cells)):
            return "link-classes"
    return None


def _without_comments(text: str) -> str:
    kept, at = [], 0
    while (begins := text.find("<!--", at)) >= 0:
        kept.append(text[at:begins])
        ends = text.find("-->", begins)
        if ends < 0:
            return "".join(kept)
        at = ends + 3
    return "".join([*kept, text[at:]])
