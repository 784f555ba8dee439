"""A machine as a dump's PCIe tree shows it: :class:`BusTree`, and the placement that follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from simulator.records import dataclass, field
from validate.machine.describe.graphics import Adapter, Card
from validate.machine.describe.topo import AttachedAdapter, Attachments, Matrix

DEEPEST = 64  # bridges above a device; buses are numbered up to 255
TOO_DEEP = f"bridges are nested deeper than {DEEPEST}"
_MOST_LINKS = 999  # the most that parse_topo reads; far more than any GPU has


@dataclass(slots=True)
class Bus:
    """A GPU, an adapter or a bridge of a PCIe tree.

    ``generation`` and ``lanes`` describe its upstream port, 0 where unknown.  ``order`` is a GPU's number, where the
    dump gives one.
    """

    kind: Literal["gpu", "nic", "bridge"]
    name: str
    generation: int = 0
    lanes: int = 0
    model: str = ""
    memory_bytes: int = 0
    order: int | None = None
    adapter: Adapter = field(default_factory=Adapter)
    below: list[Bus] = field(default_factory=list)

    def leaves(self) -> Iterator[Bus]:
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
    """The host's NUMA nodes with their buses, and the NVLinks between GPUs by bus name.

    ``links`` is None where the dump does not cover NVLinks.  ``to_switch`` holds each GPU's NVLinks to switches.  Both
    are counts, unless ``rates`` says GB/s: "planned" as NCCL computes them, or "nominal".  ``sockets_said``: the dump
    tells which NUMA node each device is attached to.
    """

    numas: list[Numa]
    links: Mapping[tuple[str, str], float] | None = None
    to_switch: Mapping[str, float] = field(default_factory=dict)
    rates: Literal["", "planned", "nominal"] = ""
    sockets_said: bool = True
    remarks: list[str] = field(default_factory=list)

    def gpus(self) -> list[Bus]:
        """Return the GPUs by number where the dump numbers all of them, else by bus ID, as CUDA's PCI_BUS_ID order."""
        found = [leaf for numa in self.numas for bus in numa.below for leaf in bus.leaves() if leaf.kind == "gpu"]
        if all(gpu.order is not None for gpu in found) and len({gpu.order for gpu in found}) == len(found):
            return sorted(found, key=lambda gpu: gpu.order or 0)
        return sorted(found, key=lambda gpu: gpu.name)

    def nics(self) -> list[Bus]:
        """Return the adapters, in the dump's order."""
        return [leaf for numa in self.numas for bus in numa.below for leaf in bus.leaves() if leaf.kind == "nic"]

    def cards(self) -> tuple[Card, ...]:
        """Return the GPUs in the form of a driver's listing."""
        return tuple(Card(gpu.model, gpu.memory_bytes, gpu.generation, gpu.lanes) for gpu in self.gpus())

    def sockets(self) -> dict[int, int]:
        """Return the socket of each NUMA node, by the node's number; one each for up to two where packages are unknown.

        More than two nodes are split evenly over two sockets: machines with GPUs no longer have four sockets, while
        EPYC hosts may have two or four NUMA nodes per socket.
        """
        numbers = [numa.number for numa in self.numas]
        if all(numa.socket is not None for numa in self.numas):
            packages = sorted({numa.socket or 0 for numa in self.numas})
            return {numa.number: packages.index(numa.socket or 0) for numa in self.numas}
        count = min(2, len(numbers))
        return {number: place * count // len(numbers) for place, number in enumerate(sorted(numbers))}

    def matrix(self, link_GBps: float = 1.0) -> Matrix:
        """Return the NVLinks as ``nvidia-smi topo -m`` would print them; *link_GBps* converts rates to counts."""
        one = link_GBps if self.rates else 1.0
        gpus = self.gpus()
        names = {gpu.name: f"GPU{i}" for i, gpu in enumerate(gpus)}
        between = {(name, name): "X" for name in names.values()}
        for a, first in names.items():
            for b, second in names.items():
                if a != b:
                    said = self.links or {}
                    count = round(max(said.get((a, b), 0.0), said.get((b, a), 0.0)) / one)
                    if not count and self.to_switch.get(a) and self.to_switch.get(b):
                        count = round(min(self.to_switch[a], self.to_switch[b]) / one)
                    between[first, second] = f"NV{min(count, _MOST_LINKS)}" if count > 0 else "SYS"
        return Matrix(len(gpus), (), between, {})

    def placement(self) -> Attachments:
        """Return where GPUs and adapters are attached; bridges above one device are ports, other bridges switches.

        All levels of switches above the lowest count as one upper switch, attached to the host.
        """
        gpus = {gpu.name: number for number, gpu in enumerate(self.gpus())}
        sockets = self.sockets()
        at: dict[str, int] = {}
        switches: list[list[Bus]] = []
        upper: list[tuple[int, ...]] = []
        socket_of_switch: list[int] = []
        ports: list[tuple[int, int]] = []
        for numa in sorted(self.numas, key=lambda numa: numa.number):
            for bus in numa.below:
                first = len(switches)
                for members, port in _switches(bus):
                    switches.append(members)
                    ports.append(port)
                    socket_of_switch.append(sockets[numa.number])
                if len(switches) - first > 1:
                    upper.append(tuple(range(first, len(switches))))
                at |= {leaf.name: sockets[numa.number] for leaf in bus.leaves()}
        of_switch = {leaf.name: number for number, members in enumerate(switches) for leaf in members}
        hung = tuple(
            AttachedAdapter(nic.adapter, of_switch.get(nic.name), at[nic.name], nic.generation, nic.lanes)
            for nic in self.nics()
        )
        order = sorted(gpus, key=lambda name: gpus[name])
        return Attachments(
            socket=tuple(at[name] for name in order),
            switches=tuple(tuple(gpus[leaf.name] for leaf in members if leaf.kind == "gpu") for members in switches),
            upper=tuple(upper),
            guessed=not self.sockets_said,
            adapters=hung,
            switch_sockets=tuple(socket_of_switch),
            ports=tuple(ports),
        )


def _switches(bus: Bus) -> Iterator[tuple[list[Bus], tuple[int, int]]]:
    """Yield the devices of each lowest shared bridge, with its upstream port as (generation, lanes).

    Where the bridge reports a slower port than all devices below, it is virtual or was idle: the slowest of theirs is
    taken.
    """
    if bus.kind != "bridge":
        return
    leaves = list(bus.leaves())
    if len(leaves) < 2:
        return
    inner = [found for each in bus.below for found in _switches(each)]
    if not inner:
        ports = [(bus.generation, bus.lanes), *((leaf.generation, leaf.lanes) for leaf in leaves)]
        below = [port for port in ports[1:] if all(port)]
        slowest = min(below, key=_rate, default=(0, 0))
        yield leaves, ports[0] if all(ports[0]) and _rate(ports[0]) >= _rate(slowest) else slowest
        return
    yield from inner
    known = {leaf.name for members, _ in inner for leaf in members}
    rest = [leaf for leaf in leaves if leaf.name not in known]
    if rest:
        yield rest, (bus.generation, bus.lanes)


def _rate(port: Sequence[int]) -> int:
    return int(2 ** port[0] * port[1])
