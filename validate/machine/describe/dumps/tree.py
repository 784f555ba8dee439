"""A machine as a dump's PCIe tree shows it (:class:`BusTree`), its placement, and IDs as in pci-ids.ucw.cz."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from typing import Literal

from simulator.records import dataclass, field
from simulator.topology.catalogue import load_part, part_names
from simulator.topology.parts import NicPart
from validate.machine.describe.driver import GENERATIONS, Card, driver_part
from validate.machine.describe.placement import Adapter, AttachedAdapter, Attachments, DrawnSwitch, Matrix

_SPEED = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*GT/s", re.ASCII)
_BRACKETS = re.compile(r"\[([^\[\]]{1,60})\]")


@lru_cache(maxsize=1)
def _by_number() -> dict[str, str]:
    parts = [(name, load_part(name)) for kind in ("gpu", "nic") for name in part_names(kind)]
    return {number: name for name, part in parts if part is not None for number in part.pci_ids}


Kind = Literal["gpu", "nic", "bridge", "nvswitch", ""]


def pci_kind(class_code: str) -> Kind:
    """Return the kind of device with a PCI class such as ``0x030200`` or ``0302``; empty for irrelevant kinds."""
    classes: Mapping[str, Kind] = GENERATIONS["pci_classes"]
    return next((kind for start, kind in classes.items() if _plain(class_code).startswith(start)), "")


def gpu_model(vendor: str, device: str) -> str:
    """Return the GPU part with these PCI IDs; the IDs themselves where no built-in part has them."""
    number = f"{_plain(vendor)}:{_plain(device)}"
    return _by_number().get(number, number if number != ":" else "")


def model_in(text: str) -> str:
    """Return the GPU part named in ``lspci`` text (``GA100 [A100 SXM4 40GB]``); empty where none is built in."""
    for name in [*_BRACKETS.findall(text), text.rpartition("Corporation")[2].strip(), text.strip()]:
        found = driver_part(Card(name.replace("/", " "))) or driver_part(Card(f"tesla {name}"))
        if found:
            return found
        if name.lower() in _by_number():
            return _by_number()[name.lower()]
    return ""


def adapter_of(name: str, class_code: str = "", vendor: str = "", device: str = "", rate_Bps: float = 0.0) -> Adapter:
    """Return an adapter identified by its PCI class and IDs; *rate_Bps* is 0 where the system gives no rate."""
    code, number = _plain(class_code), f"{_plain(vendor)}:{_plain(device)}"
    known = _by_number().get(number, "")
    part = load_part(known)
    if isinstance(part, NicPart):
        return Adapter(name, part.network, rate_Bps, known)
    network = "infiniband" if code.startswith("0207") else "ethernet" if code.startswith("0200") else ""
    return Adapter(name, network, rate_Bps or GENERATIONS["adapters_Bps"].get(number, 0.0))


def speed_of(text: str) -> int:
    """Return the PCIe generation of a link speed such as ``16.0 GT/s PCIe``; 0 where *text* gives none."""
    found = _SPEED.match(text)
    return int(GENERATIONS["gigatransfers"].get(float(found[1]), 0)) if found else 0


def port_near(rate_GBps: float, lane_GBps: Mapping[int, float], near: float) -> tuple[int, int]:
    """Return generation and lanes, the widest first, of a PCIe port within *near* of this rate; zeros for none."""
    ports = [(generation, lanes, lanes * each) for lanes in (16, 8, 4) for generation, each in lane_GBps.items()]
    return next((port for *port, full in ports if abs(rate_GBps / full - 1.0) < near), (0, 0))  # type: ignore[return-value]


def _plain(number: str) -> str:
    return number.lower().removeprefix("0x")


DEEPEST = 64  # bridges above a device; buses are numbered up to 255
TOO_DEEP = f"bridges are nested deeper than {DEEPEST}"
_MOST_LINKS = 999  # the most that parse_topo reads; far more than any GPU has
BusKind = Literal["gpu", "nic", "bridge"]


@dataclass(slots=True)
class Bus:
    """A GPU, adapter or bridge, with its upstream port (0: unknown), and a GPU's number where the dump has one."""

    kind: BusKind
    name: str
    generation: int = 0
    lanes: int = 0
    model: str = ""
    memory_bytes: int = 0
    order: int | None = None
    adapter: Adapter = field(default_factory=Adapter)
    below: "list[Bus]" = field(default_factory=list)

    def leaves(self) -> "Iterator[Bus]":
        """Yield the GPUs and adapters at or below this bus."""
        if self.kind != "bridge":
            yield self
        for each in self.below:
            yield from each.leaves()


@dataclass(slots=True)
class Numa:
    """A NUMA node of the host, or a package; ``threads`` and ``cores`` are 0 where unknown."""

    number: int
    vendor: str = ""
    family: int = 0
    model: int = 0
    name: str = ""
    threads: int = 0
    cores: int = 0
    socket: int | None = None
    below: list[Bus] = field(default_factory=list)


@dataclass(slots=True)
class BusTree:
    """The host's NUMA nodes with their buses, and the NVLinks between GPUs by bus name; None where the dump has none.

    ``to_switch`` holds each GPU's to switches.  Both are counts, unless ``rates`` says GB/s, "planned" by NCCL or
    "nominal".  ``sockets_said``: the dump tells devices' NUMA nodes.
    """

    numas: list[Numa]
    links: Mapping[tuple[str, str], float] | None = None
    to_switch: Mapping[str, float] = field(default_factory=dict)
    rates: Literal["", "planned", "nominal"] = ""
    sockets_said: bool = True
    remarks: list[str] = field(default_factory=list)

    def _leaves(self, kind: BusKind) -> list[Bus]:
        return [leaf for numa in self.numas for bus in numa.below for leaf in bus.leaves() if leaf.kind == kind]

    def gpus(self) -> list[Bus]:
        """Return the GPUs by number where the dump numbers all of them, else by bus ID, as CUDA's PCI_BUS_ID order."""
        found = self._leaves("gpu")
        if all(gpu.order is not None for gpu in found) and len({gpu.order for gpu in found}) == len(found):
            return sorted(found, key=lambda gpu: gpu.order or 0)
        return sorted(found, key=lambda gpu: gpu.name)

    def nics(self) -> list[Bus]:
        """Return the adapters, in the dump's order."""
        return self._leaves("nic")

    def cards(self) -> tuple[Card, ...]:
        """Return the GPUs in the form of a driver's listing."""
        return tuple(Card(gpu.model, gpu.memory_bytes, gpu.generation, gpu.lanes) for gpu in self.gpus())

    def sockets(self) -> dict[int, int]:
        """Return the socket of each NUMA node, by its number; one each for up to two where unknown, more in halves."""
        if all(numa.socket is not None for numa in self.numas):
            packages = sorted({numa.socket or 0 for numa in self.numas})
            return {numa.number: packages.index(numa.socket or 0) for numa in self.numas}
        count = min(2, len(self.numas))
        numbers = sorted(numa.number for numa in self.numas)
        return {number: place * count // len(numbers) for place, number in enumerate(numbers)}

    def matrix(self, link_GBps: float = 1.0) -> Matrix:
        """Return the NVLinks as ``nvidia-smi topo -m`` would print them; *link_GBps* converts rates to counts."""
        one, said = link_GBps if self.rates else 1.0, self.links or {}
        names = {gpu.name: f"GPU{i}" for i, gpu in enumerate(self.gpus())}
        between = {(name, name): "X" for name in names.values()}
        for a, b in permutations(names, 2):
            count = round(max(said.get((a, b), 0.0), said.get((b, a), 0.0)) / one)
            if not count and self.to_switch.get(a) and self.to_switch.get(b):
                count = round(min(self.to_switch[a], self.to_switch[b]) / one)
            between[names[a], names[b]] = f"NV{min(count, _MOST_LINKS)}" if count > 0 else "SYS"
        return Matrix(len(names), (), between, {})

    def placement(self) -> Attachments:
        """Return where GPUs and adapters are attached; bridges that branch are switches, other bridges ports."""
        gpus, sockets = {gpu.name: number for number, gpu in enumerate(self.gpus())}, self.sockets()
        at: dict[str, int] = {}  # the socket of each device
        hung: dict[str, int] = {}  # the switch of each
        drawn: list[DrawnSwitch] = []

        def draw(bus: Bus, socket: int) -> tuple[Bus, ...] | int:
            """Append the switches at and below *bus*; return the uppermost's number, or the only device, if any."""
            if bus.kind != "bridge":
                return (bus,)
            found = [each for each in (draw(below, socket) for below in bus.below) if each != ()]
            if len(found) < 2:
                return found[0] if found else ()
            number = len(drawn)
            members = [leaf for each in found if not isinstance(each, int) for leaf in each]
            for below in (each for each in found if isinstance(each, int)):
                drawn[below].above = number
            ports = [(leaf.generation, leaf.lanes) for leaf in bus.leaves() if leaf.generation and leaf.lanes]
            own, slowest = (bus.generation, bus.lanes), min(ports, key=_rate, default=(0, 0))
            port = own if all(own) and _rate(own) >= _rate(slowest) else slowest
            own_gpus = tuple(gpus[leaf.name] for leaf in members if leaf.kind == "gpu")
            drawn.append(DrawnSwitch(own_gpus, None, socket, port))
            hung.update({leaf.name: number for leaf in members})
            return number

        for numa in sorted(self.numas, key=lambda numa: numa.number):
            for bus in numa.below:
                draw(bus, sockets[numa.number])
                at |= {leaf.name: sockets[numa.number] for leaf in bus.leaves()}
        adapters = (
            AttachedAdapter(nic.adapter, hung.get(nic.name), at[nic.name], nic.generation, nic.lanes)
            for nic in self.nics()
        )
        return Attachments(tuple(at[name] for name in gpus), tuple(drawn), not self.sockets_said, tuple(adapters))


def _rate(port: Sequence[int]) -> int:
    return int(2 ** port[0] * port[1])
