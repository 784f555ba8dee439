"""Name lookup in the file of one machine: parts, devices, links and matrices."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar, cast

from simulator import topology as t
from simulator.errors import FAULTS_SHOWN, Fault, InputError, nearest, one_line
from simulator.records import lists_by_key, replace, sums_by_key
from simulator.topology import catalogue, schema
from simulator.topology.catalogue import kept_positions
from simulator.topology.parts import CpuPart, DeviceKind, GpuPart, LinkPart, NicPart, Part, StoragePart, SwitchPart
from simulator.topology.yaml_source import YamlSource

_DEFAULTS: Mapping[str, Part] = {
    "gpu": GpuPart.model_construct(kind="gpu"),
    "cpu": CpuPart.model_construct(kind="cpu"),
    "storage": StoragePart.model_construct(kind="storage"),
    **{f"{of}-switch": SwitchPart.model_construct(kind="switch", of=of) for of in ("pcie", "nvlink", "network")},
}
_Path = tuple[str | int, ...]  # in a file
_Near = tuple[str, Collection[str]] | None
AnyKind = TypeVar("AnyKind", bound=Part)
_NAMED = 4  # the most names of a range to report
_MAX_WIRES = 262_144
_LEAST_POWER = 0.25  # of its own: the lowest limit that drivers list is 100 of 400 W (A100), 200 of 700 W (H100)
MOST_NVLINKS = 72  # for a GPU without a part: twice the 36 of the newest announced one (Rubin)
_NUMBERED = re.compile(r"gpu\d+", re.ASCII)
_AS_WRITTEN = ("name", "description", "aliases", "transport", "price_per_hour", "trays", "shared_network")
_OVERRIDES = tuple(name for name in schema.DeviceSpec.model_fields if name not in ("part", "kind", "source"))


def _described(source: YamlSource) -> set[str] | None:
    """Return all names under ``devices``, faulty or not; None if one cannot be read. Raises InputError if too many."""
    names: set[str] = set()
    readable, n_names = True, 0
    described = source.data.get("devices") or {}
    if not isinstance(described, dict):
        return None
    for key in described:
        try:
            n_names += schema.count(str(key))
            if n_names <= schema.MAX_NAMES:
                names.update(schema.expand(str(key)))
        except ValueError:
            readable = False
        if n_names > schema.MAX_NAMES:
            told = f"a machine has at most {schema.MAX_NAMES} devices"
            raise InputError(source.fault(("devices", key), told, key=True))
    return names if readable else None


class Resolver:
    """Looks up the names in a file; keeps the first faults, counts the others. *told*: faults found by the schema."""

    def __init__(self, source: YamlSource, spec: schema.TopologyFile, told: InputError | None = None) -> None:
        self.source, self.spec = source, spec
        self.faults, self.more = (list(told.faults), told.more) if told is not None else (list[Fault](), 0)
        self.devices: dict[str, t.Device] = {}
        self.keys: dict[str, str] = {}
        self.n_wires = 0
        self.in_matrices: set[str] = set()
        self._known_parts: dict[type[Part], list[str]] = {}
        self.described = _described(source)
        self.known = sorted(self.described or ())

    def fault(self, path: _Path, told: str, *, key: bool = False, near: _Near = None, none: str = "") -> None:
        """Record a fault; *near*: a name found and those allowed, the nearest of which are suggested, else *none*."""
        if len(self.faults) >= 2 * FAULTS_SHOWN:
            self.more += 1
            return
        if near is not None:
            told += f"; {nearest(*near, listed=8) or none}"
        self.faults.append(self.source.fault(path, told, key=key))

    def raise_faults(self) -> None:
        """Raise InputError with the recorded faults, in file order, if there are any."""
        if self.faults:
            raise InputError(sorted(self.faults, key=lambda f: (f.line, f.column)), self.more)

    def topology(self) -> t.Topology:
        """Return the machine described by the file.  Raises InputError with every fault."""
        for key, device in self.spec.devices.items():
            self._device(key, device)
        links = zip(self._positions("links"), self.spec.links, strict=True)
        meshes = zip(self._positions("meshes"), self.spec.meshes, strict=True)
        wires = [*chain(*(self._link(i, link) for i, link in links), *(self._mesh(i, mesh) for i, mesh in meshes))]
        computing = any(d.kind == "gpu" or (d.kind == "cpu" and d.part_name) for d in self.devices.values())
        if not computing and not self.faults:
            place = ("devices",) if self.spec.devices else ()
            self.fault(place, "there is no GPU; devices needs for example gpu[0-3]: {kind: gpu}", key=True)
        n_gpus = sum(d.kind == "gpu" for d in self.devices.values())
        if n_gpus % self.spec.trays and not self.faults:
            self.fault(("trays",), f"{n_gpus} GPUs cannot be divided evenly among {self.spec.trays} trays")
        held: list[str] = []
        if not self.faults:
            self._whole()
            self._ports(wires)
            self._connected(wires)
            held = self._within_power()
        self.raise_faults()
        devices, n_nodes = t.on_hosts(list(self.devices.values()), wires)
        told = self.source, self.devices, self.keys, wires
        return t.Topology(
            **{name: getattr(self.spec, name) for name in _AS_WRITTEN},
            devices=devices,
            wires=tuple(wires),
            n_nodes=n_nodes,
            file=self.source.file,
            notes=(*t.lane_notes(*told), *t.cable_notes(*told), *dict.fromkeys(held)),
        )

    def _within_power(self) -> list[str]:
        """Hold each GPU to its share of ``power_budget``, as the limits of ``nvidia-smi -pl`` do, and return notes."""
        budget_W, path, notes = self.spec.power_budget, ("power_budget",), list[str]()
        gpus = [(each, each.part) for each in self.devices.values() if isinstance(each.part, GpuPart)]
        if budget_W is None or not gpus:
            return []
        share_W = budget_W / len(gpus)
        for device, part in gpus:
            if part.board_power is None:
                lacks = f"has no board_power, which its share, {share_W:.0f} W, would lower"
                self.fault(path, f"power_budget: {device.part_name} {lacks}")
                break
            if share_W < part.board_power * _LEAST_POWER:
                least = f"no board takes a limit below {part.board_power * _LEAST_POWER:.0f} W, a quarter of its own"
                self.fault(path, f"power_budget: each {device.part_name} would have {share_W:.0f} W; {least}")
                break
            if share_W < part.board_power:
                to = f"{share_W:.0f} of {part.board_power:.0f} W"
                notes.append(f"power_budget: holds each {device.part_name} to {to}")
                held = part.model_copy(update={"board_power": share_W})
                self.devices[device.name] = replace(device, part=held)
        return notes

    def part(self, name: str | None, kind: type[AnyKind], path: _Path) -> AnyKind | None:
        """Return the part *name* of the file or catalogue; None without *name*, or after a fault if there is none."""
        if name is None:
            return None
        part = self.spec.parts.get(name) or catalogue.load_part(name)
        if isinstance(part, kind):
            return part
        wanted = kind.__name__.removesuffix("Part").lower()
        if kind not in self._known_parts:
            here = [one_line(n, 60) for n, p in self.spec.parts.items() if isinstance(p, kind)]
            self._known_parts[kind] = [*catalogue.part_names(wanted or None), *here]
        own = self.source.data.get("parts")
        if part is None and isinstance(own, dict) and name in own:
            return None  # described in the file, with a fault that is already reported
        told = f"no part is called '{one_line(name, 60)}'"
        if part is not None:
            is_kind = f"is a part of kind {getattr(part, 'kind', '?')}"
            told = f"'{one_line(name, 60)}' {is_kind}, a {wanted} is needed here"
        self.fault(path, told, near=(name, self._known_parts[kind]))
        return None

    def _positions(self, key: str) -> Sequence[int]:
        if self.faults:
            return kept_positions(self.source, schema.TopologyFile, key)
        return range(len(getattr(self.spec, key)))

    def _device(self, key: str, spec: schema.DeviceSpec) -> None:
        path = ("devices", key)
        try:
            names = schema.expand(key)
        except ValueError as error:
            self.fault(path, str(error), key=True)
            return
        part: Part | None = None
        if (spec.part is None) == (spec.kind is None):
            message = f"{key} needs either part (a name of the catalogue) or kind (gpu, cpu, ...), not both"
            self.fault(path, message, key=True)
        elif spec.part is not None:
            part = self.part(spec.part, Part, (*path, "part"))
            if isinstance(part, LinkPart):
                self.fault((*path, "part"), f"'{one_line(spec.part, 60)}' is a link; a device is needed here")
                part = None
        elif spec.kind != "nic":
            part = _DEFAULTS[cast(str, spec.kind)]
        elif spec.bandwidth is None:
            self.fault(path, f"{key}: a NIC without a part needs a bandwidth", key=True)
        else:
            part = NicPart.model_construct(kind="nic", network="ethernet", bandwidth=spec.bandwidth)
        if part is None:
            return
        changes: dict[str, Any] = {k: v for k in _OVERRIDES if (v := getattr(spec, k)) is not None}
        part_kind = getattr(part, "kind", "device")
        for name in [k for k in changes if k not in type(part).model_fields]:
            self.fault((*path, name), f"{key}: {name} does not apply to a {part_kind}", key=True)
            del changes[name]
        if isinstance(part, CpuPart) and "core_count" in changes and part.core_count and part.thread_count:
            changes.setdefault("thread_count", changes["core_count"] * part.thread_count // part.core_count)
        part = part.model_copy(update=changes) if changes else part
        kind = cast(DeviceKind, f"{part.of}-switch" if isinstance(part, SwitchPart) else part_kind)
        for name in names:
            if name in self.devices:
                self.fault(path, f"the device '{name}' is described twice; also by '{self.keys[name]}'", key=True)
                continue
            self.keys[name] = key
            self.devices[name] = t.Device(name, kind, part, spec.part or "", 0)

    def _figures(self, path: _Path, spec: schema.LinkSpec | schema.MeshSpec) -> LinkPart | None:
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

    def _link(self, index: int, spec: schema.LinkSpec) -> list[t.Wire]:
        path = ("links", index)
        part = self._figures(path, spec)
        try:
            counts = [schema.count(text) for text in spec.between]
        except ValueError:
            counts = [1]  # reported below, with its position
        if len(counts) == 2 and counts[0] != counts[1] and 1 not in counts:
            message = f"the ends stand for {counts[0]} and {counts[1]} devices; equal numbers pair up, one joins all"
            self.fault((*path, "between"), message)
            return []
        self._count_wires(max(counts), path)
        ends: list[list[str]] = []
        for i, text in enumerate(spec.between):
            try:
                names = schema.expand(text)
            except ValueError as error:
                self.fault((*path, "between", i), str(error))
                continue
            ends.append(names)
            if self.described is None:
                continue
            unknown = [name for name in dict.fromkeys(names) if name not in self.described]
            for name in unknown[:_NAMED]:
                more = f" (nor {len(unknown) - _NAMED} more of {text})" if name in unknown[_NAMED - 1 : -1] else ""
                message = f"no device is called '{name}'{more}"
                self.fault((*path, "between", i), message, near=(name, self.known), none="none is described")
        if len(ends) < 2 or part is None:
            return []
        a, b = ends
        if len(a) != len(b):
            a, b = (a * len(b), b) if len(a) == 1 else (a, b * len(a))
        for name in list(dict.fromkeys(x for x, y in zip(a, b, strict=True) if x == y))[:_NAMED]:
            self.fault((*path, "between"), f"the link joins '{name}' with itself")
        return [t.at_adapters(t.Wire(x, y, part, spec.count), self.devices) for x, y in zip(a, b, strict=True)]

    def _count_wires(self, more: int, path: _Path) -> None:
        self.n_wires += more
        if self.n_wires > _MAX_WIRES:
            raise InputError(self.source.fault(path, f"a machine has at most {_MAX_WIRES} links"))

    def _mesh(self, index: int, spec: schema.MeshSpec) -> list[t.Wire]:
        path = ("meshes", index)
        part = self._figures(path, spec)
        try:
            gpus, links = schema.read_matrix(spec.matrix)
        except ValueError as error:
            for told in error.args:
                self.fault((*path, "matrix"), told)
            return []
        if part is None or self.described is None:
            return []
        unknown = [f"gpu{n}" for n in gpus if f"gpu{n}" not in self.described]
        for name in unknown:
            near = name, self.known
            self.fault((*path, "matrix"), f"no device is called '{name}'", near=near, none="none is described")
        self._count_wires(len(links), path)
        if unknown:
            return []
        self.in_matrices.update(f"gpu{n}" for n in gpus)
        return [t.Wire(f"gpu{a}", f"gpu{b}", part, n) for a, b, n in links]

    def _whole(self) -> None:
        gpus = [name for name, device in self.devices.items() if device.kind == "gpu"]
        left_out = [name for name in gpus if name not in self.in_matrices and _NUMBERED.fullmatch(name)]
        if self.in_matrices and left_out:
            named = ", ".join(left_out[:_NAMED]) + (", ..." if len(left_out) > _NAMED else "")
            message = f"no matrix has a row for {named}; write SYS where there is no link, or use links for a few"
            self.fault(("meshes", 0, "matrix"), message)

    def _ports(self, wires: list[t.Wire]) -> None:
        ends = ((name, wire.count) for wire in wires if wire.part.of == "nvlink" for name in (wire.a, wire.b))
        for name, n_links in sums_by_key(ends).items():
            part = self.devices[name].part
            if not isinstance(part, GpuPart):
                continue
            most, whose = part.nvlink_count, f"{self.devices[name].part_name or 'its part'} has"
            if most is None:
                most, whose = MOST_NVLINKS, "no GPU has more than"
            if n_links > most:
                place, via = "links", ""
                if name in self.in_matrices:
                    place = "meshes"
                    via = "; NVLink switches make every pair look linked: link each GPU to an nvlink-switch instead"
                self.fault((place,), f"{name} has {n_links} NVLinks, {whose} {most}{via}", key=True)

    def _connected(self, wires: list[t.Wire]) -> None:
        gpus = [name for name, device in self.devices.items() if device.kind == "gpu"]
        found = t.reached(gpus[0], t.neighbours(self.devices, wires)) if gpus else set()
        lost = lists_by_key((self.keys[name], name) for name in gpus if name not in found)
        for key, names in lost.items():
            named = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
            self.fault(("devices", key), f"no links lead from {gpus[0]} to {named}; add them under links", key=True)
