"""Loading of a machine's YAML file; dumps are told apart (docs/decisions/host.md): :func:`load_topology`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, mention, nearest, one_line, refused
from simulator.records import own_data, replace
from simulator.topology import Topology, catalogue
from simulator.topology.catalogue import validate_in_part
from simulator.topology.cluster import Group, compose_cluster, with_flow_note, with_rate_note
from simulator.topology.parts import NETWORK_LINKS, LinkPart, SwitchPart
from simulator.topology.resolver import Resolver
from simulator.topology.schema import ClusterSpec, GroupSpec, TopologyFile
from simulator.topology.yaml_source import MAX_BYTES, YamlSource, parse_yaml, read_yaml
from simulator.units import parse_quantity, respelt
from simulator.user_files import open_user_file

_ETHERNET = "ethernet-100g"  # provides latency and efficiency for a fabric given only by its rate
_ANY = "p3.2xlarge"  # a node, where a file names none
_Place = tuple[str | int, ...]  # of a key in a file
_SOCKETS = re.compile(r"([1-9][0-9]?)\s*x\s+(.+)", re.IGNORECASE | re.ASCII)


def load_topology(name: str, *, n_nodes: int | None = None, fabric: str | None = None) -> Topology:
    """Load *name*, a path, built-in or a part, with *n_nodes* joined by *fabric*; raises InputError."""
    if (alone := _of_part(name)) is not None:
        return _resolve(alone, None, n_nodes, fabric)
    path, shown = catalogue.find_topology(name)
    try:
        return _resolve(read_yaml(path, shown), path.parent, n_nodes, fabric)
    except InputError:
        _refuse_dump(path, shown)
        raise


def _refuse_dump(path: Path, shown: str) -> None:
    try:
        with open_user_file(path) as stream:
            text = stream.read(MAX_BYTES).decode("utf-8", "replace")
    except (InputError, OSError):
        return
    kind = foreign_kind(text)
    if kind is not None:
        what = {"xml": "XML", "nccl-log": "a log of NCCL"}.get(kind, "a dump of a machine")
        draft = f"validate describe --from {one_line(shown, 200)} --out machine.yaml"
        raise InputError(Fault(f"is {what}, not a topology; draft one with '{draft}'", shown, 1, 1))


def _of_part(name: str) -> YamlSource | None:
    """Return the file of a machine with only the part *name*, or with several of a CPU; None if no part is named."""
    several = _SOCKETS.fullmatch(name)
    count, part = (int(several[1]), several[2]) if several else (1, name)
    is_cpu, is_gpu = part in catalogue.part_names("cpu"), part in catalogue.part_names("gpu") and not several
    if part in catalogue.builtin_topologies() or not (is_cpu or is_gpu):
        return None
    devices = f"cpu[0-{count - 1}]" if count > 1 else "cpu0" if is_cpu else "gpu0"
    return parse_yaml(f"schema_version: 1\nname: {part}\ndevices:\n  {devices}: {{part: {part}}}\n".encode(), name)


def topology_from_text(text: str | bytes, *, n_nodes: int | None = None, fabric: str | None = None) -> Topology:
    """Load a topology from *text*; otherwise as :func:`load_topology`."""
    return _resolve(parse_yaml(text.encode() if isinstance(text, str) else text, "<text>"), None, n_nodes, fabric)


def _resolve(source: YamlSource, folder: Path | None, n_nodes: int | None, fabric: str | None) -> Topology:
    if isinstance(source.data, dict) and "layers" in source.data and not {"devices", "cluster"} & set(source.data):
        fault = f"these are layers of a network; {mention('workload')} names a network, {mention('topology')} a machine"
        raise InputError(source.fault(("layers",), fault, key=True))
    raw = source.data.get("cluster") if isinstance(source.data, dict) else None
    instead = {"schema_version": 1, "name": "-"} | ({"cluster": _names_in(raw)} if isinstance(raw, dict) else {})
    spec, told = validate_in_part(source, TopologyFile, ("parts", "devices", "links", "meshes"), instead)
    lookup = Resolver(source, spec, told)
    if spec.cluster is not None:
        return _cluster(lookup, folder, n_nodes, fabric)
    node = lookup.topology()
    if n_nodes is None:
        if fabric is not None:
            name = one_line(node.name, 60)
            raise InputError(
                f"{mention('fabric')}: joins several machines, {name} is one; add {mention('nodes')}, for example 2"
                if node.n_nodes == 1
                else f"{mention('fabric')}: the file of {name} has the network between its {node.n_nodes} machines"
            )
        return node
    if fabric is None:
        return with_flow_note(compose_cluster([Group(node, n_nodes)], fabric=None))
    part = _given_fabric(fabric, spec)
    return with_rate_note(compose_cluster([Group(node, n_nodes)], fabric=part), part)


def _names_in(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a faulty *cluster* what can be looked up whatever else is wrong: the names of nodes and parts."""

    def named(said: Any, *keys: str) -> dict[str, Any]:
        return {key: said[key] for key in keys if isinstance(said, dict) and isinstance(said.get(key), str)}

    groups, own = cluster.get("groups"), named(cluster, "fabric", "switch")
    if isinstance(groups, list):
        return {"groups": [{"node": _ANY} | named(each, "node", "fabric", "uplink") for each in groups], **own}
    return {"node": _ANY, "nodes": 1, **named(cluster, "node"), **own}


def _groups(lookup: Resolver, cluster: ClusterSpec, n_nodes: int | None) -> list[tuple[_Place, GroupSpec]]:
    """Return the groups of *cluster* and where they stand; ``--nodes`` replaces ``nodes``, or counts groups again."""
    if cluster.node is not None and cluster.nodes is not None:
        return [(("cluster",), GroupSpec(node=cluster.node, nodes=cluster.nodes if n_nodes is None else n_nodes))]
    whole = sum(group.nodes for group in cluster.groups)
    if n_nodes not in (None, whole):
        lookup.fault(("cluster", "groups"), f"{mention('nodes')}: the groups are {whole} nodes", key=True)
    return [(("cluster", "groups", i), group) for i, group in enumerate(cluster.groups)]


def _cluster(lookup: Resolver, folder: Path | None, n_nodes: int | None, fabric: str | None) -> Topology:
    source, spec, cluster = lookup.source, lookup.spec, lookup.spec.cluster
    assert cluster is not None
    if spec.devices or spec.links or spec.meshes:
        lookup.fault(("cluster",), "a file holds either a cluster or devices, not both", key=True)
    if spec.trays > 1:
        lookup.fault(("trays",), "trays belong to the file of the node", key=True)
    switch = lookup.part(cluster.switch, SwitchPart, ("cluster", "switch"))

    def link(name: str | None, *place: str | int) -> LinkPart | None:
        try:
            return None if name is None else _fabric(name, spec)
        except InputError as error:
            lookup.fault(("cluster", *place), str(error))
            return None

    own_fabric = link(cluster.fabric, "fabric")
    if isinstance(switch, SwitchPart) and switch.of != "network":
        shown = one_line(cluster.switch, 60)
        lookup.fault(("cluster", "switch"), f"'{shown}' is a switch of {switch.of}, not of a network")
    groups = []
    for place, group in _groups(lookup, cluster, n_nodes):
        node = _node(lookup, group.node, (*place, "node"), folder)
        links = [link(getattr(group, key), *place[1:], key) for key in ("fabric", "uplink")]
        groups += [] if node is None else [Group(node, group.nodes, *links)]
    lookup.raise_faults()
    fabric_part = _given_fabric(fabric, spec) if fabric is not None else own_fabric
    for node, _, of_group, _ in groups:
        if fabric_part is None and of_group is None and not any(device.kind == "nic" for device in node.devices):
            hint = "the cluster needs a fabric, for example ethernet-10g"
            raise InputError(source.fault(("cluster",), f"{node.name} has no NIC; {hint}", key=True))
    # Of another size it is no longer what the file names.
    is_written = bool(cluster.groups) or n_nodes in (None, cluster.nodes)
    more = n_nodes / cluster.nodes if n_nodes is not None and cluster.nodes else 1.0
    try:
        of = cluster.oversubscription
        made = compose_cluster(groups, fabric=fabric_part, switch=switch, oversubscription=of)
    except InputError as error:
        if cluster.groups:
            raise InputError(source.fault(("cluster", "groups"), str(error), key=True)) from None
        raise
    if spec.power_budget is not None:
        told = "power_budget: is one machine's; put it into the file of the node"
        raise InputError(source.fault(("power_budget",), told))
    price = spec.price_per_hour.times(more) if spec.price_per_hour else made.price_per_hour
    shared = spec.shared_network or made.shared_network if fabric is None else None
    made = replace(made, price_per_hour=price, messages=cluster.messages, file=source.file, shared_network=shared)
    if is_written:
        made = replace(made, name=spec.name, description=spec.description or made.description, aliases=spec.aliases)
    return with_rate_note(made, fabric_part) if fabric is not None and fabric_part is not None else made


def _given_fabric(name: str, spec: TopologyFile) -> LinkPart:
    try:
        return _fabric(name, spec)
    except InputError as error:
        raise refused("fabric", str(error)) from None


def _fabric(name: str, spec: TopologyFile) -> LinkPart:
    part = spec.parts.get(name) or catalogue.load_part(name)
    if isinstance(part, LinkPart) and part.of in NETWORK_LINKS:
        return part
    links = {n: catalogue.load_part(n) for n in catalogue.part_names("link")}
    networks = {n: p for n, p in {**links, **spec.parts}.items() if isinstance(p, LinkPart) and p.of in NETWORK_LINKS}
    try:
        own = {"bandwidth": parse_quantity(name, "bandwidth", positive=True)}
        return networks[_ETHERNET].model_copy(update={**own, "description": f"Ethernet, {name.strip()}"})
    except ValueError as error:
        said = re.fullmatch(r"\s*([\d.]+\s*)(\S+)\s*", name)
        meant = respelt(said[2], "bandwidth") if said is not None else []
        if said is not None and meant:
            rate = f"{said[1]}{meant[0]}"
            raise InputError(f"'{one_line(name, 60)}' is not a rate; did you mean {one_line(rate, 60)}?") from None
        if re.fullmatch(r"\s*[-+]?[\d.].*/s\s*", name):
            raise InputError(str(error)) from None
    if isinstance(part, LinkPart):
        raise InputError(f"'{one_line(name, 60)}' is not a network; {nearest(part.of, NETWORK_LINKS)}")
    names = {n: p.description for n, p in networks.items()}
    hint = nearest(name, names, words=names)
    raise InputError(f"no network link is called '{one_line(name, 60)}', and it is not a rate such as 25Gbit/s; {hint}")


def _node(lookup: Resolver, name: str, place: _Place, folder: Path | None) -> Topology | None:
    """Return a cluster's node *name*, None after a fault at *place*; raises InputError for faults in its own file."""
    if (alone := _of_part(name)) is not None:
        return _resolve(alone, None, None, None)
    try:
        path, shown = catalogue.find_topology(name, beside=folder)
    except InputError as error:
        lookup.fault(place, str(error))
        return None
    inner = read_yaml(path, shown)
    if isinstance(inner.data, dict) and inner.data.get("cluster") is not None:  # perhaps the same file
        lookup.fault(place, "the node of a cluster cannot be a cluster")
        return None
    return _resolve(inner, path.parent, None, None)


_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_ROOT = re.compile(r"<([A-Za-z_][\w.-]{0,60})")
_NUMBERS = re.compile(r"\s*[0-3](?:\s+[0-3])+\s*", re.ASCII)
_LOOKED_AT = 200_000


def foreign_kind(text: str) -> str | None:
    """Return the kind of dump that *text* is, by its first element or by characteristic lines, or None."""
    start = _ANSI.sub("", text[:_LOOKED_AT]).lstrip("\ufeff \t\r\n")
    if start.startswith("<"):
        tags = {tag.lower() for tag in _ROOT.findall(_COMMENT.sub("", start)[:2_000])}
        return "nccl-xml" if "system" in tags else "hwloc-xml" if "topology" in tags else "xml"
    for kind, line in own_data("simulator.topology", "foreign.yaml"):
        if re.search(line, start):
            return str(kind)
    rows = [line for line in start.splitlines() if line.strip() and not line.startswith("#")]
    if len(rows) > 1 and all(_NUMBERS.fullmatch(row) for row in rows):
        cells = [row.split() for row in rows]
        if all(len(row) == len(cells) and row[i] == "0" for i, row in enumerate(cells)):
            return "link-classes"
    return None
