"""Costs of NCCL's kernels on top of the links, at whose pace flows go (docs/decisions/collectives.md)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

from simulator.collectives.nccl.paths import capability
from simulator.collectives.nccl.tables import PLANS, generation, peers_between_sockets_bps
from simulator.constants import DEFAULT, Constants, Values, by_name
from simulator.network.machine import Link, Machine, Node
from simulator.network.route import Route
from simulator.plan.flow import Filling, FlowLimits, LinkLimit, added, first_link
from simulator.plan.plan import Flow, PlanBuilder, crossed
from simulator.records import dataclass, replace
from simulator.topology.parts import GPU_LINKS, NETWORK_LINKS, GpuPart, Part
from simulator.units import format_bandwidth

RECENT = (2, 20)  # the oldest version known to match the constants of recent versions
_REFERENCE_HZ = 1.41e9  # clock of the A100, whose pace is 1
_AMPERE, _HOPPER, _BLACKWELL = 1, 2, 3  # as returned by tables.generation


@dataclass(frozen=True, slots=True)
class ProtocolCost:
    """The cost of a protocol (LL, LL128, Simple), or of a feature (NVLS, point to point), on top of routes' latency."""

    base_s: float  # once
    hop_s: float = 0.0  # for every hop inside a machine
    net_hop_s: float = 0.0  # and between machines
    share: float = 1.0  # of their bandwidth at which links run
    channel_Bps: float = float("inf")  # at most, of one thread block
    wire: float = 1.0  # bytes on the link per byte of data (flags)
    own_passes: float = 0.0  # of the rank's own part (1/n) through its memory: a ring's last step, all-to-all's copy
    fill: float = 0.0  # part of the first window (chunks in flight) in which links idle, for each stage but one
    head_s: float = 0.0  # of NVLS, for each head in each round of chunks


class NcclConstants(Values, file="nccl"):
    """All constants of NCCL (docs/constants.md), with protocol costs for recent and for earlier versions."""

    PARTS: ClassVar = dict.fromkeys(("recent", "earlier"), partial(by_name, ProtocolCost))
    # A GPU's own passes, flags beside the data and the filling of a window depend on the protocol, not on the version.
    ALIKE: ClassVar = {"recent.NVLSTree.": "recent.NVLS.", "earlier.": "recent."}
    recent: Mapping[str, ProtocolCost]
    earlier: Mapping[str, ProtocolCost]


@dataclass(frozen=True, slots=True, eq=False)
class NcclCosts:
    """The shared constants, and the protocol costs of one version."""

    shared: NcclConstants
    protocols: Mapping[str, ProtocolCost]

    def pace(self, part: Part | None) -> float:
        """Return the duration of a step on a GPU of *part* relative to an A100; 1 if the clock is unknown."""
        clock_Hz = (part.max_clock or part.boost_clock) if isinstance(part, GpuPart) else None
        if clock_Hz is None:
            return 1.0
        is_blackwell = generation(capability(part)) == _BLACKWELL  # whose flags pass from die to die
        return (self.shared.blackwell_pace if is_blackwell else 1.0) * _REFERENCE_HZ / clock_Hz

    def chunked(self, protocol: str, gpus: Iterable[Node]) -> ProtocolCost:
        """Return the cost of *protocol* for rings and trees on *gpus*; LL128 has a share of its own on Ampere."""
        cost = self.protocols[protocol]
        if protocol == "Simple" and any(isinstance(gpu.part, GpuPart) and gpu.part.vendor == "amd" for gpu in gpus):
            return replace(cost, channel_Bps=math.inf)  # how many blocks RCCL starts is not followed
        on_ampere = protocol == "LL128" and any(generation(capability(gpu.part)) == _AMPERE for gpu in gpus)
        return replace(cost, share=self.shared.ampere_ll128_share) if on_ampere else cost

    def nvls(self, gpus: Iterable[Node], *, several: bool) -> ProtocolCost:
        """Return the cost of NVLS on *gpus*, of one machine or *several*; Hopper's share counts, younger ones' less."""
        cost = self.protocols["NVLSTree" if several else "NVLS"]
        least = min(PLANS["nvls"]["efficiency"][generation(capability(gpu.part))] for gpu in gpus)
        return replace(cost, share=cost.share * least / PLANS["nvls"]["efficiency"][_HOPPER])


def costs_of(version: tuple[int, int], known: Constants = DEFAULT) -> NcclCosts:
    """Return the costs of NCCL's *version*, (major, minor)."""
    shared = known(NcclConstants)
    return NcclCosts(shared, shared.recent if version >= RECENT else shared.earlier)


_THROUGH_CPU = ("phb", "sys")  # path classes on which one flow does not saturate PCIe
_TOLD_BELOW = 0.9  # an achieved share of the link rate below this is reported to the user


class Window(NamedTuple):
    """How chunks fill a pipeline: share of bytes sent, share first in flight, and seconds of the rounds of chunks."""

    share: float = 1.0
    first: float = 0.0
    rounds_s: float = 0.0


class Paces:
    """Channels (stream, flows, rounds, cost) of a collective, added to a plan at the pace of its links."""

    def __init__(self, machine: Machine, shared: NcclConstants) -> None:
        self.channels: list[tuple[str, list[Flow], int, ProtocolCost]] = []
        self.own_s = 0.0
        self.windows: Sequence[Window] = (Window(),)
        self.net_stages = 0
        self._machine, self._links, self._shared = machine, machine.alike, shared
        self._at_full_s: dict[int, float] = {}  # by key: the seconds of all flows at the links' full rates

    def submit(self, builder: PlanBuilder, label: str, after: Sequence[int]) -> None:
        """Add the channels as transfers called *label*, each flow capped to end when its links' shares let it."""
        needs, filling = self._needs()
        filling_s = filling.seconds({})
        needed_s = {key: max(found.seconds({}) + filling_s, alone) for key, (found, alone) in needs.items()}
        self._note_bound(builder, needed_s)
        for stream, flows, repeat, _ in self.channels:
            paced = []
            for flow in flows:
                on_links = []
                for index, carried, keys in crossed(flow):
                    link, (found, _) = self._links[index], needs[keys[0][0]]
                    if link.kind == "pcie" and flow.route.path_class in _THROUGH_CPU:
                        found = found._replace(full_s=max(found.full_s, self._alone_s(flow, repeat, link, carried)))
                    resource = self._machine.links[index].resource
                    on_links.append(found if found.resource == resource else found._replace(resource=resource))
                limits = FlowLimits(flow.cap_Bps, flow.wire_bytes * repeat, tuple(on_links), filling)
                paced.append(replace(flow, cap_Bps=limits.cap_Bps({}), limits=limits))
            builder.transfer(label, paced, stream=stream, after=after, repeat=repeat)

    def _needs(self) -> tuple[dict[int, tuple[LinkLimit, float]], Filling]:
        """Return by link or key its limit for all flows, and the seconds of one alone; and what fills the pipeline."""
        links, n, nodes = self._links, len(self._links), self._machine.nodes
        sent_s: dict[int, float] = {}  # as _at_full_s, at the shares of their rates
        alone_s: dict[int, float] = {}
        for _, flows, repeat, cost in self.channels:
            for flow in flows:
                sent, shares = flow.wire_bytes, self._shares(flow.route, cost)
                through_cpu = flow.route.path_class in _THROUGH_CPU
                for index, carried, keys in crossed(flow):
                    link = links[index]
                    at_full_s = sent * carried * repeat / link.bandwidth_Bps
                    # Many flows fill a link between two switches of the network.
                    is_trunk = nodes[link.src].kind == nodes[link.dst].kind == "network-switch"
                    taken_s = at_full_s / (1.0 if is_trunk else shares.get(link.kind, 1.0))
                    if link.kind == "socket" and flow.route.transport == "peer-to-peer":
                        taken_s = max(taken_s, sent * carried * repeat / peers_between_sockets_bps(nodes[link.src]))
                    for key, times in keys:
                        self._at_full_s[key] = added(self._at_full_s.get(key, 0.0), at_full_s, times)
                        sent_s[key] = added(sent_s.get(key, 0.0), taken_s, times)
                        if through_cpu and link.kind == "pcie":
                            alone_s[key] = max(alone_s.get(key, 0.0), self._alone_s(flow, repeat, link, carried))
        needs = {key: (self._need(links[key % n], s), alone_s.get(key, 0.0)) for key, s in sent_s.items()}
        share = self.channels[0][3].fill * self.windows[0].first * self.net_stages
        between = [key for key in sent_s if share and links[key % n].kind in NETWORK_LINKS]
        return needs, Filling(share, tuple([self._at_all(key, needs[key][0]) for key in between]))

    def _at_all(self, key: int, limit: LinkLimit) -> tuple[LinkLimit, int, Sequence[int]]:
        """Return *limit* of the first link that *key* represents, with the stride to those of all its hosts."""
        at = self.channels[0][1][0].at
        if at is None:
            return limit, 0, (0,)
        hosts = at.sites.spread(key, of_links=True)[-1]
        resource = self._machine.links[first_link(at.sites, key)].resource
        return limit._replace(resource=resource), self._machine.resource_copies.stride(resource), hosts

    def _need(self, link: Link, sent_s: float) -> LinkLimit:
        """Return the limit of *link*, on which flows are *sent_s* under way at its share."""
        fixed_s, full_s = 0.0, sent_s
        if link.kind in GPU_LINKS:
            first = self.channels[0][3]
            ways = [(sent_s * each.share * (1.0 + first.fill * each.first), each.rounds_s) for each in self.windows]
            full_s, fixed_s = min(ways, key=sum)
            fixed_s += first.own_passes * self.own_s
        return LinkLimit(link.resource, fixed_s, full_s, link.bandwidth_Bps)

    def _alone_s(self, flow: Flow, repeat: int, link: Link, carried: float) -> float:
        """Return the least seconds of a single flow over a PCIe *link* and through a CPU, which does not fill PCIe."""
        direct = flow.route.transport == "peer-to-peer"
        share = self._shared.peer_share if direct else self._shared.pcie_share
        return repeat * (flow.wire_bytes * carried / link.bandwidth_Bps) / share

    def _note_bound(self, builder: PlanBuilder, needed_s: Mapping[int, float]) -> None:
        """Record the link that takes longest at its share, and report the share if it explains the time."""
        if not needed_s:
            return
        least_s = max(needed_s.values()) * (1 - 1e-12)
        at = self.channels[0][1][0].at
        numbered = {(first_link(at.sites, key) if at else key): key for key, s in needed_s.items() if s >= least_s}
        index = min(numbered)
        bound = numbered[index]
        link = self._machine.links[index]
        builder.facts["bound_link"] = link.name
        share = self._at_full_s[bound] / needed_s[bound] if needed_s[bound] > 0 else 1.0
        builder.facts["bound_share"] = round(share, 6)
        by_bytes = needed_s[bound] > self.channels[0][3].base_s  # otherwise latency dominates
        machine = self._machine
        if share >= _TOLD_BELOW or not by_bytes:
            return
        # Where other jobs take a part of any link, these may limit NCCL instead.
        if machine.nominal is None or all(machine.capacity_Bps[s.resource] >= s.bandwidth_Bps for s in machine.links):
            reached, full = format_bandwidth(share * link.bandwidth_Bps), format_bandwidth(link.bandwidth_Bps)
            builder.notes.append(
                f"NCCL moves at most {reached} over {link.name}, {share:.0%} of its {full} per direction"
            )

    def _shares(self, route: Route, cost: ProtocolCost) -> dict[str, float]:
        """Return the usable share of link bandwidth on *route* by kind of link; other kinds are fully usable."""
        ends = (self._machine.nodes[route.src].part, self._machine.nodes[route.dst].part)
        unified = all(isinstance(part, GpuPart) and part.unified_memory for part in ends)
        staged = route.transport == "network-staged" and not unified
        net = self._shared.staged_share if staged else self._shared.network_share
        return dict.fromkeys(NETWORK_LINKS, net) | dict.fromkeys(GPU_LINKS, cost.share)
