"""The strategy ``nccl``: the algorithm and protocol that NCCL would choose, with their costs.

On GPUs that no NVLink ring spans, NCCL would fall back to slower links; here the rings through neighbours, trees over
NVLink and rings over PCIe that the searches find stand against each other, and the fastest is taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from simulator.collectives.nccl.cost import Costs, costs_of
from simulator.collectives.nccl.graph import comm_graph
from simulator.collectives.nccl.kernels import KernelPlanner
from simulator.collectives.nccl.tables import ALGORITHMS, Algorithm
from simulator.collectives.nccl.tuning import channels_used, choose
from simulator.collectives.request import Request, Unsuitable
from simulator.collectives.search.budget import say_ended
from simulator.collectives.search.rings import FoundRing, find_rings
from simulator.collectives.search.trees import find_trees
from simulator.plan.plan import Plan, PlanBuilder
from simulator.questions.where import NCCL_TODAY
from simulator.topology.parts import GpuPart

__all__ = ["NCCL", "Nccl"]


class Nccl:
    """NCCL.

    *algorithm*: ``ring``, ``tree``, ``nvls``, ``nvls_tree`` or ``pat`` in place of NCCL's choice.
    *costs*: what the protocols cost; today's version otherwise.
    *in_switch*: whether a switch can add up the type of the data: integers of 8 bits and fp8 it cannot.
    """

    name = "nccl"
    summary = "what NCCL would do at that size: algorithm, protocol, channels and their latencies"

    def __init__(self, algorithm: str | None = None, costs: Costs | None = None, *, in_switch: bool = True) -> None:
        self.algorithm = algorithm
        self.costs = costs or costs_of(NCCL_TODAY)
        self.in_switch = in_switch

    def plan(self, request: Request) -> Plan:
        """Return the plan; raises Unsuitable where a forced algorithm does not fit."""
        if request.n_ranks < 2:
            return Plan(())
        request = replace(request, group=request.group.nominal)  # NCCL knows what links say, not what they give
        parts = [request.machine.nodes[node].part for node in request.ranks]
        if any(isinstance(part, GpuPart) and part.vendor == "other" for part in parts):
            raise Unsuitable("no hardware that NCCL runs on")
        builder = PlanBuilder()
        builder.facts["software"] = "nccl"
        graph = comm_graph(request.group)
        kernels = KernelPlanner(builder, request, self.costs, plugin_s=graph.nic_latency_us * 1e-6)
        if request.collective in ("all-to-all", "send-recv"):
            kernels.point_to_point()
            return builder.build()
        wanted: tuple[Algorithm, ...] | None = (cast(Algorithm, self.algorithm),) if self.algorithm else None
        if not self.in_switch and request.collective in ("all-reduce", "reduce-scatter"):
            wanted = tuple(a for a in wanted or ALGORITHMS if not a.startswith("nvls"))
            if not wanted:
                raise Unsuitable(f"no switch adds up types of 8 bits, which {self.algorithm} needs; ring and tree do")
        choice = choose(graph, request.collective, request.size_bytes, algorithms=wanted)
        kernels.n_channels = channels_used(graph, choice, request.size_bytes).n_channels
        builder.facts |= {
            "algorithm": choice.algorithm,
            "protocol": choice.protocol,
            "channels": kernels.n_channels,
            "planned_us": round(choice.time_us, 3),
        }
        if choice.algorithm in ("nvls", "nvls_tree"):
            kernels.nvls()
        elif choice.algorithm == "tree":
            kernels.tree(_rings(request), choice.protocol)
        else:
            rings = _rings(request)
            say_ended(builder.notes, [ring.whole for ring in rings])
            if not self._trees_instead(builder, kernels, request, rings, choice.protocol):
                kernels.ring(rings, choice.protocol, log_steps=choice.algorithm == "pat")
        algorithm = str(builder.facts["algorithm"]).replace("_", " ")
        n_channels = f"{kernels.n_channels} {'channel' if kernels.n_channels == 1 else 'channels'}"
        builder.notes.insert(0, f"chosen: {algorithm}, {choice.protocol}, {n_channels}")
        return builder.build()

    def _trees_instead(
        self, builder: PlanBuilder, kernels: KernelPlanner, request: Request, rings: list[FoundRing], protocol: str
    ) -> bool:
        """Plan trees over NVLink where no NVLink ring spans the GPUs and trees are faster; say what was weighed."""
        if request.collective != "all-reduce" or all(ring.kind in ("nvlink", "crossbar", "network") for ring in rings):
            return False
        trees = find_trees(request.group)
        if not trees and all(ring.kind == "mixed" for ring in rings):
            return False
        n = request.n_ranks
        ring_Bps = sum(ring.bandwidth_Bps for ring in rings) * n / (2 * (n - 1))
        tree_Bps = sum(tree.bandwidth_Bps for tree in trees)
        what = "rings through neighbours" if rings[0].kind == "nvlink-relay" else "ring over PCIe or host memory"
        builder.notes.append(
            f"no NVLink ring spans these GPUs: {len(rings)} {what} reach {ring_Bps / 1e9:.1f} GB/s, "
            f"{len(trees)} NVLink trees {tree_Bps / 1e9:.1f} GB/s"
        )
        if tree_Bps <= ring_Bps:
            return False
        builder.facts["algorithm"] = "packed trees"
        del builder.facts["planned_us"]  # of what was not taken
        kernels.packed_trees(trees, protocol)
        return True


def _rings(request: Request) -> list[FoundRing]:
    """Return the rings of NCCL's channels: both ways over direct links, one way where ports are shared."""
    rings = find_rings(request.group, both_directions=False)
    direct = all(ring.kind in ("nvlink", "nvlink-relay") for ring in rings)
    return find_rings(request.group, both_directions=True) if direct else rings


NCCL = Nccl()
