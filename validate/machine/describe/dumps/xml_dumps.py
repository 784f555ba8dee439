"""XML of a machine: NCCL's topology and hwloc's (``lstopo machine.xml``), parsed safely: bounded, without entities.

NCCL writes to NCCL_TOPO_DUMP_FILE, and clouds publish sparse files for NCCL_TOPO_FILE, without some elements, classes
or speeds; the schema is that of ``src/graph/xml.cc``; RCCL writes ``xgmi`` for ``nvlink``.  hwloc's ``pci_link_speed``
is the current link rate in GB/s; the PCI class tells the kind of a device.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from simulator.errors import Fault, InputError, one_line
from simulator.units import whole_number
from validate.machine.describe.driver import GENERATIONS, Card, driver_part
from validate.machine.describe.dumps import tree as pcie
from validate.machine.describe.dumps.tree import Bus, BusTree, Numa, adapter_of, gpu_model, pci_kind, speed_of
from validate.machine.describe.processor import VENDORS

_DEEPEST = 200
_MOST_ELEMENTS = 200_000


_Plain: Any = ElementTree.Element


class Element(_Plain):  # type: ignore[misc]  # what it holds is of the same class
    """An element with its line number; a text in pieces is whole."""

    line = 0

    def children(self, *tags: str) -> "list[Element]":
        """Return the elements directly inside with one of *tags*."""
        return [each for each in self if each.tag in tags]

    def said(self, key: str) -> str:
        """Return the attribute *key*; empty where it is absent."""
        return str(self.get(key, ""))


def parse_xml(text: str, shown: str) -> Element:
    """Return the root of *text*, called *shown*; raises InputError for invalid XML and entities, with the place."""
    parser = expat.ParserCreate("utf-8")  # the text is already decoded, whatever encoding it declares
    tree: Any = ElementTree.TreeBuilder(Element)
    count = depth = 0

    def refuse(message: str) -> None:
        raise InputError(Fault(message, shown, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1))

    def start(tag: str, given: dict[str, str]) -> None:
        nonlocal count, depth
        count, depth = count + 1, depth + 1
        if count > _MOST_ELEMENTS or depth > _DEEPEST:
            refuse(f"has more than {_MOST_ELEMENTS} elements or is nested deeper than {_DEEPEST}")
        tree.start(tag, given).line = parser.CurrentLineNumber

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        tree.end(tag)

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, tree.data
    parser.EntityDeclHandler = lambda *_: refuse("declares an entity; a dump has none")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        words = one_line(expat.ErrorString(error.code) or error)
        raise InputError(Fault(f"is not valid XML: {words}", shown, error.lineno, error.offset + 1)) from None
    root: Element = tree.close()
    return root


_MEGABIT_BPS = 1e6 / 8
_MOST_PORTS = 64
_HEX = re.compile(r"[0-9a-fA-F]{1,4096}", re.ASCII)


def nccl_tree(root: Element, shown: str) -> BusTree:
    """Return the machine in the ``system`` element *root*; raises InputError on a bad number or several hosts."""
    numas: list[Numa] = []
    links: dict[tuple[str, str], int] = {}
    to_switch: dict[str, int] = {}
    spoken = False
    hosts = {cpu.said("host_hash") for cpu in root.iter("cpu")}
    if len(hosts) > 1:
        raise InputError(Fault(f"holds {len(hosts)} machines; cut it to one", shown, root.line, 1))
    for cpu in root.iter("cpu"):
        number, vendor = _whole(cpu, "numaid", shown, len(numas)), VENDORS.get(cpu.said("vendor"), "")
        family, model = _whole(cpu, "familyid", shown), _whole(cpu, "modelid", shown)
        mask = cpu.said("affinity").replace(",", "")  # of processors, such as 0000ffff,ffffffff
        numa = Numa(number, vendor, family, model, threads=int(mask, 16).bit_count() if _HEX.fullmatch(mask) else 0)
        numa.below = [bus for each in cpu for bus in _bus(each, shown)]
        numas.append(numa)
    for pci in root.iter("pci"):
        for gpu in pci.children("gpu"):
            spoken = True  # NCCL writes NVLinks into this element, so without any there are none
            name = pci.said("busid").lower()
            for link in gpu.children("nvlink", "xgmi"):
                target, count = link.said("target").lower(), _whole(link, "count", shown)
                kind = pci_kind(link.said("tclass"))
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
    if element.tag == "nic":
        yield from _nets(element, shown, Bus("nic", ""))
        return
    if element.tag != "pci":
        return
    name, kind = element.said("busid").lower(), pci_kind(element.said("class"))
    vendor, device = element.said("vendor"), element.said("device")
    port = speed_of(element.said("link_speed")), _whole(element, "link_width", shown)
    gpu, nic = (next(iter(element.children(tag)), None) for tag in ("gpu", "nic"))
    if gpu is not None or (kind == "gpu" and nic is None):
        order = _whole(gpu, "dev", shown, -1) if gpu is not None else -1
        model = gpu_model(vendor, device)
        if not model and gpu is not None and gpu.said("gcn"):
            model = f"gfx{gpu.said('gcn').removeprefix('gfx')}"
        yield Bus("gpu", name, *port, model=one_line(model, 40), order=order if order >= 0 else None)
    elif nic is not None or kind == "nic":
        bare = Bus("nic", name, *port, adapter=adapter_of(name, element.said("class"), vendor, device))
        yield from _nets(nic, shown, bare, element) if nic is not None else (bare,)
    else:
        below = [bus for each in element for bus in _bus(each, shown)]
        chip = f"{vendor}:{device}".lower()
        if chip in GENERATIONS["one_chip"]:
            below = [bus for each in below for bus in (each.below if each.model == chip else [each])]
        if below or kind == "bridge":
            yield Bus("bridge", name, *port, model=chip, below=below)


def _nets(nic: Element, shown: str, bus: Bus, pci: Element | None = None) -> Iterable[Bus]:
    """Yield the adapter *bus* with the total rate of its ports; nothing where it has no port."""
    nets = nic.children("net")[:_MOST_PORTS]
    if not nets:
        return
    name = one_line(nets[0].said("name"), 40)
    rate_Bps = sum(_whole(net, "speed", shown) for net in nets) * _MEGABIT_BPS
    code, vendor, device = ("0200", "", "") if pci is None else map(pci.said, ("class", "vendor", "device"))
    bus.adapter = adapter_of(name, code, vendor, device, rate_Bps)
    bus.name = f"net {name}" if pci is None else bus.name
    yield bus


def _whole(element: Element, key: str, shown: str, default: int = 0) -> int:
    """Return an attribute as a whole number, *default* where it is absent or empty; raises InputError on others."""
    text = element.said(key).strip()
    if not text:
        return default
    try:
        number = int(text, 0) if text.lower().startswith("0x") else int(float(text))
    except (ValueError, OverflowError):
        number = -(1 << 40)
    if abs(number) > 1 << 31:
        raise InputError(Fault(f"{element.tag} {key}: '{one_line(text, 40)}' is not a number", shown, element.line, 1))
    return number


_NUMBERS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE | re.ASCII)


def hwloc_tree(root: Element) -> pcie.BusTree:
    """Return the machine in hwloc's ``topology`` element *root*."""
    numas: list[Numa] = []
    machine = next(iter(root.children("object")), root)
    packages = [each for each in machine.iter("object") if each.said("type") in ("Package", "Socket")]
    for i, holder in enumerate(packages or [machine]):
        infos = _infos(holder)
        family, model = (whole_number(infos.get(f"CPU{key}Number", "")) or 0 for key in ("Family", "Model"))
        counts = Counter(each.said("type") for each in holder.iter("object"))
        vendor, name = VENDORS.get(infos.get("CPUVendor", ""), ""), one_line(infos.get("CPUModel", ""), 100)
        numas.append(Numa(i, vendor, family, model, name, counts["PU"], counts["Core"], socket=i))
        numas[-1].below = [bus for each in _children(holder) for bus in _buses(each)]
    links, to_switch = _nvlinks(root)
    tree = BusTree(numas, links, to_switch, rates="nominal")
    beside = [bus for each in _children(machine) for bus in _buses(each)]
    if beside and packages:  # devices outside any package: which package is unknown
        numas[0].below += beside
        tree.sockets_said = len(numas) == 1
    return tree


def _infos(*elements: Element) -> dict[str, str]:
    return {info.said("name"): info.said("value") for each in elements for info in each.children("info")}


def _nvlinks(root: Element) -> tuple[dict[tuple[str, str], float] | None, dict[str, float]]:
    """Return GB/s between GPUs by bus ID (None: not said) and to switches, from NVLinkBandwidth, in MB/s."""
    matrix = next((each for each in root if each.said("name") == "NVLinkBandwidth"), None)
    if matrix is None:
        return None, {}
    bus_of: dict[str, str] = {}
    switches: set[str] = set()
    for device in (each for each in root.iter("object") if each.said("type") == "PCIDev"):
        bus = device.said("pci_busid").lower()
        bus_of |= dict.fromkeys((each.said("gp_index") for each in (device, *device.iter("object"))), bus)
        if pci_kind(device.said("pci_type")) == "nvswitch":
            switches.add(bus)
    names = [word.rpartition(":")[2] for each in matrix.children("indexes") for word in (each.text or "").split()]
    values = [whole_number(word) or 0 for each in matrix.children("u64values") for word in (each.text or "").split()]
    if len(values) != len(names) ** 2:
        return None, {}
    links: dict[tuple[str, str], float] = {}
    to_switch: dict[str, float] = {}
    for place, value in enumerate(values):
        a, b = (bus_of.get(names[i], "") for i in divmod(place, len(names)))
        if value and a and b and a not in switches and a != b:
            if b in switches:
                to_switch[a] = to_switch.get(a, 0.0) + value / 1e3
            else:
                links[a, b] = value / 1e3
    return links, to_switch


def _children(element: Element) -> Iterator[Element]:
    for each in element.children("object"):
        if each.said("type") in ("Bridge", "PCIDev"):
            yield each
        elif each.said("type") not in ("Package", "Socket", "PU"):
            yield from _children(each)


def _buses(element: Element) -> Iterable[Bus]:
    name, port = element.said("pci_busid").lower(), (0, 0)
    with suppress(ValueError):  # the rate of the link in GB/s
        port = pcie.port_near(float(element.said("pci_link_speed")), GENERATIONS["lanes_GBps"], 0.03)
    if element.said("type") == "Bridge":
        below = [bus for each in _children(element) for bus in _buses(each)]
        if element.said("bridge_type").startswith("0"):  # a host bridge belongs to the CPU
            yield from below
        elif below:
            yield Bus("bridge", name, *port, below=below)
        return
    code = element.said("pci_type")
    numbers = _NUMBERS.search(code)
    vendor, device = (numbers[1], numbers[2]) if numbers else ("", "")
    systems = [each for each in element.iter("object") if each.said("type") == "OSDev"]
    infos, what = _infos(element, *systems), pci_kind(code)
    if what == "gpu" and vendor.lower() in ("10de", "1002"):
        named, by_number = infos.get("GPUModel", ""), gpu_model(vendor, device)
        known = driver_part(Card(named)) or pcie.model_in(infos.get("PCIDevice", "")) or driver_part(Card(by_number))
        model, memory = known or named or by_number, (whole_number(infos.get("CUDAGlobalMemorySize", "")) or 0) << 10
        yield Bus("gpu", name, *port, model=one_line(model, 100), memory_bytes=memory)
    elif what == "nic" and vendor.lower() in ("15b3", "1d0f", "8086", "14e4"):
        titles = [each.said("name") for each in systems]
        title = next((each for each in titles if each.startswith(("mlx", "bnxt", "rdmap"))), (titles or [name])[0])
        yield Bus("nic", name, *port, adapter=adapter_of(one_line(title, 40), code, vendor, device))
