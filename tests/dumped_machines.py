"""Dumps of a topology as ``nvidia-smi topo -m`` and NCCL would make them of the real machine."""

from __future__ import annotations

from collections import Counter, deque
from xml.sax.saxutils import quoteattr

from simulator.topology import Device, Topology
from simulator.topology.parts import CpuPart, GpuPart, NicPart

_TREE = ("pcie", "socket", "c2c")
_LANE_GBPS = {3: 0.985, 4: 1.969, 5: 3.938}
_RATE = {3: "8.0", 4: "16.0", 5: "32.0"}


class Dumped:
    """The devices of a single-node *topology*, and how they are joined."""

    def __init__(self, topology: Topology) -> None:
        self.devices = {device.name: device for device in topology.devices}
        self.gpus = self._of("gpu")
        self.nics = self._of("nic")
        self.cpus = self._of("cpu")
        self._near: dict[str, list[str]] = {name: [] for name in self.devices}
        self.slots: dict[frozenset[str], tuple[int, int]] = {}  # generation and lanes
        self.nvlinks: Counter[tuple[str, str]] = Counter()
        for wire in topology.wires:
            ends = wire.a, wire.b
            if wire.part.of in _TREE:
                for a, b in (ends, ends[::-1]):
                    self._near[a].append(b)
                lanes = wire.part.lanes or 16
                each_GBps = (wire.part.bandwidth or 0.0) / lanes / 1e9
                self.slots[frozenset(ends)] = min(_LANE_GBPS, key=lambda g: abs(_LANE_GBPS[g] - each_GBps)), lanes
            elif wire.part.of in ("nvlink", "xgmi"):
                for a, b in (ends, ends[::-1]):
                    self.nvlinks[a, b] += wire.count

    def _of(self, kind: str) -> list[str]:
        return [name for name, device in self.devices.items() if device.kind == kind]

    def part(self, name: str) -> Device:
        """Return the device called *name*."""
        return self.devices[name]

    def path(self, a: str, b: str) -> list[str]:
        """Return the devices on the shortest way from *a* to *b* over PCIe and between sockets, both ends included."""
        back: dict[str, str] = {a: ""}
        queue = deque([a])
        while queue:
            at = queue.popleft()
            for near in self._near[at]:
                if near not in back and (near == b or self.devices[near].kind in ("cpu", "pcie-switch")):
                    back[near] = at
                    queue.append(near)
        found = [b]
        while found[-1] != a:
            found.append(back[found[-1]])
        return found[::-1]

    def word(self, a: str, b: str, *, cascaded: bool) -> str:
        """Return nvidia-smi's word for two devices; *cascaded*: each device hangs at a bridge of its own."""
        if a == b:
            return "X"
        switches = self._of("nvlink-switch")
        through = min(sum(self.nvlinks[end, switch] for switch in switches) for end in (a, b))
        count = self.nvlinks[a, b] or through
        if count:
            return f"NV{count}"
        between = [self.devices[name].kind for name in self.path(a, b)[1:-1]]
        if between.count("cpu"):
            return "SYS" if between.count("cpu") > 1 else "NODE" if "pcie-switch" in between else "PHB"
        return "PXB" if len(between) > 1 or cascaded else "PIX"

    def matrix(self, *, cascaded: bool) -> str:
        """Return the output of ``nvidia-smi topo -m``."""
        names = [*self.gpus, *self.nics]
        titles = [f"GPU{i}" for i in range(len(self.gpus))] + [f"NIC{i}" for i in range(len(self.nics))]
        lines = ["\t" + "\t".join(titles) + "\tCPU Affinity\tNUMA Affinity"]
        for name, title in zip(names, titles, strict=True):
            cells = [self.word(name, other, cascaded=cascaded) for other in names]
            beside = f"\t{self._affinity(name)}" if name in self.gpus else ""
            lines.append(f"{title}\t" + "\t".join(cells) + beside)
        legend = [f"  NIC{i}: mlx5_{i}" for i in range(len(self.nics))]
        return "\n".join([*lines, "", "NIC Legend:", "", *legend, ""])

    def socket(self, name: str) -> int:
        """Return the number of the socket at which *name* hangs."""
        near = min(self.cpus, key=lambda cpu: len(self.path(name, cpu)))
        return self.cpus.index(near)

    def _affinity(self, gpu: str) -> str:
        number = self.socket(gpu)
        part = self.devices[self.cpus[number]].part
        assert isinstance(part, CpuPart)
        threads, cores, sockets = part.thread_count or 2, part.core_count or 1, len(self.cpus)
        first, after = number * cores, cores * sockets
        more = f",{after + first}-{after + first + cores - 1}" if threads > cores else ""
        return f"{first}-{first + cores - 1}{more}\t{number}"

    def xml(self) -> str:
        """Return the file that NCCL writes to NCCL_TOPO_DUMP_FILE."""
        ids = {name: f"0000:{number + 16:02x}:00.0" for number, name in enumerate(self.devices)}
        lines = ['<system version="1">']
        for number, cpu in enumerate(self.cpus):
            part = self.devices[cpu].part
            assert isinstance(part, CpuPart)
            vendor = {"intel": "GenuineIntel", "amd": "AuthenticAMD"}.get(part.vendor, "Other")
            mask = f"{(1 << (part.thread_count or 2)) - 1:x}"
            lines.append(f'<cpu numaid="{number}" affinity="{mask}" vendor="{vendor}">')
            for below in self._near[cpu]:
                if self.devices[below].kind != "cpu" and self.path(cpu, below) == [cpu, below]:
                    lines += self._bus(cpu, below, ids)
            lines.append("</cpu>")
        return "\n".join([*lines, "</system>", ""])

    def _bus(self, above: str, name: str, ids: dict[str, str]) -> list[str]:
        device = self.devices[name]
        generation, lanes = self.slots[frozenset((above, name))]
        port = f'link_speed="{_RATE[generation]} GT/s PCIe" link_width="{lanes}"'
        if device.kind == "pcie-switch":
            below = [each for each in self._near[name] if each != above]
            inner = [line for each in below for line in self._bus(name, each, ids)]
            return [f'<pci busid="{ids[name]}" class="0x060400" {port}>', *inner, "</pci>"]
        if device.kind == "gpu":
            number = self.gpus.index(name)
            links = [
                f'<nvlink target="{ids[peer]}" count="{n}" tclass='
                f'"{"0x068000" if self.devices[peer].kind == "nvlink-switch" else "0x030200"}"/>'
                for (own, peer), n in self.nvlinks.items()
                if own == name
            ]
            assert isinstance(device.part, GpuPart)
            number_of = (device.part.pci_ids or ("10de:ffff",))[0].split(":")
            head = (
                f'<pci busid="{ids[name]}" class="0x030200" vendor="0x{number_of[0]}" device="0x{number_of[1]}" {port}>'
            )
            return [head, f'<gpu dev="{number}">', *links, "</gpu>", "</pci>"]
        if device.kind == "nic":
            assert isinstance(device.part, NicPart)
            rate = f'dev="{self.nics.index(name)}" speed="{device.part.bandwidth * 8e-6:.0f}"'
            net = f"<net name={quoteattr(name)} {rate}/>"
            return [f'<pci busid="{ids[name]}" class="0x020700" {port}><nic>', net, "</nic></pci>"]
        return []
