"""A log of NCCL (``NCCL_DEBUG=INFO``): the machine that NCCL printed, or at least the GPUs it named.

With ``NCCL_DEBUG_SUBSYS=GRAPH``, NCCL prints its tree of the machine with the bandwidth of each link
(``ncclTopoPrint`` in ``src/graph/topo.cc``).  Without, ``INIT`` lines name the GPU of each rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validate.machine.describe.driver import Adapter
from validate.machine.describe.dumps.tree import DEEPEST, TOO_DEEP, Bus, BusKind, BusTree, Numa, port_near

_INFO = re.compile(r"^(?P<who>.*?\[\d+\]) NCCL (?:INFO|WARN) ?(?P<said>.*)$", re.ASCII)
_CPU = re.compile(r"CPU/(?:\d+-)?(?P<id>\d+)(?: \((?P<arch>\d+)/(?P<vendor>\d+)/(?P<model>-?\d+)\))?", re.ASCII)
_LINE = re.compile(
    r"(?P<indent>\s*)\+ (?P<link>[A-Z0-9]+)\[(?P<rate>[0-9.]+)\] - (?P<kind>[A-Z]+)/(?:\d+-)?(?P<id>[0-9a-fA-F-]+)"
    r"(?: \((?P<more>[^)]*)\))?",
    re.ASCII,
)
_INIT = re.compile(
    r"\brank (?P<rank>\d+) nranks (?P<n>\d+) cudaDev (?P<dev>\d+).{0,400}?busId (?P<bus>[0-9a-fA-F]+)", re.ASCII
)
_LANE_GBPS = {3: 0.75, 4: 1.5, 5: 3.0, 6: 6.0}  # bandwidth that NCCL assumes for a lane
_KINDS: dict[str, BusKind] = {"GPU": "gpu", "NIC": "nic"}
_VENDORS = {1: "intel", 2: "amd"}  # NCCL_TOPO_CPU_VENDOR_*


_ODD_PORT = 2.0  # GB/s: slower ports are virtual bridges, which report 2.5 GT/s x1


def log_tree(text: str) -> BusTree:
    """Return the machine in a log; raises ValueError where it shows none, or several machines."""
    drawn = list(_drawn(text))
    if drawn:
        return _from_drawing(drawn)
    seen: dict[str, int] = {}
    for line in text.splitlines():
        found = _INIT.search(line)
        if found is not None:
            seen.setdefault(found["bus"].lower(), int(found["dev"]))
    devices = sorted(set(seen.values()))
    if not seen:
        raise ValueError("no machine in it: NCCL draws one with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH")
    if len(devices) != len(seen):
        raise ValueError("ranks of several machines; cut it to one of them, or log with NCCL_DEBUG_SUBSYS=GRAPH")
    numa = Numa(0, below=[Bus("gpu", bus, order=device) for bus, device in seen.items()])
    return BusTree([numa], None, sockets_said=False)


def _drawn(text: str) -> Iterator[str]:
    """Yield the lines of the first machine printed, without their prefixes; other processes' lines are skipped."""
    who = None
    for line in text.splitlines():
        found = _INFO.match(line)
        if found is None:
            continue
        said = found["said"]
        if who is None and said.startswith("=== System"):
            who = found["who"]
        elif who is not None and found["who"] == who:
            if said.startswith("===="):
                return
            yield said


def _from_drawing(lines: list[str]) -> BusTree:
    numas: list[Numa] = []
    branches: list[tuple[int, Bus]] = []
    links_GBps: dict[tuple[str, str], float] = {}
    switch_GBps: dict[str, float] = {}
    rate_GBps: dict[str, float] = {}
    for said in lines:
        head = _CPU.match(said)
        if head is not None:
            vendor = _VENDORS.get(int(head["vendor"] or 0), "")
            numas.append(Numa(int(head["id"]), vendor))
            branches = []
            continue
        found = _LINE.match(said)
        if found is None or not numas:
            continue
        column, name, rate = len(found["indent"]), found["id"].lower(), float(found["rate"])
        branches = [each for each in branches if each[0] < column]
        at = branches[-1][1] if branches else None
        if found["link"] == "NVL" and at is not None:
            if found["kind"] == "NVS":
                switch_GBps[at.name] = switch_GBps.get(at.name, 0.0) + rate
            elif found["kind"] == "GPU":
                links_GBps[at.name, name] = rate
            continue
        if found["link"] == "NET" and at is not None:
            at.adapter = Adapter(f"net {name}", at.adapter.network, at.adapter.rate_Bps + rate * 1e9)
            continue
        if found["link"] != "PCI":
            continue
        bus = Bus(_KINDS.get(found["kind"], "bridge"), name, *port_near(rate, _LANE_GBPS, 0.1))
        rate_GBps[name] = rate
        (at.below if at is not None else numas[-1].below).append(bus)
        branches.append((column, bus))
        if len(branches) > DEEPEST:
            raise ValueError(TOO_DEEP)
    tree = BusTree(numas, links_GBps, switch_GBps, rates="planned")
    if any(rate < _ODD_PORT for rate in rate_GBps.values()):
        tree.remarks.append("bridges of 2.5 GT/s x1 are a virtual machine's; their ports are taken as those below them")
    return tree
