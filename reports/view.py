"""The part of a machine that a figure shows, a node of a large cluster, say: symbols, links, and what is left out."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simulator.network.machine import Link, Machine
from simulator.records import dataclass, replace
from simulator.results import WORDS, ranges
from simulator.results.bottleneck import LinkUse
from simulator.results.result import Result
from simulator.units import format_bandwidth

HOST_LINKS = frozenset(("pcie", "c2c"))
_MAX_GPUS = 16
_MAX_NICS = 10
_MAX_DEVICES = 24
_MAX_NETWORK = 40  # devices of a cluster with several switches that is shown whole


class Symbol(NamedTuple):
    """One or more equal devices.  ``active``: holds a rank of the collective, or is on a route of its bytes."""

    label: str
    kind: str
    host: int
    nodes: tuple[int, ...]
    active: bool
    is_bottleneck: bool


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """Links of one kind between two symbols: Bps in total, the busiest use, rank by ``count`` (0 to 1)."""

    a: int
    b: int
    kind: str
    use: float
    is_bottleneck: bool
    count: int = 1
    nominal_Bps: float = 0.0
    weight: float = 0.5
    is_down: bool = False

    @property
    def words(self) -> str:
        """The kind, count and rate: ``NVLink, 4 x 25 GB/s = 100 GB/s``."""
        rate = format_bandwidth(self.nominal_Bps)
        each = f"{self.count} x {format_bandwidth(self.nominal_Bps / self.count, 3)} = " if self.count > 1 else ""
        return f"{WORDS['links'][self.kind]}, {each}{rate}"


@dataclass(frozen=True, slots=True)
class View:
    """What is drawn.  ``busiest`` names the bottleneck with its utilisation; ``models`` lists the devices' parts."""

    symbols: tuple[Symbol, ...]
    edges: tuple[DrawnEdge, ...]
    busiest: str
    note: str
    models: tuple[str, ...] = ()
    more: str = ""  # the nodes on the network that are not drawn, in words


def make_view(result: Result) -> View:
    """Return the part of *result*'s machine that is drawn."""
    uses = {use.name: use.utilisation for use in result.links}
    return view_of(result.timeline.machine, result.gpus, uses, result.bottleneck)


def view_of(machine: Machine, gpus: Sequence[int], uses: Mapping[str, float], most: LinkUse | None) -> View:
    """Return the part of *machine* that is drawn: ranks on *gpus*, *uses* of links by name, *most* the busiest."""
    name = most.name if most is not None else ""
    words = [*re.split(r"<?->", name.partition("#")[0]), name.rpartition(":")[0]]  # its ends, or whose resource it is
    focus = [node.index for word in words if (node := machine.find(word)) is not None]
    hosts = _hosts(gpus, machine, focus)
    shown = _gpus(gpus, machine, hosts, focus)
    kept = _kept(machine, hosts, shown)
    groups = _groups(machine, kept)
    edges = _edges(uses, machine, {node: i for i, group in enumerate(groups) for node in group}, name)
    touched = {end for edge in edges if edge.use > 0 for end in (edge.a, edge.b)}
    ranks = {machine.gpus[gpu] for gpu in gpus}
    symbols = []
    for i, group in enumerate(groups):
        node, names = machine.nodes[group[0]], [machine.nodes[n].name for n in group]
        active = not ranks.isdisjoint(group) if node.kind == "gpu" else i in touched
        limit = name in (f"{each}:{end}" for each in names for end in ("memory", "fabric"))
        if len(hosts) == 1 or machine.n_hosts > 1:
            names = [_within_node(each) for each in names]
        symbols.append(Symbol(_joined(names), node.kind, node.host, tuple(group), active, limit))
    busiest = f"{name}, {most.utilisation * 100:.1f} %" if most is not None else ""
    more = _more(machine, hosts) if any(symbol.kind == "network-switch" for symbol in symbols) else ""
    return View(tuple(symbols), tuple(edges), busiest, _note(machine, hosts, shown), _models(machine, kept), more)


def _more(machine: Machine, hosts: Sequence[int]) -> str:
    def sort(host: int) -> list[tuple[str, str]]:
        return sorted((node.kind, repr(node.part)) for node in machine.nodes_of(host))

    shown = sort(hosts[0])
    runs = [run for run in machine.runs if run.first >= 0]
    alike = sum(run.count for run in runs if sort(run.first) == shown) - sum(sort(host) == shown for host in hosts)
    others = machine.n_hosts - len(hosts) - alike
    this = "this one" if len(hosts) == 1 else f"node {hosts[0]}"
    words = [f"{alike:,} more node{'s' * (alike > 1)} like {this}"] if alike else []
    if others:
        without = all(sort(run.first) == shown or not machine.gpus_of(run.first) for run in runs)
        words.append(f"{others:,} {'more ' * (len(hosts) > 1)}{'without GPUs' if without else 'unlike it'}")
    return f"and {' and '.join(words)}" if words else ""


def _hosts(ranks_on: Sequence[int], machine: Machine, focus: Sequence[int]) -> list[int]:
    hosts = sorted({machine.nodes[machine.gpus[gpu]].host for gpu in ranks_on})
    devices = sum(1 for node in machine.nodes if node.host in set(hosts) and node.kind != "storage")
    if len(hosts) == 1 or (len(hosts) == 2 and devices <= _MAX_DEVICES):
        return hosts
    if len(_switches(machine)) > 1 and devices <= _MAX_NETWORK:
        return hosts
    held = sorted({machine.nodes[node].host for node in focus} - {-1})
    servers = [host for host in held if not machine.gpus_of(host)]
    return [*hosts[:1], *servers[:1]] if servers else held[:1] or hosts[:1]


def _gpus(ranks_on: Sequence[int], machine: Machine, hosts: Sequence[int], focus: Sequence[int]) -> list[int]:
    all_gpus = [gpu for host in hosts for gpu in machine.gpus_of(host)]
    if len(all_gpus) <= _MAX_GPUS:
        return all_gpus
    ranks = {machine.gpus[gpu] for gpu in ranks_on}
    near = [*focus, *(link.dst for node in focus for link in machine.outgoing[node])]
    anchors = [all_gpus.index(gpu) for gpu in near if gpu in all_gpus]
    start = min(anchors, default=next((i for i, gpu in enumerate(all_gpus) if gpu in ranks), 0))
    start = min(start - start % 2, len(all_gpus) - _MAX_GPUS)
    return all_gpus[start : start + _MAX_GPUS]


def _kept(machine: Machine, hosts: Sequence[int], gpus: Sequence[int]) -> list[int]:
    network = _switches(machine)
    if len(network) > 1 and len(hosts) < machine.n_hosts:  # those next to what is shown
        near = {link.dst for host in hosts for node in machine.nodes_of(host) for link in machine.outgoing[node.index]}
        network = [switch for switch in network if switch in near]
    if sum(len(machine.gpus_of(host)) for host in hosts) == len(gpus):
        inside = (node for node in machine.nodes if node.host in set(hosts))
        return [node.index for node in inside if node.kind not in ("storage", "network-switch")] + network
    reached = set(gpus)
    stack = list(gpus)
    while stack:
        for link in machine.outgoing[stack.pop()]:
            node = machine.nodes[link.dst]
            through = link.kind in HOST_LINKS and node.kind not in ("gpu", "storage")
            if (through or node.kind == "nvlink-switch") and node.index not in reached:
                reached.add(node.index)
                stack += [node.index] if through else []
    return sorted(reached) + network


def _switches(machine: Machine) -> list[int]:
    return [node.index for node in machine.nodes if node.kind == "network-switch"]


def _groups(machine: Machine, kept: Sequence[int]) -> list[list[int]]:
    shown = set(kept)
    n_nics = sum(1 for node in kept if machine.nodes[node].kind == "nic")
    groups: dict[object, list[int]] = {}
    for index in kept:
        node = machine.nodes[index]
        key: object = index
        around = {link.dst for link in machine.outgoing[index]} & shown
        if node.kind == "nvlink-switch":
            key = ("nvlink", node.host, frozenset(n for n in around if machine.nodes[n].kind == "gpu"))
        elif node.kind == "nic" and n_nics > _MAX_NICS:
            key = ("nic", node.host, frozenset(around))
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _edges(by_name: Mapping[str, float], machine: Machine, symbols: dict[int, int], bottleneck: str) -> list[DrawnEdge]:
    grouped: dict[tuple[int, int, str, bool], list[Link]] = {}
    for is_down, every in ((False, machine.links), (True, machine.down)):
        for link in every:
            a, b = sorted((symbols.get(link.src, -1), symbols.get(link.dst, -1)))
            if -1 < a < b:
                grouped.setdefault((a, b, link.kind, is_down), []).append(link)
    edges = []
    for (a, b, kind, is_down), links in grouped.items():
        names = {link.name for link in links}
        if not is_down:
            names |= {machine.resource_names[link.resource] for link in links}
        use = max(by_name.get(name, 0.0) for name in names)
        forth = links if is_down else [link for link in links if symbols[link.src] == a]
        count, nominal_Bps = sum(link.count for link in forth), sum(link.nominal_Bps for link in forth)
        edges.append(DrawnEdge(a, b, kind, use, bottleneck in names, count, nominal_Bps, is_down=is_down))
    counts = {kind: sorted({edge.count for edge in edges if edge.kind == kind}) for kind in {e.kind for e in edges}}
    for i, edge in enumerate(edges):
        if len(of_kind := counts[edge.kind]) > 1:
            edges[i] = replace(edge, weight=of_kind.index(edge.count) / (len(of_kind) - 1))
    return edges


def _models(machine: Machine, kept: Sequence[int]) -> tuple[str, ...]:
    found: dict[tuple[str, str], dict[str, None]] = {}
    for index in kept:
        node = machine.nodes[index]
        what = node.part.description.removesuffix(", one socket") or node.part_name
        found.setdefault((node.kind, what), {})[_within_node(node.name)] = None
    of_kinds = [(names, what) for kind in ("gpu", "cpu", "nic") for (of, what), names in found.items() if of == kind]
    return tuple(f"{_joined(list(names))}: {what}" for names, what in of_kinds if what)


def _within_node(name: str) -> str:
    return re.sub(r"^node\d+\.", "", name)


def _joined(names: Sequence[str]) -> str:
    numbers = [int(match[0]) for name in names if (match := re.search(r"\d+$", name))]
    stems = {re.sub(r"\d+$", "", name) for name in names}
    if len(names) == 1:
        return names[0]
    if len(stems) == 1 and len(numbers) == len(names):
        return f"{stems.pop()}{ranges(numbers)}"
    return f"{names[0]} and {len(names) - 1} more"


def _note(machine: Machine, hosts: Sequence[int], gpus: Sequence[int]) -> str:
    parts = []
    if len(hosts) < machine.n_hosts:
        parts.append(f"node{'s' * (len(hosts) > 1)} {' and '.join(map(str, hosts))} of {machine.n_hosts} nodes")
    in_hosts = sum(len(machine.gpus_of(host)) for host in hosts)
    if len(gpus) < in_hosts:
        parts.append(f"{len(gpus)} of {'its ' * bool(parts)}{in_hosts} GPUs")
    return ", ".join(parts) + " shown" if parts else ""
