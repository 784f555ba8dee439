"""From a YAML file to a :class:`Topology`: ``load_topology``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.topology import catalogue
from simulator.topology.cluster import compose_cluster
from simulator.topology.lanes import lane_notes
from simulator.topology.matrix import parse_matrix
from simulator.topology.names import MAX_NAMES, expand
from simulator.topology.parts import NETWORK_LINKS, CpuPart, GpuPart, LinkPart, NicPart, Part, StoragePart, SwitchPart
from simulator.topology.schema import ClusterSpec, DeviceSpec, LinkSpec, MeshSpec, TopologyFile
from simulator.topology.topology import Device, DeviceKind, Topology, Wire
from simulator.topology.validation import kept_positions, validate_in_part
from simulator.topology.yaml_source import YamlSource, parse_yaml, read_yaml

__all__ = ["load_topology", "topology_from_text"]

_DEFAULTS: Mapping[str, Part] = {
    "gpu": GpuPart(kind="gpu"),
    "cpu": CpuPart(kind="cpu"),
    "pcie-switch": SwitchPart(kind="switch", of="pcie"),
    "nvlink-switch": SwitchPart(kind="switch", of="nvlink"),
    "network-switch": SwitchPart(kind="switch", of="network"),
    "storage": StoragePart(kind="storage"),
}
AnyKind = TypeVar("AnyKind", bound=Part)
_SOCKETS = re.compile(r"([1-9][0-9]?)\s*x\s+(.+)", re.IGNORECASE | re.ASCII)
_NAMED = 4  # of a range at most; the others are like them
_MAX_WIRES = 262_144
_OVERRIDES = ("memory_size", "memory_bandwidth", "core_count", "thread_count", "latency", "bandwidth")


def load_topology(name: str, *, n_nodes: int | None = None, fabric: str | None = None) -> Topology:
    """Load the topology *name*, a path or the name of a built-in one.

    *name*: ``p3.16xlarge.yaml``, ``p3.16xlarge`` or a path; or a GPU or CPU of the catalogue, which stands for a
        machine that has it alone (``t4``, ``2 x xeon-gold-6230``).
    *n_nodes*: compose that many of the machine over a network.
    *fabric*: link part between each NIC and the network, in place of the NIC's own rate.

    Raises InputError with every fault of the file, each with its place.
    """
    alone = _of_part(name)
    if alone is not None:
        return _resolve(parse_yaml(alone.encode(), name), None, n_nodes, fabric)
    path, shown = catalogue.find_topology(name)
    return _resolve(read_yaml(path, shown), path.parent, n_nodes, fabric)


def _of_part(name: str) -> str | None:
    """Return the YAML of a machine that has the part *name* alone, or several of a CPU; None where it names none."""
    several = _SOCKETS.fullmatch(name)
    count, part = (int(several[1]), several[2]) if several else (1, name)
    if part in catalogue.builtin_topologies():
        return None
    if part in catalogue.part_names("cpu"):
        devices = f"cpu[0-{count - 1}]" if count > 1 else "cpu0"
    elif part in catalogue.part_names("gpu") and not several:
        devices = "gpu0"
    else:
        return None
    return f"schema_version: 1\nname: {part}\ndevices:\n  {devices}: {{part: {part}}}\n"


def topology_from_text(text: str, *, n_nodes: int | None = None, fabric: str | None = None) -> Topology:
    """As :func:`load_topology`, for a document at hand."""
    return _resolve(parse_yaml(text.encode(), "<text>"), None, n_nodes, fabric)


def _resolve(source: YamlSource, folder: Path | None, n_nodes: int | None, fabric: str | None) -> Topology:
    if isinstance(source.data, dict) and "layers" in source.data and not {"devices", "cluster"} & set(source.data):
        fault = "these are layers of a network; --workload names a network, --topology a machine"
        raise InputError(source.fault(("layers",), fault, key=True))
    spec, faults = validate_in_part(source, TopologyFile, ("parts", "devices", "links", "meshes"))
    if spec is None or (faults and spec.cluster is not None):
        raise InputError(faults)
    if spec.cluster is not None:
        if spec.devices or spec.links or spec.meshes:
            raise InputError(source.fault(("cluster",), "a file holds either a cluster or devices, not both", key=True))
        if spec.trays > 1:
            raise InputError(source.fault(("trays",), "trays belong to the file of the node", key=True))
        return _cluster(source, spec, spec.cluster, folder, n_nodes, fabric)
    node = _Resolver(source, spec, faults).topology()
    if n_nodes is None:
        if fabric is not None:
            raise InputError(
                f"--fabric: joins several machines, {one_line(node.name, 60)} is one; add --nodes, for example 2"
            )
        return node
    return compose_cluster([(node, n_nodes)], fabric=_fabric(fabric, spec) if fabric is not None else None)


def _cluster(
    source: YamlSource,
    spec: TopologyFile,
    cluster: ClusterSpec,
    folder: Path | None,
    n_nodes: int | None,
    fabric: str | None,
) -> Topology:
    lookup = _Resolver(source, spec)
    switch = lookup.part(cluster.switch, SwitchPart, ("cluster", "switch"))
    own_fabric = lookup.part(cluster.fabric, LinkPart, ("cluster", "fabric"))
    if isinstance(own_fabric, LinkPart) and own_fabric.of not in NETWORK_LINKS:
        shown = one_line(cluster.fabric, 60)
        lookup.fault(("cluster", "fabric"), f"'{shown}' is no network; {nearest(own_fabric.of, NETWORK_LINKS)}")
    if isinstance(switch, SwitchPart) and switch.of != "network":
        shown = one_line(cluster.switch, 60)
        lookup.fault(("cluster", "switch"), f"'{shown}' is a switch of {switch.of}, not of a network")
    said: list[tuple[tuple[str | int, ...], str, int]] = [
        (("cluster", "groups", i, "node"), group.node, group.nodes) for i, group in enumerate(cluster.groups)
    ]
    if cluster.node is not None and cluster.nodes is not None:
        said = [(("cluster", "node"), cluster.node, cluster.nodes if n_nodes is None else n_nodes)]
    elif n_nodes is not None:
        lookup.fault(("cluster", "groups"), "--nodes: the groups say how many nodes there are", key=True)
    groups: list[tuple[Topology, int]] = []
    for place, name, count in said:
        node = lookup.node(name, place, folder)
        if node is not None:
            groups.append((node, count))
    lookup.raise_faults()
    fabric_part = _fabric(fabric, spec) if fabric is not None else own_fabric
    for node, _ in groups:
        if fabric_part is None and not any(device.kind == "nic" for device in node.devices):
            hint = "the cluster needs a fabric, for example ethernet-10g"
            raise InputError(source.fault(("cluster",), f"{node.name} has no NIC; {hint}", key=True))
    try:
        return compose_cluster(
            groups,
            fabric=fabric_part,
            switch=switch,
            oversubscription=cluster.oversubscription,
            name=spec.name,
            description=spec.description,
            aliases=spec.aliases,
            file=source.file,
        )
    except InputError as error:
        if cluster.groups:
            raise InputError(source.fault(("cluster", "groups"), str(error), key=True)) from None
        raise


def _fabric(name: str, spec: TopologyFile) -> LinkPart:
    part = spec.parts.get(name) or catalogue.load_part(name)
    if isinstance(part, LinkPart) and part.of in NETWORK_LINKS:
        return part
    links = {n: catalogue.load_part(n) for n in catalogue.part_names("link")}
    names = [n for n, p in links.items() if isinstance(p, LinkPart) and p.of in NETWORK_LINKS]
    raise InputError(f"--fabric: no network link is called '{one_line(name, 60)}'; {nearest(name, names)}")


def _described(source: YamlSource) -> set[str] | None:
    """Return all names under devices, those of entries with faults too; None where a name cannot be read."""
    names: set[str] = set()
    readable = True
    described = source.data.get("devices") or {}
    if not isinstance(described, dict):
        return None
    for key in described:
        try:
            names.update(expand(str(key)))
        except ValueError:
            readable = False
        if len(names) > MAX_NAMES:
            raise InputError(source.fault(("devices", key), f"a machine has at most {MAX_NAMES} devices", key=True))
    return names if readable else None


class _Resolver:
    """Look up every name of one file, collecting the faults."""

    def __init__(self, source: YamlSource, spec: TopologyFile, faults: Sequence[Fault] = ()) -> None:
        self.source = source
        self.spec = spec
        self.faults: list[Fault] = list(faults)
        self.devices: dict[str, Device] = {}
        self.keys: dict[str, str] = {}
        self.n_wires = 0
        self.described = _described(source)

    def fault(self, path: tuple[str | int, ...], message: str, *, key: bool = False) -> None:
        self.faults.append(self.source.fault(path, message, key=key))

    def raise_faults(self) -> None:
        if self.faults:
            raise InputError(sorted(self.faults, key=lambda f: (f.line, f.column)))

    def node(self, name: str, place: tuple[str | int, ...], folder: Path | None) -> Topology | None:
        """Return the node *name* of a cluster, or None after a fault at *place*; raises InputError of its own file."""
        alone = _of_part(name)
        if alone is not None:
            return _resolve(parse_yaml(alone.encode(), name), None, None, None)
        try:
            path, shown = catalogue.find_topology(name, beside=folder)
        except InputError as error:
            self.fault(place, str(error))
            return None
        inner = read_yaml(path, shown)
        if isinstance(inner.data, dict) and inner.data.get("cluster") is not None:  # itself, at worst
            self.fault(place, "the node of a cluster cannot be a cluster")
            return None
        return _resolve(inner, path.parent, None, None)

    def topology(self) -> Topology:
        for key, device in self.spec.devices.items():
            self._device(key, device)
        wires: list[Wire] = []
        for i, link in zip(self._positions("links"), self.spec.links, strict=True):
            wires.extend(self._link(i, link))
        for i, mesh in zip(self._positions("meshes"), self.spec.meshes, strict=True):
            wires.extend(self._mesh(i, mesh))
        computing = any(d.kind == "gpu" or (d.kind == "cpu" and d.part_name) for d in self.devices.values())
        if not computing and not self.faults:
            place = ("devices",) if self.spec.devices else ()
            self.fault(place, "there is no GPU; devices needs for example gpu[0-3]: {kind: gpu}", key=True)
        n_gpus = sum(d.kind == "gpu" for d in self.devices.values())
        if n_gpus % self.spec.trays and not self.faults:
            self.fault(("trays",), f"{n_gpus} GPUs cannot be divided evenly among {self.spec.trays} trays")
        if not self.faults:
            self._connected(wires)
        self.raise_faults()
        return Topology(
            name=self.spec.name,
            description=self.spec.description,
            aliases=self.spec.aliases,
            devices=tuple(self.devices.values()),
            wires=tuple(wires),
            transport=self.spec.transport,
            n_nodes=1,
            file=self.source.file,
            trays=self.spec.trays,
            notes=lane_notes(self.source, self.devices, self.keys, wires),
        )

    def part(self, name: str | None, kind: type[AnyKind], path: tuple[str | int, ...]) -> AnyKind | None:
        """Return the part *name* of the file or the catalogue; a fault where there is none of that kind."""
        if name is None:
            return None
        part = self.spec.parts.get(name) or catalogue.load_part(name)
        if isinstance(part, kind):
            return part
        wanted = kind.__name__.removesuffix("Part").lower()
        names = [*catalogue.part_names(wanted if wanted else None)]
        names += [one_line(n, 60) for n, p in self.spec.parts.items() if isinstance(p, kind)]
        shown = one_line(name, 60)
        own = self.source.data.get("parts")
        if part is None and isinstance(own, dict) and name in own:
            return None  # described in the file, with a fault of its own
        if part is None:
            self.fault(path, f"no part is called '{shown}'; {nearest(name, names, listed=8)}")
        else:
            article = "a part of kind " + str(getattr(part, "kind", "?"))
            self.fault(path, f"'{shown}' is {article}, a {wanted} is needed here; {nearest(name, names, listed=8)}")
        return None

    def _positions(self, key: str) -> Sequence[int]:
        """Return where the entries that are left of the list *key* stand in the file."""
        if self.faults:
            return kept_positions(self.source, TopologyFile, key)
        return range(len(getattr(self.spec, key)))

    def _device(self, key: str, spec: DeviceSpec) -> None:
        path = ("devices", key)
        try:
            names = expand(key)
        except ValueError as error:
            self.fault(path, str(error), key=True)
            return
        if (spec.part is None) == (spec.kind is None):
            message = f"{key} needs either part (a name of the catalogue) or kind (gpu, cpu, ...), not both"
            self.fault(path, message, key=True)
            return
        part: Part | None
        if spec.part is not None:
            part = self.part(spec.part, Part, (*path, "part"))
            if isinstance(part, LinkPart):
                self.fault((*path, "part"), f"'{one_line(spec.part, 60)}' is a link; a device is needed here")
                return
        elif spec.kind == "nic":
            if spec.bandwidth is None:
                self.fault(path, f"{key}: a NIC without a part needs a bandwidth", key=True)
                return
            part = NicPart.model_construct(kind="nic", network="ethernet", bandwidth=spec.bandwidth)
        else:
            part = _DEFAULTS[cast(str, spec.kind)]
        if part is None:
            return
        changes: dict[str, Any] = {k: v for k in _OVERRIDES if (v := getattr(spec, k)) is not None}
        for name in [k for k in changes if k not in type(part).model_fields]:
            self.fault((*path, name), f"{key}: {name} does not apply to a {getattr(part, 'kind', 'device')}", key=True)
            del changes[name]
        if isinstance(part, CpuPart) and "core_count" in changes and part.core_count and part.thread_count:
            threads = changes["core_count"] * part.thread_count // part.core_count
            changes.setdefault("thread_count", threads)
        if changes:
            part = part.model_copy(update=changes)
        kind = cast(DeviceKind, f"{part.of}-switch" if isinstance(part, SwitchPart) else getattr(part, "kind", ""))
        for name in names:
            if name in self.devices:
                self.fault(path, f"the device '{name}' is described twice; also by '{self.keys[name]}'", key=True)
                continue
            self.keys[name] = key
            self.devices[name] = Device(name, kind, part, spec.part or "", 0)

    def _figures(self, path: tuple[str | int, ...], spec: LinkSpec | MeshSpec) -> LinkPart | None:
        figures = ("bandwidth", "efficiency", "latency", "duplex")
        changes: dict[str, Any] = {k: v for k in figures if (v := getattr(spec, k, None)) is not None}
        if spec.part is not None:
            part = self.part(spec.part, LinkPart, (*path, "part"))
            if spec.kind is not None and part is not None and part.of != spec.kind:
                shown = one_line(spec.part, 60)
                self.fault((*path, "kind"), f"the part '{shown}' is of kind {part.of}; leave kind out")
            return part.model_copy(update=changes) if part is not None else None
        if spec.kind is None or "bandwidth" not in changes:
            self.fault(path, "a link needs a part, or kind and bandwidth; for example {kind: pcie, bandwidth: 16 GB/s}")
            return None
        return LinkPart.model_construct(kind="link", of=spec.kind, **changes)

    def _link(self, index: int, spec: LinkSpec) -> list[Wire]:
        path = ("links", index)
        part = self._figures(path, spec)
        ends: list[list[str]] = []
        for i, text in enumerate(spec.between):
            try:
                names = expand(text)
            except ValueError as error:
                self.fault((*path, "between", i), str(error))
                continue
            ends.append(names)
            if self.described is None:
                continue
            unknown = [name for name in dict.fromkeys(names) if name not in self.described]
            for name in unknown[:_NAMED]:
                more = f" (nor {len(unknown) - _NAMED} more of {text})" if name in unknown[_NAMED - 1 : -1] else ""
                hint = nearest(name, self.described, listed=8) or "none is described"
                self.fault((*path, "between", i), f"no device is called '{name}'{more}; {hint}")
        if len(ends) < 2 or part is None:
            return []
        a, b = ends
        if len(a) != len(b):
            if 1 not in (len(a), len(b)):
                message = f"the ends stand for {len(a)} and {len(b)} devices; equal numbers pair up, one repeats"
                self.fault((*path, "between"), message)
                return []
            a, b = (a * len(b), b) if len(a) == 1 else (a, b * len(a))
        for name in list(dict.fromkeys(x for x, y in zip(a, b, strict=True) if x == y))[:_NAMED]:
            self.fault((*path, "between"), f"the link joins '{name}' with itself")
        self.n_wires += len(a)
        if self.n_wires > _MAX_WIRES:
            raise InputError(self.source.fault(path, f"a machine has at most {_MAX_WIRES} links"))
        return [Wire(x, y, part, spec.count) for x, y in zip(a, b, strict=True)]

    def _mesh(self, index: int, spec: MeshSpec) -> list[Wire]:
        path = ("meshes", index)
        part = self._figures(path, spec)
        try:
            edges = parse_matrix(spec.matrix)
        except ValueError as error:
            self.fault((*path, "matrix"), str(error))
            return []
        if part is None or self.described is None:
            return []
        unknown = sorted({n for edge in edges for n in edge[:2] if f"gpu{n}" not in self.described})
        for number in unknown:
            hint = nearest(f"gpu{number}", self.described) or "none is described"
            self.fault((*path, "matrix"), f"no device is called 'gpu{number}'; {hint}")
        if unknown:
            return []
        return [Wire(f"gpu{a}", f"gpu{b}", part, count) for a, b, count in edges]

    def _connected(self, wires: list[Wire]) -> None:
        """Every GPU must be reachable from the first one."""
        neighbours: dict[str, list[str]] = {name: [] for name in self.devices}
        for wire in wires:
            neighbours[wire.a].append(wire.b)
            neighbours[wire.b].append(wire.a)
        gpus = [name for name, device in self.devices.items() if device.kind == "gpu"]
        reached = set(gpus[:1])
        stack = gpus[:1]
        while stack:
            for name in neighbours[stack.pop()]:
                if name not in reached:
                    reached.add(name)
                    stack.append(name)
        lost: dict[str, list[str]] = {}
        for name in gpus:
            if name not in reached:
                lost.setdefault(self.keys[name], []).append(name)
        for key, names in lost.items():
            named = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
            self.fault(("devices", key), f"no links lead from {gpus[0]} to {named}; add them under links", key=True)
