"""The error classes that collectives and steps are composed of, for their uncertainty (:mod:`simulator.bands`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from simulator.bands import FORMATS, collective_chain, step_chain
from simulator.bands.composition import AnswerFacts, ClassShare, Composition
from simulator.network.machine import Machine
from simulator.topology.parts import GpuPart, NicPart
from simulator.topology.parts import Part as AnyPart
from simulator.workload.precision import Precision


def main_format(flop_by_format: Mapping[Precision, int]) -> Precision | None:
    """Return the format of most FLOPs of matrix products, or None without products."""
    return max(flop_by_format.items(), key=lambda item: item[1], default=(None, 0))[0]


def generation_of(part: AnyPart) -> str:
    """Return the generation of a GPU, the first word of its architecture in lower case; ``cpu`` for every CPU."""
    if not isinstance(part, GpuPart):
        return "cpu"
    return part.architecture.split()[0].lower() if part.architecture else ""


def collective_composition(
    machine: Machine, ranks: Sequence[int], collective: str, size_bytes: float, strategy: str, *, changed: bool
) -> Composition:
    """Return the composition of a collective of *size_bytes* among the nodes *ranks*; only NCCL's were measured."""
    facts = exchange_facts(machine, ranks, strategy, collective, changed=changed)
    if facts.unmeasured:
        return Composition((), (), facts)
    network = _between(machine, ranks) if facts.way == "nodes" else _inside(machine, ranks)
    chain = collective_chain(collective, size_bytes, network, len(machine.hosts_of(ranks)))
    return Composition(chain, (), facts)


def _inside(machine: Machine, ranks: Sequence[int]) -> str:
    """Return whether GPUs of one node exchange over direct links or, where one of them has none, over PCIe."""
    mine = set(ranks)
    direct = all(
        any(
            link.kind in ("nvlink", "xgmi") and (link.dst in mine or machine.nodes[link.dst].kind == "nvlink-switch")
            for link in machine.outgoing[rank]
        )
        for rank in ranks
    )
    return "nvlink" if direct else "pcie"


def _between(machine: Machine, ranks: Sequence[int]) -> str:
    """Return the network of most bandwidth of the adapters in the nodes of *ranks*; empty without adapters.

    InfiniBand's adapters speak Ethernet too, where their links are.
    """
    hosts = machine.hosts_of(ranks)
    rates: dict[str, float] = defaultdict(float)
    for at, node in enumerate(machine.nodes):
        if node.host in hosts and isinstance(node.part, NicPart):
            network = node.part.network
            if network == "infiniband" and any(link.kind == "ethernet" for link in machine.outgoing[at]):
                network = "ethernet"
            on_ethernet = "roce" if node.part.gpudirect else "tcp"
            rates[on_ethernet if network == "ethernet" else network] += node.part.bandwidth
    return max(rates, key=lambda network: rates[network], default="")


def steps_alike(
    family: str | None,
    form: Precision | None,
    parts: Sequence[ClassShare] = (),
    *,
    divided: bool,
    trains: bool,
    **facts: Any,
) -> Composition:
    """Return the composition of a step of *parts*, by the *facts* of the answer that are not said otherwise.

    *form* is the format of most of its products; *divided*: devices divide the network; *trains*: it
    is a whole step of training.
    """
    way = "divided" if divided else "several" if facts["ranks"] > 1 else "one"
    shown = None if form is None else FORMATS.get(form, form)
    found = AnswerFacts(kind="step", form=shown or "fp32", way=way, **facts)
    chain = step_chain("CPU" if found.generation == "cpu" else "GPU", family, shown, way, trains=trains)
    return Composition(chain, tuple(parts), found)


def exchange_facts(
    machine: Machine, ranks: Sequence[int], strategy: str, collective: str = "all-reduce", *, changed: bool
) -> AnswerFacts:
    """Return the facts of *collective* among the nodes *ranks*, such as the exchanges of a step."""
    return AnswerFacts(
        kind="collective",
        place=machine.name.rpartition(" x ")[2],
        generation=generation_of(machine.nodes[ranks[0]].part),
        what=collective,
        way="nodes" if len(machine.hosts_of(ranks)) > 1 else "node",
        ranks=len(ranks),
        unmeasured="" if strategy == "nccl" else f"no measured collective of strategy {strategy}",
        changed=changed,
    )
