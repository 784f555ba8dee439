"""Trees of ``lspci -vv``, which has widths and NUMA nodes, and of ``lstopo``'s text."""

from __future__ import annotations

import re

from validate.machine.describe.driver import Adapter
from validate.machine.describe.dumps.lspci import device_of
from validate.machine.describe.dumps.tree import DEEPEST, TOO_DEEP, Bus, BusTree, Numa, speed_of

_START = re.compile(r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.{1,400})", re.MULTILINE | re.IGNORECASE)
_BELOW = re.compile(r"Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2})", re.IGNORECASE | re.ASCII)
_CAN = re.compile(r"LnkCap:.{0,80}?Speed ([0-9.]{1,5} ?GT/s)[^\n,]{0,20}, Width x(\d{1,2})", re.ASCII)
_IS = re.compile(r"LnkSta:.{0,80}?Width x([1-9]\d?)", re.ASCII)
_NODE = re.compile(r"NUMA node: (\d{1,3})", re.ASCII)


def lspci_verbose_tree(text: str) -> BusTree:
    """Return the tree in the output of ``lspci -vv`` (``sudo``, so that it lists capabilities).

    A port has the generation that it can have, because idle GPUs lower theirs, and the width that it negotiated.
    Raises ValueError where bridges are nested too deeply.
    """
    starts = [*_START.finditer(text)]
    holders: dict[str, Bus] = {}
    found: list[tuple[str, Bus, int | None]] = []
    for start, end in zip(starts, [*(each.start() for each in starts[1:]), len(text)], strict=True):
        name, block = start[1].lower(), text[start.start() : end]
        domain = name[: name.index(":") + 1] if name.count(":") > 1 else ""
        can, now, node = _CAN.search(block), _IS.search(block), _NODE.search(block)
        below = _BELOW.search(block)
        bus = Bus("bridge", name) if below is not None else device_of(name, start[2])
        if bus is None:
            continue
        if can is not None:
            bus.generation, bus.lanes = speed_of(can[1]), int(now[1] if now is not None else can[2])
        if below is not None:
            holders[domain + below[2].lower()] = bus
        found.append((name.rpartition(":")[0], bus, int(node[1]) if node else None))
    nodes = sorted({node for _, bus, node in found if node is not None and bus.kind != "bridge"}) or [0]
    numas = {node: Numa(node) for node in nodes}
    for above, bus, at in found:
        holder = holders.get(above)
        if holder is not None and holder is not bus:
            holder.below.append(bus)
        else:
            numas[at if at is not None and at in numas else nodes[0]].below.append(bus)
    for numa in numas.values():
        for bus in numa.below:
            _check_depth(bus)
    return BusTree(list(numas.values()), None, sockets_said=len(nodes) > 1)


def _check_depth(bus: Bus, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise ValueError(TOO_DEEP)
    for each in bus.below:
        _check_depth(each, depth + 1)


_OBJECT = re.compile(r"^(\s*)(Package|Socket|HostBridge|PCIBridge|PCI|Net|OpenFabrics|CoProc|GPU)\b(.{0,200})$")
_DEVICE = re.compile(
    r"([0-9a-f]{2,4}:(?:[0-9a-f]{2}:)?[0-9a-f]{2}\.[0-7])?.*?\((3D|VGA|Display|InfiniBand|Ethernet)", re.ASCII
)
_QUOTED = re.compile(r'"([^"]{1,60})"')


def lstopo_tree(text: str) -> BusTree:
    """Return the tree in the text of ``lstopo-no-graphics``, by its indentation; it has no rates.

    A display is a GPU where an object of a driver (CoProc, GPU) stands in it, or its class is 3D.  Raises ValueError
    where bridges are nested too deeply.
    """
    numas: list[Numa] = []
    open_: list[tuple[int, Bus]] = []
    maybe: dict[str, bool] = {}
    for line in text.splitlines():
        found = _OBJECT.match(line)
        if found is None:
            continue
        column, kind, rest = len(found[1]), found[2], found[3]
        if kind in ("Package", "Socket"):
            numas.append(Numa(len(numas), socket=len(numas)))
            open_ = []
            continue
        numas = numas or [Numa(0, socket=0)]
        open_ = [each for each in open_ if each[0] < column]
        holder = open_[-1][1] if open_ else None
        if kind in ("Net", "OpenFabrics", "CoProc", "GPU"):
            title = _QUOTED.search(rest)
            if holder is not None and holder.kind == "nic" and kind == "OpenFabrics" and title:
                holder.adapter = Adapter(title[1], holder.adapter.network)
            if holder is not None and holder.kind == "gpu" and kind in ("CoProc", "GPU"):
                maybe[holder.name] = True
            continue
        if kind == "HostBridge":
            continue
        device = _DEVICE.search(rest)
        if kind == "PCIBridge":
            bus = Bus("bridge", f"line {len(maybe)}.{column}")
        elif device is None:
            continue
        else:
            name = device[1] or f"pci {len(maybe)}"
            is_gpu = device[2] in ("3D", "VGA", "Display")
            bus = Bus("gpu" if is_gpu else "nic", name)
            bus.adapter = Adapter(name, "" if is_gpu else device[2].lower())
            maybe[name] = device[2] != "VGA"
        (holder.below if holder is not None else numas[-1].below).append(bus)
        open_.append((column, bus))
        if len(open_) > DEEPEST:
            raise ValueError(TOO_DEEP)
    for numa in numas:
        numa.below = [bus for bus in numa.below if _keeps(bus, maybe)]
    return BusTree(numas, None)


def _keeps(bus: Bus, known: dict[str, bool]) -> bool:
    """Return whether *bus* is a bridge or a device that counts, after dropping displays without a driver below it."""
    bus.below = [each for each in bus.below if _keeps(each, known)]
    return bus.kind != "gpu" or known.get(bus.name, False)
