"""The devices of a machine, and the hosts that launch their kernels."""

from collections.abc import Mapping
from functools import partial

from simulator.constants import DEFAULT, Constants
from simulator.devices.cpu import Cpu, cpu_from_part
from simulator.devices.gpu import Gpu, gpu_from_part
from simulator.devices.predict import Device
from simulator.errors import InputError, counted, nearest, refused
from simulator.kept import Kept
from simulator.network.machine import Machine, Node
from simulator.questions.calibration import Calibration
from simulator.questions.where import CpuLibrary, Month
from simulator.records import dataclass
from simulator.topology.parts import CpuPart, GpuPart


@dataclass(frozen=True, slots=True)
class Place:
    """A device and the node that launches its kernels, by names in the machine; of a CPU, these are the same."""

    name: str
    part: str
    device: Device
    host: str


class Places:
    """The devices of *machine*, each created once, calibrated, with libraries of a month, and the GPUs' clock held."""

    def __init__(
        self,
        machine: Machine,
        calibrations: Mapping[str, Calibration] | None = None,
        constants: Constants = DEFAULT,
        libraries: Month | None = None,
        gpu_clock_Hz: float = 0.0,
    ) -> None:
        self.machine = machine
        self.constants = constants
        self._libraries, self._gpu_clock_Hz = libraries, gpu_clock_Hz
        self._calibrations = calibrations or {}
        self._made = Kept()

    def find(self, name: str | None = None, *, threads: int | None = None, library: CpuLibrary = "onednn") -> Place:
        """Return the place *name* (``cpu``: all sockets; ``cpu0``; a part), by default the first GPU; or InputError."""
        nodes = _nodes(self.machine, name)
        part, shown = nodes[0].part, nodes[0].part_name or nodes[0].name
        if isinstance(part, CpuPart):
            place = "cpu" if len(nodes) > 1 else nodes[0].name
            words = shown if len(nodes) == 1 else f"{len(nodes)} x {shown}"
            return Place(place, words, self._cpu(nodes[0], len(nodes), threads, library), place)
        if threads is not None:
            raise refused("threads", f"{nodes[0].name} is a GPU; threads are those of a CPU", threads)
        return Place(nodes[0].name, shown, self._gpu(nodes[0]), _host(self.machine, nodes[0]))

    def gpu(self, number: int) -> Gpu:
        """Return GPU *number* of the machine; raises InputError."""
        gpus = self.machine.gpus
        if not 0 <= number < len(gpus):
            raise InputError(f"{self.machine.name} has {counted(len(gpus), 'GPU')}; there is no GPU {number}")
        return self._gpu(self.machine.nodes[gpus[number]])

    def part(self, name: str | None = None) -> GpuPart | CpuPart:
        """Return the part of the place called *name*, found as by :meth:`find`; raises InputError."""
        part = _nodes(self.machine, name)[0].part
        assert isinstance(part, GpuPart | CpuPart)
        return part

    def place(self, gpu: int) -> Place:
        """Return the place of the GPU with node index *gpu*; raises InputError."""
        node = self.machine.nodes[gpu]
        return Place(node.name, node.part_name or node.name, self._gpu(node), _host(self.machine, node))

    def host_of(self, index: int | None, threads: int | None = None, sockets: int = 0) -> Cpu:
        """Return the CPU at node *index*; by default *sockets* (0: all) of the first node as one; raises InputError."""
        cpus = [node for node in self.machine.nodes_of(0) if isinstance(node.part, CpuPart)]
        if index is not None:
            return self._cpu(self.machine.nodes[index], 1, threads, "onednn")
        if not cpus:
            raise InputError("the machine has no CPU")
        return self._cpu(cpus[0], sockets or len(cpus), threads, "onednn")

    def _gpu(self, node: Node) -> Gpu:
        part, shown = node.part, node.part_name or node.name
        assert isinstance(part, GpuPart)
        known = self._calibrations.get(node.part_name), self.constants, self._libraries, self._gpu_clock_Hz
        return self._made.once((shown, id(part)), lambda: gpu_from_part(shown, part, *known))

    def _cpu(self, node: Node, sockets: int, threads: int | None, library: CpuLibrary) -> Cpu:
        part, shown = node.part, node.part_name or node.name
        assert isinstance(part, CpuPart)
        known = self._calibrations.get(node.part_name)
        make = partial(cpu_from_part, library=library, calibration=known, constants=self.constants)
        key = shown, id(part), sockets, threads, library
        return self._made.once(key, lambda: make(shown, part, sockets, threads))


def _nodes(machine: Machine, name: str | None) -> list[Node]:
    if machine.gpus:  # without a search through all nodes
        gpu = machine.nodes[machine.gpus[0]] if name is None else machine.find(name)
        if gpu is not None and isinstance(gpu.part, GpuPart):
            return [gpu]
    computing = [node for node in machine.nodes if isinstance(node.part, GpuPart | CpuPart)]
    if not computing:
        raise InputError(f"{machine.name} has no GPU and no CPU that could compute")
    named = [node for node in computing if name in (node.name, node.part_name)]
    if named:
        if isinstance(named[0].part, GpuPart) or named[0].name == name:
            return named[:1]
        return [node for node in named if node.host == named[0].host]
    sockets = [node for node in computing if isinstance(node.part, CpuPart) and node.host == computing[0].host]
    if sockets and name in (None, "cpu"):
        return [node for node in sockets if node.part_name == sockets[0].part_name]
    hint = nearest(name or "", [*(node.name for node in computing), *(["cpu"] if sockets else [])])
    raise refused("device", f"{machine.name} has no GPU or CPU of that name; {hint}", name)


def _host(machine: Machine, gpu: Node) -> str:
    beside = [machine.nodes[link.dst] for link in machine.outgoing[gpu.index]]
    found = next((node for node in (*beside, *machine.nodes_of(gpu.host)) if isinstance(node.part, CpuPart)), None)
    return found.name if found else "host"
