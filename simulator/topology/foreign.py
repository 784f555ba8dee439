"""Recognition of machine dumps that are not topologies; ``validate describe --from`` drafts a topology from them."""

from __future__ import annotations

import re

from simulator.package_data import own_data

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_ROOT = re.compile(r"<([A-Za-z_][\w.-]{0,60})")
_NUMBERS = re.compile(r"\s*[0-3](?:\s+[0-3])+\s*", re.ASCII)
_LOOKED_AT = 200_000


def foreign_kind(text: str) -> str | None:
    """Return the kind of dump that *text* is, by its first element or by characteristic lines, or None."""
    start = _ANSI.sub("", text[:_LOOKED_AT]).lstrip("\ufeff \t\r\n")
    if start.startswith("<"):
        tags = {tag.lower() for tag in _ROOT.findall(_COMMENT.sub("", start)[:2_000])}
        return "nccl-xml" if "system" in tags else "hwloc-xml" if "topology" in tags else "xml"
    for kind, line in own_data("simulator.topology", "foreign.yaml"):
        if re.search(line, start):
            return str(kind)
    rows = [line for line in start.splitlines() if line.strip() and not line.startswith("#")]
    if len(rows) > 1 and all(_NUMBERS.fullmatch(row) for row in rows):
        cells = [row.split() for row in rows]
        if all(len(row) == len(cells) and row[i] == "0" for i, row in enumerate(cells)):
            return "link-classes"
    return None
