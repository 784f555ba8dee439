"""NCCL's topology XML, as written to NCCL_TOPO_DUMP_FILE or published by clouds for NCCL_TOPO_FILE.

The schema is that of NVIDIA/nccl ``src/graph/xml.cc``; RCCL writes ``xgmi`` for ``nvlink``.  Published files are
sparse: ``gpu``, ``net`` and NVLink elements and bridges may be missing, classes and speeds empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from simulator.errors import Fault, InputError, one_line
from validate.machine.describe.dumps.tree import Bus, BusTree, Numa, adapter_of, gpu_model, pci_kind, speed_of
from validate.machine.describe.dumps.xml_text import Element
from validate.machine.describe.processor import VENDORS

_MEGABIT_BPS = 1e6 / 8


_MOST_PORTS = 64
_HEX = re.compile(r"[0-9a-fA-F]{1,4096}", re.ASCII)


def nccl_tree(root: Element, shown: str) -> BusTree:
    """Return the machine in the ``system`` element *root*; raises InputError on a bad number or several hosts."""
    numas: list[Numa] = []
    links: dict[tuple[str, str], int] = {}
    to_switch: dict[str, int] = {}
    spoken = False
    hosts = {cpu.given.get("host_hash", "") for cpu in root.all("cpu")}
    if len(hosts) > 1:
        raise InputError(Fault(f"holds {len(hosts)} machines; cut it to one", shown, root.line, 1))
    for cpu in root.all("cpu"):
        numa = Numa(
            number=_whole(cpu, "numaid", shown, len(numas)),
            vendor=VENDORS.get(cpu.given.get("vendor", ""), ""),
            family=_whole(cpu, "familyid", shown),
            model=_whole(cpu, "modelid", shown),
            threads=_bits(cpu.given.get("affinity", "")),
        )
        numa.below = [bus for each in cpu.inside for bus in _bus(each, shown)]
        numas.append(numa)
    for pci in root.all("pci"):
        for gpu in (each for each in pci.inside if each.tag == "gpu"):
            name = pci.given.get("busid", "").lower()
            for link in (each for each in gpu.inside if each.tag in ("nvlink", "xgmi")):
                spoken = True
                target, count = link.given.get("target", "").lower(), _whole(link, "count", shown)
                kind = pci_kind(link.given.get("tclass", ""))
                if kind == "nvswitch" or target.startswith("fffffff"):
                    to_switch[name] = to_switch.get(name, 0) + count
                elif kind == "gpu" and target != name:
                    links[name, target] = links.get((name, target), 0) + count
    tree = BusTree(numas, links if spoken else None, to_switch)
    known = {gpu.name for gpu in tree.gpus()}
    tree.links = {pair: n for pair, n in links.items() if known.issuperset(pair)} if spoken else None
    if not tree.gpus() and numas:
        tree.remarks.append("its devices have no class, so nothing says which of them are GPUs")
    return tree


def _bus(element: Element, shown: str) -> Iterable[Bus]:
    """Yield the devices and bridges that *element* stands for."""
    if element.tag == "nic":
        yield from _nets(element, shown, Bus("nic", ""))
        return
    if element.tag != "pci":
        return
    given = element.given
    name = given.get("busid", "").lower()
    port = speed_of(given.get("link_speed", "")), _whole(element, "link_width", shown)
    kind = pci_kind(given.get("class", ""))
    gpu = next((each for each in element.inside if each.tag == "gpu"), None)
    nic = next((each for each in element.inside if each.tag == "nic"), None)
    if gpu is not None or (kind == "gpu" and nic is None):
        order = _whole(gpu, "dev", shown, -1) if gpu is not None else -1
        model = gpu_model(given.get("vendor", ""), given.get("device", ""))
        if not model and gpu is not None and gpu.given.get("gcn"):
            model = f"gfx{gpu.given['gcn'].removeprefix('gfx')}"
        yield Bus("gpu", name, *port, model=one_line(model, 40), order=order if order >= 0 else None)
    elif nic is not None or kind == "nic":
        bare = Bus("nic", name, *port)
        bare.adapter = adapter_of(name, given.get("class", ""), given.get("vendor", ""), given.get("device", ""))
        yield from _nets(nic, shown, bare, given) if nic is not None else (bare,)
    else:
        below = [bus for each in element.inside for bus in _bus(each, shown)]
        if below or kind == "bridge":
            yield Bus("bridge", name, *port, below=below)


def _nets(nic: Element, shown: str, bus: Bus, pci: dict[str, str] | None = None) -> Iterable[Bus]:
    """Yield the adapter *bus* with the total rate of its ports; nothing where it has no port."""
    nets = [each for each in nic.inside if each.tag == "net"][:_MOST_PORTS]
    if not nets:
        return
    name = one_line(nets[0].given.get("name", ""), 40)
    rate_Bps = sum(_whole(net, "speed", shown) for net in nets) * _MEGABIT_BPS
    given = pci or {}
    bus.adapter = adapter_of(name, given.get("class", ""), given.get("vendor", ""), given.get("device", ""), rate_Bps)
    if pci is None:
        bus.name = f"net {name}"
        bus.adapter = adapter_of(name, "0200", rate_Bps=rate_Bps)
    yield bus


def _whole(element: Element, key: str, shown: str, default: int = 0) -> int:
    """Return an attribute as a whole number, *default* where it is absent or empty; raises InputError on others."""
    text = element.given.get(key, "").strip()
    if not text:
        return default
    try:
        number = int(text, 0) if text.lower().startswith("0x") else int(float(text))
    except (ValueError, OverflowError):
        number = -(1 << 40)
    if abs(number) > 1 << 31:
        raise InputError(Fault(f"{element.tag} {key}: '{one_line(text, 40)}' is not a number", shown, element.line, 1))
    return number


def _bits(mask: str) -> int:
    """Return the number of processors in a mask such as ``0000ffff,ffffffff``; 0 where *mask* is not one."""
    digits = mask.replace(",", "")
    return int(digits, 16).bit_count() if _HEX.fullmatch(digits) else 0
