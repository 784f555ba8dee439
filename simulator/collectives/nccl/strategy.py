"""The strategy ``nccl``: its own choice of rings, algorithm and protocol (src/enqueue.cc, 2.30.7), and its costs."""

from __future__ import annotations

from typing import cast

from simulator.collectives.communicator import Communicator, Request, Unsuitable
from simulator.collectives.nccl import tables as t
from simulator.collectives.nccl.cost import NcclCosts, costs_of
from simulator.collectives.nccl.graph import channel_rings, comm_graph, direct_protocol, with_peers
from simulator.collectives.nccl.kernels import KernelPlanner
from simulator.collectives.nccl.tables import version_notes
from simulator.collectives.nccl.tuning import CommGraph, NcclChoice, fastest_choice
from simulator.collectives.search import say_ended
from simulator.collectives.search.rings import FoundRing, find_rings
from simulator.errors import counted
from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Plan, PlanBuilder
from simulator.questions.collective import ALGORITHMS, SENDING, Algorithm, Protocol
from simulator.questions.nccl import FEATURES, Version, has, version_words
from simulator.questions.where import NCCL_TODAY
from simulator.records import replace
from simulator.topology.parts import GpuPart
from simulator.units import format_bandwidth
from simulator.workload import Collective


def nvls_channels(graph: CommGraph) -> int:
    """Return the number of channels that NVLS uses."""
    return 16 if graph.compute_capability_min < 100 else 24 if graph.n_nodes == 1 else 32


def channels_used(graph: CommGraph, choice: NcclChoice, size_bytes: float) -> tuple[int, int, float]:
    """Return channels and threads launched for *choice*, and channels filled; few bytes remove channels first."""
    protocol, is_ring = choice.protocol, choice.algorithm == "ring"
    if choice.algorithm in ("nvls", "nvls_tree"):
        fixed = min(nvls_channels(graph), graph.most_channels)
        return fixed, t.NVLS_THREADS, fixed
    is_slow = is_ring and protocol == "Simple" and graph.n_channels * graph.bw_intra_GBps <= t.PCIE3_X16
    channels, threads = graph.comm_channels, t.FEW_THREADS if is_slow else t.THREADS[protocol]
    threshold = t.BYTES_PER_THREAD[protocol] * (graph.n_ranks if is_ring and protocol == "LL" else 1)
    filled = min(float(channels), max(1.0, size_bytes / (threads * threshold)))
    while channels > 1 and size_bytes < channels * threads * threshold:
        channels -= 1
    while threads % 128 == 0 and size_bytes < channels * threads * threshold:
        threads //= 2
    return channels, threads, filled


KEPT = "NCCL still chooses by the nominal rate of the slow links; by their present rate it would choose otherwise"
_TOLD_BELOW = 0.9  # of the rate for which the links have room


class Nccl:
    """NCCL of a *version*; *algorithm*, *protocol* in place of its choice, *in_switch*: a switch reduces, by *nvls*."""

    name = "nccl"
    summary = "what NCCL would do at that size: algorithm, protocol, channels and their latencies"

    def __init__(
        self,
        algorithm: str | None = None,
        costs: NcclCosts | None = None,
        *,
        in_switch: bool = True,
        nvls: bool = True,
        protocol: str | None = None,
        version: Version = NCCL_TODAY,
    ) -> None:
        self.algorithm, self.protocol = algorithm, protocol
        self.costs, self.version = costs or costs_of(version), version
        self.in_switch, self.nvls = in_switch, nvls

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable if no algorithm is left, and for GPUs on which NCCL does not run."""
        if request.n_ranks < 2:
            return Plan(())
        usual = request.group.nominal
        plan = self._planned(replace(request, group=usual), request.machine)
        if usual is request.group:
            return plan
        try:
            otherwise = self._planned(request, request.machine)
        except Unsuitable:
            otherwise = Plan(())
        return plan if _way(plan) == _way(otherwise) else replace(plan, notes=(*plan.notes, KEPT))

    def _planned(self, request: Request, present: Machine) -> Plan:
        """Return the plan of *request* by the rates of its machine, to run on *present*; raises as :meth:`plan`."""
        request = replace(request, group=with_peers(request.group))
        parts = [node.part for node in request.group.unlike()]
        if any(isinstance(part, GpuPart) and part.vendor == "other" for part in parts):
            raise Unsuitable("NCCL does not run on this hardware")
        builder = PlanBuilder()
        builder.facts["software"] = "nccl"
        graph = self.graph(request.group)
        builder.notes += version_notes(self.version, graph.compute_capability_max)
        kernels = KernelPlanner(builder, request, self.costs, present)
        if request.collective in SENDING:
            if not has(self.version, "send-recv"):
                own, came = (version_words(version) for version in (self.version, FEATURES["send-recv"].version))
                raise Unsuitable(f"NCCL {own} has no send and receive, which came with {came}")
            kernels.point_to_point(one_channel=has(self.version, "peers") and graph.channels_to_a_peer == 1)
            return builder.build()
        direct = None if self.algorithm or self.protocol else direct_protocol(request, self.version)
        if direct is not None:
            kernels.direct(direct)
            builder.facts |= {"algorithm": "direct", "protocol": direct}
            builder.notes.insert(0, f"chosen: direct, {direct}")
            return builder.build()
        choice = self.choice(graph, request.collective, request.size_bytes)
        kernels.n_channels, _, kernels.n_filled = channels_used(graph, choice, request.size_bytes)
        builder.facts |= {"algorithm": choice.algorithm, "protocol": choice.protocol}
        builder.facts |= {"channels": kernels.n_channels, "planned_us": round(choice.time_us, 3)}
        if choice.algorithm in ("nvls", "nvls_tree"):
            kernels.nvls(graph.nvls_channels)
        else:
            rings = channel_rings(request.group, self.version)
            say_ended(builder.notes, [ring.whole for ring in rings])
            if choice.algorithm == "tree":
                kernels.tree(rings, choice.protocol)
            else:
                kernels.ring(rings, choice.protocol, log_steps=choice.algorithm == "pat")
            builder.notes += _what_could_be_won(request, rings)
        chosen = f"{choice.algorithm.replace('_', ' ')}, {choice.protocol}, {counted(kernels.n_channels, 'channel')}"
        builder.notes.insert(0, f"chosen: {chosen}")
        return builder.build()

    def graph(self, group: Communicator) -> CommGraph:
        """Return the graph with which this version plans for *group*."""
        return replace(comm_graph(with_peers(group), self.version), version=self.version)

    def choice(self, graph: CommGraph, collective: Collective, size_bytes: float) -> NcclChoice:
        """Return the algorithm and protocol for *collective* over *graph*; raises Unsuitable if none is left."""
        wanted = (cast(Algorithm, self.algorithm),) if self.algorithm else graph.algorithms
        adds = collective in ("all-reduce", "reduce-scatter")
        if wanted and collective != "all-reduce" and not has(self.version, "strict"):
            wanted = (*wanted, "ring")
        if not self.nvls or (adds and not self.in_switch):
            wanted = tuple(a for a in wanted or ALGORITHMS if not a.startswith("nvls"))
            if not wanted:
                why = "no switch reduces this type so" if self.nvls else "NVLS is off"
                raise Unsuitable(f"{why}, which {self.algorithm} needs; ring and tree do without")
        protocol = cast(Protocol, self.protocol) if self.protocol else None
        return fastest_choice(graph, collective, size_bytes, algorithms=wanted, protocol=protocol)


def _way(plan: Plan) -> object:
    """Return how *plan* moves its bytes: algorithm, protocol and channels, and the links and bytes of each flow."""
    flows = [(task.repeat, flow) for task in plan.tasks for flow in task.parts if isinstance(flow, Flow)]
    return [plan.facts.get(name) for name in ("algorithm", "protocol", "channels")], [
        (n, float(f"{flow.bytes:.9g}"), flow.at and flow.at.number, [(i, round(s, 9)) for i, s in flow.route.links])
        for n, flow in flows
    ]


def _what_could_be_won(request: Request, rings: list[FoundRing]) -> list[str]:
    """Return a note if NCCL's rings are slower than those for which the direct links have room."""
    if not any(ring.kind in ("nvl", "nvlink-relay") for ring in rings) or len(request.by_host()) > 1:
        return []
    best = find_rings(request.group, both_directions=True)
    found_Bps, best_Bps = (sum(ring.bandwidth_Bps for ring in each) for each in (rings, best))
    told = f"NCCL's search ends at rings of {format_bandwidth(found_Bps)}; the links have room for"
    won = "up to which a graph of your own (NCCL_GRAPH_FILE) could win"
    return [f"{told} {format_bandwidth(best_Bps)} (multi-ring), {won}"] if found_Bps < _TOLD_BELOW * best_Bps else []


NCCL = Nccl()
