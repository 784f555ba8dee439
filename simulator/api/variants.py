"""Machines as faults (:func:`faulty_machines`) and settings of NCCL (:func:`applied`, ``settings.yaml``) leave them."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from simulator.collectives.nccl.tables import MAX_CHANNELS
from simulator.questions.collective import SENDING, CollectiveQuestion
from simulator.records import dataclass, lists_by_key, own_data, replace
from simulator.topology import Device, Topology, Wire
from simulator.topology.parts import GpuPart, NicPart, SwitchPart
from simulator.workload import Collective

_DIRECT = ("nvlink", "xgmi")
# Ethernet beside adapters that speak RDMA: what a server has for storage, or for its administration.
_INTERFACES_BPS = (12.5e9, 3.125e9, 1.25e9)
_SOCKET_LATENCY_S = 10e-6  # one way through the kernel's TCP at one end, as the catalogue's Ethernet adapters have it
ADAPTERS, SLOTS = "adapters measured", "slots measured"
"""What leaves no reason for a fault of adapters, or of GPUs' links to the host: each was measured, and is sound."""
_TOLD: Mapping[str, Any] = own_data("simulator.api", "settings.yaml")
OF_NCCL = ("NCCL_", "RCCL_")
"""How names of its settings begin; RCCL has its own beside them."""
_COUNT = re.compile(r"[1-9]\d?", re.ASCII)
_NUMBERED = re.compile(r"\w{1,40}_[a-z]{0,8}(\d{1,3})(?::\d{1,3})?", re.ASCII)  # mlx5_0:1, bnxt_re0


class FaultyMachine(NamedTuple):
    """What is amiss, reasons (maybe settings), the topology that has it, and what would show it or leave no other."""

    what: str
    reasons: tuple[str, ...]
    topology: Topology
    measure: str
    decided_by: frozenset[str] = frozenset()


def faulty_machines(topology: Topology) -> Iterator[FaultyMachine]:
    """Yield each possible fault of *topology*, as ``faulty.yaml`` tells it."""
    told = own_data("simulator.api", "faulty.yaml")
    for name, values, changed in _faulty(topology):
        fault = told[name]
        what, decided_by = fault["what"].format(*values), frozenset(fault.get("decided_by", ()))
        yield FaultyMachine(what, tuple(fault["reasons"]), changed, fault["measure"], decided_by)


def _faulty(topology: Topology) -> Iterator[tuple[str, tuple[float | str, ...], Topology]]:
    if topology.n_nodes > 1:
        yield from _of_adapters(topology)
    if any(wire.part.of in _DIRECT for wire in topology.wires):
        yield "nvlink", (), without_nvlink(topology)
        yield "peers", (), without_peers(without_nvlink(topology))
    elif has_peers(topology):
        yield "peers", (), without_peers(topology)
    yield "slots", (), narrower_pcie(topology, 0.5)


def has_peers(topology: Topology) -> bool:
    """Return whether any GPUs of *topology* may copy to each other over PCIe."""
    if topology.transport.peer_to_peer is not None:
        return topology.transport.peer_to_peer != "none"
    parts = [device.part for device in topology.devices if device.kind == "gpu"]
    return any(not isinstance(part, GpuPart) or part.pcie_peers for part in parts)


def _of_adapters(topology: Topology) -> Iterator[tuple[str, tuple[float | str, ...], Topology]]:
    nics = [device for device in topology.devices if isinstance(device.part, NicPart) and device.node >= 0]
    for count in sorted({len(nics) // 2, len(nics) // 4, 1} - {0, len(nics)}, reverse=True):
        yield "adapters", (count, len(nics)), fewer_adapters(topology, range(count))
    direct = [nic.part for nic in nics if isinstance(nic.part, NicPart) and nic.part.gpudirect]
    if direct:
        yield "gpudirect", (), without_gpudirect(topology)
        if not any(wire.part.of in _DIRECT for wire in topology.wires):
            yield "acs", (), without_gpudirect(without_peers(topology))
        yield "sockets", (), with_sockets(topology)
        one = with_sockets(fewer_adapters(topology, (0,)))
        for rate_Bps in _INTERFACES_BPS:
            yield "interface", (rate_Bps * 8e-9,), slower_adapters(one, rate_Bps / direct[0].bandwidth)
    if nics:
        for share, words in ((0.5, "half"), (0.25, "a quarter")):
            yield "rate", (words,), slower_adapters(topology, share)
        if far := with_far_adapters(topology):
            yield "far", (), far


def fewer_adapters(topology: Topology, kept: Collection[int]) -> Topology:
    """Return *topology* with only the *kept* adapters of each node, counted from 0."""
    of_nodes = lists_by_key((each.node, each.name) for each in topology.devices if isinstance(each.part, NicPart))
    return _without(topology, {name for names in of_nodes.values() for i, name in enumerate(names) if i not in kept})


def with_transport(topology: Topology, **changes: Any) -> Topology:
    """Return *topology* with other settings of its transport; the same one where nothing changes."""
    changed = topology.transport.model_copy(update=changes)
    return topology if changed == topology.transport else replace(topology, transport=changed)


def without_gpudirect(topology: Topology) -> Topology:
    """Return *topology* with adapters that reach only host memory."""
    return with_transport(topology, gpudirect_rdma="none")


def with_sockets(topology: Topology) -> Topology:
    """Return *topology* with adapters that speak TCP through the kernel, and reach host memory only."""
    return with_adapters(topology, network="ethernet", gpudirect=False, latency=_SOCKET_LATENCY_S, plugin_time=0.0)


def with_adapters(topology: Topology, **figures: Any) -> Topology:
    """Return *topology* with adapters that have these *figures*."""
    nics = [device for device in topology.devices if isinstance(device.part, NicPart)]
    made = {nic.name: replace(nic, part=nic.part.model_copy(update=figures)) for nic in nics}
    return replace(topology, devices=tuple(made.get(device.name, device) for device in topology.devices))


def with_far_adapters(topology: Topology) -> Topology | None:
    """Return *topology* with each adapter in a slot of another CPU than its own; None if there is one CPU."""
    cpus = [device.name for device in topology.devices if device.kind == "cpu"]
    nics = [device.name for device in topology.devices if isinstance(device.part, NicPart)]
    if len(cpus) < 2:
        return None
    half, moved = max(1, len(nics) // 2), {}
    for at, nic in enumerate(nics):
        wire = next((w for w in topology.wires if w.part.of == "pcie" and nic in (w.a, w.b)), None)
        if wire is not None:
            moved[id(wire)] = replace(wire, a=nic, b=cpus[(at // half + 1) % len(cpus)])
    return replace(topology, wires=tuple(moved.get(id(wire), wire) for wire in topology.wires))


def scaled(topology: Topology, factor: float, figures: Callable[[Device | Wire], Sequence[str]]) -> Topology:
    """Return *topology* with the *figures* of each part *factor* times as high; what a part lacks stays."""

    def changed(of: Any) -> Any:
        known = {name: value for name in figures(of) if (value := getattr(of.part, name, None))}
        update = {name: factor * value for name, value in known.items()}
        return replace(of, part=of.part.model_copy(update=update)) if update else of

    devices, wires = (tuple(map(changed, every)) for every in (topology.devices, topology.wires))
    return replace(topology, devices=devices, wires=wires)


def slower_adapters(topology: Topology, share: float) -> Topology:
    """Return *topology* with adapters, and what is plugged into them, at *share* of their rate."""
    ends = {device.name for device in topology.devices if isinstance(device.part, NicPart)}

    def figures(of: Device | Wire) -> Sequence[str]:
        slower = of.name in ends if isinstance(of, Device) else of.part.of != "pcie" and bool(ends & {of.a, of.b})
        return ("bandwidth",) if slower else ()

    return scaled(topology, share, figures)


def without_nvlink(topology: Topology) -> Topology:
    """Return *topology* without direct links between GPUs, and without the switches of such links."""
    gone = {d.name for d in topology.devices if isinstance(d.part, SwitchPart) and d.part.of == "nvlink"}
    kept = tuple(wire for wire in topology.wires if wire.part.of not in _DIRECT)
    return _without(replace(topology, wires=kept), gone)


def without_peers(topology: Topology) -> Topology:
    """Return *topology* with GPUs that cannot copy to each other over PCIe."""
    return with_transport(topology, peer_to_peer="none")


def narrower_pcie(topology: Topology, share: float, ends: Collection[str] = ()) -> Topology:
    """Return *topology* with PCIe links, or only the one between two *ends*, at *share* of their rate."""

    def figures(of: Device | Wire) -> Sequence[str]:
        narrow = isinstance(of, Wire) and of.part.of == "pcie" and (not ends or {of.a, of.b} == set(ends))
        return ("bandwidth",) if narrow else ()

    return scaled(topology, share, figures)


def fewer_links(topology: Topology, count: int, ends: Collection[str]) -> Topology:
    """Return *topology* with *count* of the parallel direct links between two *ends*."""
    fewer = (replace(w, count=count) if w.part.of in _DIRECT and {w.a, w.b} == set(ends) else w for w in topology.wires)
    return replace(topology, wires=tuple(fewer))


def _without(topology: Topology, gone: set[str]) -> Topology:
    devices = tuple(device for device in topology.devices if device.name not in gone)
    wires = tuple(wire for wire in topology.wires if not gone & {wire.a, wire.b})
    return replace(topology, devices=devices, wires=wires)


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """The machine and question of a log's settings, which are ``fixed``: ``known``, ``unknown``, or ``ignored``."""

    topology: Topology
    question: CollectiveQuestion
    fixed: frozenset[str]
    known: tuple[str, ...]
    unknown: tuple[str, ...]
    ignored: tuple[str, ...]


def applied(settings: Mapping[str, str], topology: Topology, question: CollectiveQuestion) -> LogQuestion:
    """Return *topology* and *question* with *settings*."""
    known: list[str] = []
    unknown: list[str] = []
    machine = topology
    for name, value in settings.items():
        if name in _TOLD["gpus"]:
            continue
        choice = choices({name: value}, question.collective)
        changed = None if choice else _machine(name, value, machine)
        said = {} if question.collective in SENDING else choice
        question, machine = replace(question, **said), changed or machine
        (known if choice or changed is not None else unknown).append(f"{name}={value}")
    ignored = tuple(each for each in unknown if _changes_times(each.partition("=")[0], topology))
    return LogQuestion(machine, question, frozenset(settings), tuple(known), tuple(unknown), ignored)


def passed_over(settings: Mapping[str, str], topology: Topology) -> list[str]:
    """Return those of *settings* that may change the exchanges of a step on *topology*, which follow none."""
    found = []
    for name, value in settings.items():
        alone = topology.n_nodes == 1 and name.startswith(tuple(_TOLD["between_machines"]))
        if name.startswith(OF_NCCL) and not alone and value not in _TOLD["usual"].get(name, ()):
            same = _machine(name, value, topology) is topology
            found += [f"{name}={value}"] if not same and _changes_times(name, topology) else []
    return found


def _changes_times(name: str, topology: Topology) -> bool:
    """Return whether the setting *name*, which is not modelled, may change how long an exchange on *topology* takes."""
    if name == "NCCL_SOCKET_IFNAME":  # otherwise only the interface over which processes find each other
        return topology.n_nodes > 1 and _speaks_sockets(topology, efa=False)
    return name not in {f"NCCL_{each}" for each in _TOLD["changes_no_times"]}


def choices(settings: Mapping[str, str], collective: Collective | None = None) -> dict[str, Any]:
    """Return the fields of a question that *settings* say, for *collective*, None: for all; not those not modelled."""
    algorithm, protocol = (_chosen(settings.get(name, ""), collective) for name in ("NCCL_ALGO", "NCCL_PROTO"))
    found: dict[str, Any] = {
        "algorithm": _TOLD["algorithms"].get(algorithm),
        "protocol": _TOLD["protocols"].get(protocol),
    }
    if settings.get("NCCL_NVLS_ENABLE") in ("0", "1", "2"):
        found["nvls"] = settings["NCCL_NVLS_ENABLE"] != "0"
    return {name: value for name, value in found.items() if value is not None}


def _chosen(value: str, collective: Collective | None) -> str:
    """Return the one choice of NCCL_ALGO or NCCL_PROTO (since 2.24 ``allreduce:tree;broadcast:ring``) or ""."""
    if collective is None:
        return value.lower().replace("_", "")
    found = ""
    for part in value.lower().split(";"):
        name, colon, choice = part.rpartition(":")
        if not colon or name == collective.replace("-", ""):
            found = choice
    return found.replace("_", "")


def _machine(name: str, value: str, topology: Topology) -> Topology | None:
    is_local = value.upper() in ("LOC", "0")
    if name == "NCCL_P2P_DISABLE" or (name == "NCCL_P2P_LEVEL" and is_local):
        return topology if name == "NCCL_P2P_DISABLE" and value != "1" else without_peers(without_nvlink(topology))
    if (reach := _TOLD["reaches"].get(name)) and (level := _TOLD["levels"].get(value.upper())):
        refused = name == "NCCL_P2P_LEVEL" and not has_peers(topology)
        return topology if refused else with_transport(topology, **{reach: level})
    if name == "NCCL_IB_HCA":
        return _adapters(value, topology)
    if name == "NCCL_PXN_DISABLE" and value in ("0", "1"):
        return with_transport(topology, pxn=value == "0")
    if (field := _TOLD["channels"].get(name)) and _COUNT.fullmatch(value) and int(value) <= MAX_CHANNELS:
        return with_transport(topology, **{field: int(value)})
    if (name, value.lower()) in (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "socket")):
        return topology if _speaks_sockets(topology, efa=name == "NCCL_IB_DISABLE") else None
    return topology if (name, value.lower()) in (("NCCL_IB_DISABLE", "0"), ("NCCL_NET", "ib")) else None


def _speaks_sockets(topology: Topology, *, efa: bool) -> bool:
    """Return whether machines exchange over sockets or not at all; with *efa*, what EFA's plugin does counts too."""
    nics = [device.part for device in topology.devices if isinstance(device.part, NicPart)]
    spoken = all((nic.network == "ethernet" and not nic.gpudirect) or (efa and nic.network == "efa") for nic in nics)
    return topology.n_nodes == 1 or spoken


def _adapters(value: str, topology: Topology) -> Topology | None:
    of_nodes = Counter(device.node for device in topology.devices if isinstance(device.part, NicPart))
    count, words = max(of_nodes.values(), default=0), value.lstrip("^=").split(",")
    found = [_NUMBERED.fullmatch(word) for word in words[:64]]
    numbers = {int(each[1]) for each in found if each is not None}
    numbered = len(numbers) == len(words) and max(numbers) < count
    if value.startswith("^"):
        return fewer_adapters(topology, set(range(count)) - numbers) if numbered and len(numbers) < count else None
    if len(words) >= count or (len(words) == 1 and not numbers):  # mlx5 is the start of all names
        return topology
    return fewer_adapters(topology, numbers if numbered else range(len(words)))
