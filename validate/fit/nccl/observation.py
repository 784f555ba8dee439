"""A measured row reduced to what its time depends on, apart from the constants that are fitted.

What a row's plan is made of (protocol, hops, bytes over the slowest link) does not depend on
the constants, so each row is planned and run once, with constants that add nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.network.machine import Machine
from simulator.plan.plan import Plan, Transfer
from simulator.strategies.base import Unsuitable
from simulator.strategies.nccl.cost import DEFAULT_COSTS, RECENT, Costs, ProtocolCost
from simulator.topology.parts import GPU_LINKS, NETWORK_LINKS
from validate.collectives.predict import check_hardware, groups_of, nccl_of, plan_query
from validate.collectives.query import Query
from validate.score.machines import MachineBook
from validate.score.query import NotScored

__all__ = ["Observation", "observe", "observe_all"]

_NOTHING = Costs(
    0.0,
    0.0,
    {name: ProtocolCost(0.0, 0.0, 0.0, wire=cost.wire) for name, cost in DEFAULT_COSTS.protocols.items()},
    *(1.0, 1.0, 1.0),
)


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured row, reduced to what its time depends on."""

    machine: str
    group: tuple[str, ...]
    measured_s: float
    cost: str
    launches: int
    peer_launches: int
    hops: int
    net_hops: int
    latency_s: float  # of the routes and the plugin
    transfer_s: float  # of the bytes, at the links' full speed
    gpu_link_s: float  # of the bytes, were NVLink alone in the way
    pcie_s: float  # of the bytes, were the PCIe between the GPUs alone in the way
    network_s: float  # were the network alone in the way
    is_staged: bool  # over the network through host memory
    channel_bytes: float
    own_s: float  # of the part that a rank keeps, once through its memory
    pace: float  # of the GPU's own steps
    first: float  # share of the bytes that fill the pipeline
    is_recent: bool  # ran in a version of NCCL that costs what DEFAULT_COSTS says


def observe(query: Query, measured_s: float, book: MachineBook) -> Observation:
    """Return the row of *query* as an observation; raises NotScored where it cannot be planned."""
    if query.strategy is not None:
        raise NotScored(f"{query.strategy} ran, and not NCCL")
    compiled = book.get(query.machine, query.n_nodes)
    check_hardware(compiled, groups_of(query, compiled))
    strategy = nccl_of(query, _NOTHING)
    try:
        plan = plan_query(query, compiled, strategy)
        whole_s = execute(compiled.machine, plan).end_s
    except (Unsuitable, InputError) as error:
        raise NotScored(str(error)) from None
    facts = plan.facts
    if facts.get("algorithm") == "tree" and query.n_nodes == 2:
        raise NotScored("NCCL's versions differ in taking a tree or a ring on two nodes; which one ran is not known")
    latency_s = _latency_s(plan)
    return Observation(
        machine=query.machine,
        group=(
            query.machine,
            "large" if query.size_bytes >= 1 << 20 else "small",
            query.collective,
            f"{query.n_gpus} GPUs, groups of {query.group_size}",
        ),
        measured_s=measured_s,
        cost=str(facts["cost"]),
        launches=int(facts["gpus_per_process"]),
        peer_launches=int(facts["gpus_per_process"]) * int(facts["peers"]),
        hops=int(facts["hops"]),
        net_hops=int(facts["network_hops"]),
        latency_s=latency_s,
        transfer_s=max(0.0, whole_s - latency_s),
        gpu_link_s=_alone_s(plan, compiled.machine, GPU_LINKS),
        pcie_s=_alone_s(plan, compiled.machine, ("pcie",), network=False),
        network_s=_alone_s(plan, compiled.machine, NETWORK_LINKS, network=True),
        is_staged=_is_staged(plan),
        channel_bytes=float(facts["channel_bytes"]),
        own_s=float(facts["own_s"]),
        pace=float(facts["pace"]),
        first=float(facts["first"]),
        is_recent=query.nccl is not None and query.nccl >= RECENT,
    )


def _is_staged(plan: Plan) -> bool:
    flows = (flow for task in plan.tasks if isinstance(task, Transfer) for flow in task.flows)
    return any(flow.route.transport == "network-staged" for flow in flows)


def _alone_s(plan: Plan, machine: Machine, kinds: Collection[str], *, network: bool | None = None) -> float:
    """Return how long all flows together take over the slowest of their links of some kinds."""
    sent: dict[int, float] = {}
    for task in plan.tasks:
        if isinstance(task, Transfer):
            for flow in task.flows:
                if network is None or (flow.route.path_class == "net") == network:
                    for index, carried in flow.route.links:
                        if machine.links[index].kind in kinds:
                            sent[index] = sent.get(index, 0.0) + task.repeat * flow.wire_bytes * carried
    return max((n_bytes / machine.links[i].bandwidth_Bps for i, n_bytes in sent.items()), default=0.0)


def _latency_s(plan: Plan) -> float:
    """Return the latency of the routes on the longest stream."""
    streams: dict[str, float] = {}
    for task in plan.tasks:
        if isinstance(task, Transfer):
            flows_s = max(flow.route.latency_s + flow.latency_s for flow in task.flows)
            streams[task.stream] = streams.get(task.stream, 0.0) + task.repeat * flows_s
    return max(streams.values(), default=0.0)


def observe_all(rows: Sequence[tuple[Query, float]], book: MachineBook) -> list[Observation]:
    """Return the observations of (query, measured seconds); rows that cannot be planned are left out."""
    kept: dict[Query, Observation | None] = {}
    found = []
    for query, measured_s in rows:
        if query not in kept:
            try:
                kept[query] = observe(query, measured_s, book)
            except NotScored:
                kept[query] = None
        observation = kept[query]
        if observation is not None:
            found.append(replace(observation, measured_s=measured_s))
    return found
