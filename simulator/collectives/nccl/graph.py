"""The graph with which NCCL would plan, for the ranks of a group.

After NVIDIA/nccl@5067397c (2.30.7) ``src/init.cc`` and ``src/graph/connect.cc``: each machine searches by itself
(:mod:`simulator.collectives.nccl.search`), all agree on the minimum of each figure, and the communicator gets twice the
channels.

Interpretations where the source leaves room:

* Machines are equal; equal choices of GPUs on them are searched once.
* GPUs of other vendors, or of unknown compute capability, are searched and tuned like an A100, with
  the achieved rates of their own links; RCCL has its own tables.
* The latency stated by a network plugin is the NIC part's ``plugin_latency``; NCCL plans with it but
  does not wait for it.
* Two levels of PCIe switches are not flattened into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.collectives.communicator import Communicator
from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.paths import Sight, capability, cpu_kind
from simulator.collectives.nccl.search import ChannelSolution, Search
from simulator.collectives.nccl.tables import CpuKind
from simulator.collectives.nccl.tuning import CommGraph
from simulator.network.machine import Node
from simulator.topology.parts import NicPart


def comm_graph(group: Communicator) -> CommGraph:
    """Return the graph that NCCL would find for the group's ranks; searched once."""
    return group.once("nccl graph", lambda: _searched(group))


def found_inside(group: Communicator) -> tuple[ChannelSolution, int]:
    """Return (result of the search, node offset) for a group on one machine.

    The offset is added to GPU numbers in the result to get the group's nodes.
    """
    ((host, gpus, by),) = _picked(group)
    nodes = group.machine.nodes_of(host)
    lowest = min(capability(group.machine.nodes[gpu]) for gpu in gpus)
    return _found(group, nodes, gpus, lowest, several=False), by


def _picked(group: Communicator) -> list[tuple[int, tuple[int, ...], int]]:
    """Return (first equal machine, its corresponding GPUs, node offset to them) for each machine of the group."""
    picked = []
    for host, ranks in group.by_host().items():
        run = group.machine.run(host)
        by = run.node_of(host) - run.node
        picked.append((run.first, tuple(sorted(group.ranks[rank] - by for rank in ranks)), by))
    return picked


def _searched(group: Communicator) -> CommGraph:
    machine = group.machine
    hosts = group.by_host()
    alike: dict[int, dict[tuple[int, ...], None]] = {}  # by first equal host: its sets of GPUs
    for host, gpus, _ in _picked(group):
        alike.setdefault(host, {})[gpus] = None
    nodes_of = {host: machine.nodes_of(host) for host in alike}
    nodes = [node for own in nodes_of.values() for node in own]
    picked = {gpu for sets in alike.values() for gpus in sets for gpu in gpus}
    capabilities = [capability(machine.nodes[gpu]) for gpu in picked]
    lowest = min(capabilities)
    several = len(hosts) > 1
    searched = []
    for host, sets in alike.items():
        for gpus in sets:
            searched.append(_found(group, nodes_of[host], gpus, lowest, several=several))
    agreed = _agreed(searched)
    kinds = {cpu_kind(node) for node in nodes if node.kind == "cpu"}
    cpu: CpuKind = kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "other"
    channels = min(2 * agreed.n_channels, t.MAX_CHANNELS)
    if lowest >= 90 and several and agreed.speed > 45 and channels < 16:
        channels *= 2
    heads, nvls_intra, nvls_inter = agreed.nvls
    nics = [node.part for node in nodes if isinstance(node.part, NicPart)]
    return CommGraph(
        n_ranks=group.n_ranks,
        n_nodes=len(hosts),
        n_channels=agreed.n_channels,
        bw_intra_GBps=agreed.speed,
        bw_inter_GBps=agreed.speed,
        type_intra=t.PATH_TYPES[agreed.kind_intra],
        type_inter=t.PATH_TYPES[agreed.kind_inter],
        compute_capability_min=lowest,
        compute_capability_max=max(capabilities),
        cpu=cpu,
        comm_channels=channels,
        nic_latency_us=1e6 * max((nic.plugin_latency for nic in nics), default=0.0) if several else 0.0,
        flags_beside_data=all(nic.in_order for nic in nics),
        has_nvlink_switch=any(node.kind == "nvlink-switch" for node in nodes),
        same_channels=agreed.same,
        tree_bw_intra_GBps=agreed.tree_intra if several else None,
        nvls_channels=heads,
        nvls_bw_intra_GBps=nvls_intra,
        nvls_bw_inter_GBps=nvls_inter,
    )


def _found(
    group: Communicator, nodes: Sequence[Node], gpus: tuple[int, ...], lowest: int, *, several: bool
) -> ChannelSolution:
    """Return the search's result for the participating *gpus* of the host with *nodes*; cached for all groups."""
    once, host = group.router.once, nodes[0].host

    def search() -> ChannelSolution:
        sight = once(("sight", host, several), lambda: Sight(group.machine, nodes, network=several))
        return Search(sight.of(gpus), lowest, several).found()

    return once(("nccl search", host, gpus, lowest, several), search)


def _agreed(found: Sequence[ChannelSolution]) -> ChannelSolution:
    """Return the minimum of each figure, as all machines must agree."""
    return replace(
        found[0],
        n_channels=min(f.n_channels for f in found),
        speed=min(f.speed for f in found),
        kind_intra=max(f.kind_intra for f in found),
        kind_inter=max(f.kind_inter for f in found),
        same=all(f.same for f in found),
        tree_intra=min(f.tree_intra for f in found),
        nvls=(min(f.nvls[0] for f in found), min(f.nvls[1] for f in found), min(f.nvls[2] for f in found)),
    )
