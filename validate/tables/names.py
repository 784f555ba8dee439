"""The machines and devices that tables name (:class:`RowNames`): built in, an alias, or what the user assigns."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from simulator.api import Device, Session
from simulator.errors import InputError, nearest, one_line
from simulator.network.machine import Machine
from simulator.questions.where import Where
from simulator.records import dataclass, field
from simulator.topology.catalogue import builtin_topologies, load_part, part_names
from simulator.topology.load import load_topology
from simulator.topology.parts import CpuPart, GpuPart
from simulator.topology.yaml_source import read_yaml
from validate.tables.cells import NotScored, unscored

_SOCKETS = re.compile(r"([1-9][0-9]?)\s*x\s+(.+)", re.IGNORECASE | re.ASCII)
_NEAR = 10_000  # names of a table that are searched for the nearest one
MAKERS = ("nvidia", "amd")  # vendors for whose GPUs there are operator models


class MachineNames:
    """Topologies by the machine names in tables: the user's *named*, *topology* for all, built in, or of a single GPU.

    Raises InputError where a file named by the user is faulty.
    """

    def __init__(self, topology: str | None = None, named: Mapping[str, str] | None = None) -> None:
        self._topology = topology
        self.named = dict(named or {})
        for file in dict.fromkeys([*([topology] if topology else []), *self.named.values()]):
            load_topology(file)  # report mistakes in the user's files before any work

    @property
    def are_needed(self) -> bool:
        """Whether rows must name their machine."""
        return self._topology is None

    def topology(self, name: str) -> str | None:
        """Return the topology of the table's machine *name*, None where there is none."""
        return self.named.get(name) or self._topology or builtin_names().get(name) or names_of("gpu").get(name)

    def where(self, name: str, n_nodes: int | None = None, gpus_a_node: int = 1, fabric: str = "") -> Where:
        """Return *n_nodes* nodes of the machine *name*, by trays if *gpus_a_node* fit in one, joined by *fabric*."""
        topology = self.topology(name)
        if topology is None:
            raise _unknown("topology of machine", name, (*self.named, *builtin_names()), "--machine NAME=FILE")
        if n_nodes is not None:
            trays, gpus = _trays(topology)
            n_nodes = -(-n_nodes // trays) if gpus_a_node <= gpus else n_nodes
        return Where(topology, n_nodes, fabric if fabric and (n_nodes or 1) > 1 else None)


@lru_cache(maxsize=1)
def builtin_names() -> Mapping[str, str]:
    """Return the built-in topologies by name and by alias; names take precedence."""
    paths = builtin_topologies()
    found = {name: name for name in paths}
    for name, path in paths.items():
        for alias in read_yaml(path, path.name).data.get("aliases", ()):
            found.setdefault(str(alias), name)
    return found


@lru_cache(maxsize=1024)
def _trays(topology: str) -> tuple[int, int]:
    """Return the number of trays in one machine of *topology*, and the GPUs in each."""
    one = load_topology(topology)
    return one.trays, sum(device.kind == "gpu" for device in one.devices) // one.trays


_nearest = lru_cache(maxsize=1024)(nearest)  # many rows share a name


def _unknown(what: str, name: str, known: tuple[str, ...], option: str) -> NotScored:
    """Return why a row with *name* has no *what*, with the nearest of the *known* names, else the *option*."""
    if not name:
        return NotScored(f"{what.rsplit(maxsplit=1)[-1]} missing")
    close = _nearest(name, known)
    hint = close if close.startswith("did") else f"{option} gives one"
    return NotScored(f"no {what} '{one_line(name, 60)}'; {hint}")


def check_used(what: str, named: Iterable[str], seen: Iterable[str]) -> None:
    """Raise InputError for the first of *named* that is not among *seen*, with the nearest of these that were read."""
    unused = dict.fromkeys(named)
    there: set[str] = set()
    for name in seen if unused else ():
        unused.pop(name, None)
        if not unused:
            return
        there |= {name} if len(there) < _NEAR else set()
    for name in unused:
        raise InputError(f"--{what}: no row is of {what} '{one_line(name, 60)}'; {nearest(name, there)}")


@lru_cache(maxsize=1)
def device_names() -> dict[str, str]:
    """Return the part of every name and alias of a built-in GPU or CPU; an accelerator of a CPU vendor is a CPU."""
    cpus, gpus = names_of("cpu"), names_of("gpu")
    others = {part for part in gpus.values() if f"{part}-cpu" in cpus}
    as_cpu = {name for name in others if isinstance(part := load_part(name), GpuPart) and part.vendor not in MAKERS}
    return cpus | {name: f"{part}-cpu" if part in as_cpu else part for name, part in gpus.items()}


@lru_cache(maxsize=1024)
def find_cpu(name: str) -> str | None:
    """Return the CPU part for the operating system's *name* of a processor, None where there is none.

    The name must contain all words of the part's name: ``xeon-e5-2686-v4`` matches
    ``Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz``.  Revisions must agree: an E5-2670 v2 is not an E5-2670.
    """
    words = set(re.findall("[a-z0-9]+", name.lower()))
    revisions = {word for word in words if re.fullmatch("v[1-9]", word)}
    found = [part for part in part_names("cpu") if revisions <= set(part.split("-")) <= words]
    return max(found, key=len, default=None)


@lru_cache(maxsize=2)
def names_of(kind: str) -> dict[str, str]:
    """Return the name of the part for every name and alias of a built-in one of a *kind*, gpu or cpu."""
    parts = {name: load_part(name) for name in part_names(kind)}
    return {known: name for name, part in parts.items() if part is not None for known in (*part.aliases, name)}


def part_called(device: str, names: Mapping[str, str] | None = None) -> str:
    """Return the part that *device* names, or is another name of (*names*); raises InputError with the nearest."""
    names = device_names() if names is None else names
    if device not in names:
        close = nearest(device, names)
        hint = close if close.startswith("did") else nearest(device, set(names.values()))
        raise InputError(f"--device: no GPU or CPU part '{one_line(device, 60)}'; {hint}")
    return names[device]


_Named = tuple[str, str]  # the machine, a topology or a part with its sockets, and the part there


class DeviceNames:
    """Parts by the device names in tables: *named* as ``--device`` has them (docs/scoring.md), of *topology*, built in.

    Raises InputError where a part is not known, with the nearest one.
    """

    def __init__(self, named: Iterable[str] = (), topology: str | None = None) -> None:
        self._all: _Named | None = None
        self.named: dict[str, _Named] = {}
        self._own: dict[str, GpuPart | CpuPart] = {}
        self._known = {name: (part, part) for name, part in device_names().items()}
        for device in load_topology(topology).devices if topology is not None else ():
            part, name = device.part, device.part_name
            if device.node == 0 and name and isinstance(part, GpuPart | CpuPart) and name not in self._own:
                self._own[name] = part
                self._known.update(dict.fromkeys((*part.aliases, name), (topology or name, name)))
        for text in named:
            self._add(text)

    @property
    def are_needed(self) -> bool:
        """Whether rows must name their device."""
        return self._all is None

    @property
    def names(self) -> dict[str, str]:
        """The name of the part for every name and alias, built in or of the topology."""
        return {name: part for name, (_, part) in self._known.items()}

    def part(self, name: str) -> str | None:
        """Return the part of the table's device *name*, None where there is none."""
        found = self._of(name)
        return found[1] if found is not None else None

    def where(self, name: str) -> tuple[Where, str]:
        """Return the machine of the table's device *name*, and the device there; raises NotScored if unknown."""
        found = self._of(name)
        if found is None:
            raise _unknown("part of device", name, (*self.named, *self._known), "--device NAME=PART")
        return Where(found[0]), found[1]

    def described(self, name: str) -> GpuPart | CpuPart:
        """Return the description of the table's device *name*; raises NotScored where it is not known."""
        part = self.where(name)[1]
        found = self._own.get(part) or load_part(part)
        assert isinstance(found, GpuPart | CpuPart)
        return found

    def _of(self, name: str) -> _Named | None:
        return self.named.get(name) or self._all or self._known.get(name) or self._known.get(find_cpu(name) or "")

    def _add(self, text: str) -> None:
        name, equals, part = (piece.strip() for piece in text.rpartition("="))
        if not part or (equals and not name):
            raise InputError(f"--device: NAME=PART or PART is needed; got '{one_line(text, 60)}'")
        several = _SOCKETS.fullmatch(part)
        part = several[2] if several else part
        part_called(part, self.names)
        found = self._known[part]
        if several:
            if not isinstance(self._own.get(found[1]) or load_part(found[1]), CpuPart):
                raise InputError(f"--device: '{one_line(text, 60)}': several of a part are sockets of a CPU")
            found = (f"{several[1]} x {found[1]}" if several[1] != "1" else found[1], found[1])
        if not equals:
            if self._all is not None:
                raise InputError("--device: a part for all rows is given twice")
            self._all = found
        elif name in self.named:
            raise InputError(f"--device: '{one_line(name, 60)}' is given twice")
        else:
            self.named[name] = found


@dataclass(frozen=True, slots=True)
class RowNames:
    """The machines and devices that rows name, and the session that predicts them.

    ``strategy`` predicts collectives without one; ``folder`` is the table's, for files of networks that rows name.
    """

    machines: MachineNames = field(default_factory=MachineNames)
    devices: DeviceNames = field(default_factory=DeviceNames)
    session: Session = field(default_factory=Session)
    strategy: str = "nccl"
    folder: str = ""

    def file(self, name: str) -> str:
        """Return the path of the file *name* in the table's folder; raises NotScored where it is outside."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise NotScored(f"'{one_line(name, 60)}' is not in the folder of the table")
        return str(Path(self.folder) / path)

    def machine(self, where: Where) -> Machine:
        """Return the machine *where*; raises NotScored where it cannot be built."""
        with unscored():
            return self.session.machine(where)

    def gpus(self, where: Where, n_nodes: int, local: Sequence[int]) -> tuple[int, ...]:
        """Return the GPUs *local* on each of *n_nodes* nodes of *where*, trays evenly; raises NotScored for too few."""
        machine = self.machine(where)
        hosts, a_host = machine.n_hosts, len(machine.gpus) // machine.n_hosts
        a_node = a_host if n_nodes == hosts else _trays(where.topology)[1]
        if max(local) >= a_node:
            raise NotScored(f"more GPUs a node than {machine.name} has")
        each, more = divmod(n_nodes, hosts)
        firsts = [host * a_host + i * a_node for host in range(hosts) for i in range(each + (host < more))]
        return tuple([first + gpu for first in firsts for gpu in local])

    def capability(self, where: Where) -> str | None:
        """Return the compute capability of the first GPU of the machine *where*; None where it has none."""
        machine = self.machine(where)
        part = machine.nodes[machine.gpus[0]].part if machine.gpus else None
        return part.compute_capability if isinstance(part, GpuPart) else None

    def device(self, name: str, threads: int | None = None) -> Device:
        """Return the table's device *name*, a CPU with *threads* threads; raises NotScored where it is not known."""
        where, called = self.devices.where(name)
        with unscored():
            return self.session.device(where, called, threads)


def machines_named(texts: Sequence[str]) -> dict[str, str]:
    """Return the entries ``NAME=FILE`` of the option ``--machine`` as a mapping; raises InputError on a faulty one."""
    named: dict[str, str] = {}
    for text in texts:
        name, equals, file = (part.strip() for part in text.partition("="))
        if not (name and equals and file):
            raise InputError(f"--machine: NAME=FILE is needed; got '{one_line(text, 60)}'")
        if name in named:
            raise InputError(f"--machine: '{one_line(name, 60)}' is given twice")
        named[name] = file
    return named
