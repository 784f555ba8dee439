"""What settings of NCCL change: the algorithm, the protocol, the adapters, copies between GPUs.

:func:`applied` gives a question of an exchange the settings of a log; steps follow :func:`choices`, and
:func:`passed_over` names others that may change them.

Meanings are those of NVIDIA's *NCCL documentation, Environment Variables*; ``settings.yaml`` has the names and values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from simulator.api.faulty import fewer_adapters, has_peers, with_transport, without_nvlink, without_peers
from simulator.collectives.nccl.tables import MAX_CHANNELS
from simulator.package_data import own_data
from simulator.questions.collective import SENDING, CollectiveQuestion
from simulator.records import dataclass, replace
from simulator.topology import Topology
from simulator.topology.parts import NicPart
from simulator.workload import Collective

_TOLD: Mapping[str, Any] = own_data("simulator.api", "settings.yaml")
OF_NCCL = ("NCCL_", "RCCL_")
"""How names of its settings begin; RCCL has its own beside them."""
_COUNT = re.compile(r"[1-9]\d?", re.ASCII)
_NUMBERED = re.compile(r"\w{1,40}_[a-z]{0,8}(\d{1,3})(?::\d{1,3})?", re.ASCII)  # mlx5_0:1, bnxt_re0


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """The machine and the question as a log's settings make them.

    ``fixed`` are the names of all settings, ``known`` those that the question follows, as ``NAME=value``, and
    ``unknown`` the others; ``ignored`` are those of the others that may change times.
    """

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
    """Return the machine with one setting; None if it is not about the machine, or its value is not modelled."""
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
    """Return whether machines exchange over sockets or not at all; with *efa*, what EFA's plugin does counts too.

    Over which interface NCCL's sockets go where adapters speak InfiniBand or RoCE, Ethernet or IPoIB, a topology does
    not tell.
    """
    nics = [device.part for device in topology.devices if isinstance(device.part, NicPart)]
    spoken = all((nic.network == "ethernet" and not nic.gpudirect) or (efa and nic.network == "efa") for nic in nics)
    return topology.n_nodes == 1 or spoken


def _adapters(value: str, topology: Topology) -> Topology | None:
    """Return the machine with the adapters that NCCL_IB_HCA lists; None if that cannot be told."""
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
