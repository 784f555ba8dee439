"""Fifteen faults, each as what it does to the times of a run: :data:`FAULTS`.

Twelve are put into the machine and simulated; three are shapes over sizes, which no machine of the simulator has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from simulator.api import Session
from simulator.api.variants import (
    fewer_adapters,
    narrower_pcie,
    slower_adapters,
    with_sockets,
    without_gpudirect,
    without_nvlink,
    without_peers,
)
from simulator.errors import InputError
from simulator.questions.collective import SENDING, CollectiveQuestion
from simulator.questions.where import SlowLink
from simulator.topology import Topology
from simulator.topology.load import load_topology
from simulator.topology.parts import NicPart

Times = Sequence[tuple[int, float]]


class CannotHaveItError(Exception):
    """The machine cannot have the fault."""


@dataclass(frozen=True)
class FaultyQuestion:
    """The *question* with a fault, and how many times as long each size takes besides."""

    question: CollectiveQuestion
    longer: Callable[[int, int], float] = lambda size, largest: 1.0


Fault = Callable[[Session, CollectiveQuestion], FaultyQuestion]


def _in(change: Callable[[Topology], Topology], *, across: bool | None = None) -> Fault:
    """Return the fault of a machine that *change* makes; *across*: of several machines alone, or of one alone."""

    def fault(session: Session, question: CollectiveQuestion) -> FaultyQuestion:
        where = question.where
        plain = load_topology(where.topology, n_nodes=where.nodes, fabric=where.fabric)
        if across is not None and across != (plain.n_nodes > 1):
            raise CannotHaveItError
        there = replace(where, topology=f"{where.topology} with {change.__name__}")
        session.know(there, change(plain))
        return FaultyQuestion(replace(question, where=there))

    return fault


def _adapters(topology: Topology) -> int:
    count = sum(isinstance(device.part, NicPart) for device in topology.devices if device.node == 0)
    if count < 2:
        raise CannotHaveItError
    return count


def half_of_the_adapters(topology: Topology) -> Topology:
    return fewer_adapters(topology, range(_adapters(topology) // 2))


def a_quarter_of_the_adapters(topology: Topology) -> Topology:
    return fewer_adapters(topology, range(max(1, _adapters(topology) // 4)))


def adapters_at_half_rate(topology: Topology) -> Topology:
    return slower_adapters(topology, 0.5)


def sockets(topology: Topology) -> Topology:
    """Return *topology* with adapters that speak TCP through the kernel, where they spoke RDMA."""
    if not any(isinstance(device.part, NicPart) and device.part.gpudirect for device in topology.devices):
        raise CannotHaveItError
    return with_sockets(topology)


def copies_over_the_root(topology: Topology) -> Topology:
    """ACS: neither GPUs nor adapters copy directly over PCIe."""
    return without_gpudirect(without_peers(topology))


def pcie_at_half_rate(topology: Topology) -> Topology:
    return narrower_pcie(topology, 0.5)


def no_nvlink(topology: Topology) -> Topology:
    if not any(wire.part.of in ("nvlink", "xgmi") for wire in topology.wires):
        raise CannotHaveItError
    return without_nvlink(topology)


def _link(kinds: tuple[str, str], factor: float, *, all_of_node: bool = False) -> Fault:
    """Return the fault of a slow link between devices of two *kinds*, or of all such links of the first machine."""

    def fault(session: Session, question: CollectiveQuestion) -> FaultyQuestion:
        machine = session.machine(question.where)
        ends = [
            f"{machine.nodes[link.src].name}-{machine.nodes[link.dst].name}"
            for link in machine.links
            if machine.nodes[link.src].host == 0
            and (machine.nodes[link.src].kind, machine.nodes[link.dst].kind) == kinds
        ]
        if not ends or (kinds[0] == "nic" and machine.n_hosts < 2):
            raise CannotHaveItError
        slow = tuple(SlowLink(each, factor) for each in (ends if all_of_node else ends[:1]))
        return FaultyQuestion(replace(question, where=replace(question.where, slow_links=slow)))

    return fault


def _chosen(**asked: object) -> Fault:
    def fault(session: Session, question: CollectiveQuestion) -> FaultyQuestion:
        if question.collective in SENDING:
            raise CannotHaveItError
        try:
            return FaultyQuestion(replace(question, **asked))  # type: ignore[arg-type]
        except InputError:
            raise CannotHaveItError from None

    return fault


def _shape(longer: Callable[[int, int], float], *, across: bool) -> Fault:
    def fault(session: Session, question: CollectiveQuestion) -> FaultyQuestion:
        if across and session.machine(question.where).n_hosts < 2:
            raise CannotHaveItError
        return FaultyQuestion(question, longer)

    return fault


_CLIFF = 5.0  # times as long, from an eighth of the largest size on: switches that drop packets
_CORE = 40e-6  # seconds more in each step: processes on the wrong cores

FAULTS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "sockets": (_in(sockets, across=True), ("sockets",)),
    "no GPUDirect": (_in(without_gpudirect, across=True), ("no GPUDirect",)),
    "half of the adapters": (_in(half_of_the_adapters, across=True), ("adapters used",)),
    "a quarter of the adapters": (_in(a_quarter_of_the_adapters, across=True), ("adapters used",)),
    "adapters at half rate": (_in(adapters_at_half_rate, across=True), ("adapters at half", "adapters at a quarter")),
    "ACS": (_in(copies_over_the_root), ("ACS",)),
    "PCIe at half rate": (_in(pcie_at_half_rate), ("PCIe links at half",)),
    "one rail": (_link(("nic", "network-switch"), 0.25), ("one rail",)),
    "one slow node": (_link(("nic", "network-switch"), 0.4, all_of_node=True), ("one node",)),
    "one slow rank": (_link(("gpu", "pcie-switch"), 0.125), ("one GPU's link",)),
    "NVLink down": (_in(no_nvlink), ("PCIe in place of NVLink",)),
    "half of a GPU's links": (_link(("gpu", "nvlink-switch"), 0.5), ("half of the links of one GPU",)),
    "LL": (_chosen(protocol="LL"), ("protocol LL ",)),
    "NVLS off": (_chosen(nvls=False), ("NVLS off", "algorithm ring")),
    "a cliff": (_shape(lambda size, largest: _CLIFF if 8 * size >= largest else 1.0, across=True), ("a cliff",)),
}
"""Each fault by name, with words of the causes that name it rightly."""
