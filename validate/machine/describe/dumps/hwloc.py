"""The XML of hwloc (``lstopo machine.xml``): packages, NUMA nodes, bridges, devices.

``pci_link_speed`` is the current link rate in GB/s (hwloc's ``hwloc_pcidev_attr_s``).  The PCI class tells the kind of
a device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from simulator.errors import one_line
from validate.machine.describe.dumps import tree as pcie
from validate.machine.describe.dumps.xml_text import Element
from validate.machine.describe.graphics import Card, driver_part
from validate.machine.describe.processor import VENDORS

_NUMBERS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", re.IGNORECASE | re.ASCII)


_LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def hwloc_tree(root: Element) -> pcie.BusTree:
    """Return the machine in hwloc's ``topology`` element *root*."""
    numas: list[pcie.Numa] = []
    machine = next((each for each in root.inside if each.tag == "object"), root)
    for holder in _holders(machine):
        infos = {
            each.given.get("name", ""): each.given.get("value", "") for each in holder.inside if each.tag == "info"
        }
        objects = list(holder.all("object"))
        numa = pcie.Numa(
            number=len(numas),
            vendor=VENDORS.get(infos.get("CPUVendor", ""), ""),
            family=_number(infos.get("CPUFamilyNumber", "")),
            model=_number(infos.get("CPUModelNumber", "")),
            name=one_line(infos.get("CPUModel", ""), 100),
            threads=sum(each.given.get("type") == "PU" for each in objects),
            cores=sum(each.given.get("type") == "Core" for each in objects),
            socket=len(numas),
        )
        numa.below = [bus for each in _children(holder) for bus in _buses(each)]
        numas.append(numa)
    links, to_switch = _nvlinks(root)
    tree = pcie.BusTree(numas, links, to_switch, rates="nominal")
    beside = [bus for each in _children(machine) for bus in _buses(each)]
    if beside and _holders(machine) != [machine]:  # devices outside any package: which package is unknown
        numas[0].below += beside
        tree.sockets_said = len(numas) == 1
    return tree


def _nvlinks(root: Element) -> tuple[dict[tuple[str, str], float] | None, dict[str, float]]:
    """Return the rates in GB/s between GPUs, by bus ID, and from GPUs to switches, from the matrix NVLinkBandwidth.

    The matrix is in MB/s, row by row, with a value for each direction.  The first result is None where there is none.
    """
    matrix = next((each for each in root.inside if each.given.get("name") == "NVLinkBandwidth"), None)
    if matrix is None:
        return None, {}
    bus_of: dict[str, str] = {}
    switches: set[str] = set()
    for device in (each for each in root.all("object") if each.given.get("type") == "PCIDev"):
        bus = device.given.get("pci_busid", "").lower()
        for each in (device, *device.all("object")):
            bus_of[each.given.get("gp_index", "")] = bus
        if pcie.pci_kind(device.given.get("pci_type", "")) == "nvswitch":
            switches.add(bus)
    names = [word.rpartition(":")[2] for each in matrix.inside if each.tag == "indexes" for word in each.text.split()]
    values = [_number(word) for each in matrix.inside if each.tag == "u64values" for word in each.text.split()]
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


def _holders(machine: Element) -> list[Element]:
    """Return the packages of *machine*, or the machine itself where it has none."""
    packages = [each for each in machine.all("object") if each.given.get("type") in ("Package", "Socket")]
    return packages or [machine]


def _children(element: Element) -> Iterator[Element]:
    """Yield the PCI objects directly in *element* or inside its groups, NUMA nodes and caches."""
    for each in element.inside:
        if each.tag != "object":
            continue
        if each.given.get("type") in ("Bridge", "PCIDev"):
            yield each
        elif each.given.get("type") not in ("Package", "Socket", "PU"):
            yield from _children(each)


def _buses(element: Element) -> Iterable[pcie.Bus]:
    kind = element.given.get("type", "")
    if kind == "Bridge":
        below = [bus for each in _children(element) for bus in _buses(each)]
        if element.given.get("bridge_type", "").startswith("0"):  # a host bridge belongs to the CPU
            yield from below
        elif below:
            yield pcie.Bus("bridge", element.given.get("pci_busid", "").lower(), *_port(element), below=below)
        return
    if kind != "PCIDev":
        return
    code = element.given.get("pci_type", "")
    numbers = _NUMBERS.search(code)
    vendor, device = (numbers[1], numbers[2]) if numbers else ("", "")
    name = element.given.get("pci_busid", "").lower()
    systems = [each for each in element.all("object") if each.given.get("type") == "OSDev"]
    infos = {
        info.given.get("name", ""): info.given.get("value", "")
        for each in (element, *systems)
        for info in each.inside
        if info.tag == "info"
    }
    what = pcie.pci_kind(code)
    if what == "gpu" and vendor.lower() in ("10de", "1002"):
        named = infos.get("GPUModel", "")
        by_number = pcie.gpu_model(vendor, device)
        known = driver_part(Card(named)) or pcie.model_in(infos.get("PCIDevice", "")) or driver_part(Card(by_number))
        model = known or named or by_number
        memory = _number(infos.get("CUDAGlobalMemorySize", "")) << 10
        yield pcie.Bus("gpu", name, *_port(element), model=one_line(model, 100), memory_bytes=memory)
    elif what == "nic" and vendor.lower() in ("15b3", "1d0f", "8086", "14e4"):
        titles = [each.given.get("name", "") for each in systems]
        title = next((each for each in titles if each.startswith(("mlx", "bnxt", "rdmap"))), (titles or [name])[0])
        yield pcie.Bus("nic", name, *_port(element), adapter=pcie.adapter_of(one_line(title, 40), code, vendor, device))


def _port(element: Element) -> tuple[int, int]:
    """Return PCIe generation and lanes of a link by its rate in GB/s; zeros where it gives none or it fits nothing."""
    try:
        return pcie.port_near(float(element.given.get("pci_link_speed", "")), _LANE_GBPS, 0.03)
    except ValueError:
        return 0, 0


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 13 else 0
