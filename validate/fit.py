"""Fit the constants of NCCL's protocols to tables of measured collectives.

What a row's plan is made of (protocol, hops, medium, bytes over the slowest link) does not
depend on the constants, so each row is planned and run once, with constants that add
nothing; after that a prediction is a formula and the fit takes seconds.

The loss is the mean absolute logarithm of predicted over measured.  Each machine counts alike,
below 1 MiB and from there on, however many of its rows the table holds; within it each
collective and number of GPUs counts alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulator.api import make_request
from simulator.engine.executor import execute
from simulator.errors import InputError, MissingDependency
from simulator.network.machine import Machine
from simulator.plan.merge import merge
from simulator.plan.plan import Plan, Transfer
from simulator.strategies.base import Unsuitable
from simulator.strategies.nccl.cost import DEFAULT_COSTS, Costs, ProtocolCost
from simulator.strategies.nccl.kernels import NETWORK_LINKS
from simulator.strategies.nccl.strategy import Nccl
from validate.score.machines import MachineBook
from validate.score.predict import groups_of
from validate.score.query import NotScored, Query

__all__ = ["Observation", "fit_costs", "observe"]

_NOTHING = Costs(
    0.0,
    0.0,
    {name: ProtocolCost(0.0, 0.0, 0.0, wire=cost.wire) for name, cost in DEFAULT_COSTS.protocols.items()},
    *(1.0, 1.0, 1.0, 1.0),
)
_ENOUGH_ROWS = 10  # a group of fewer rows counts for less
_LARGE_BPS = 1e12  # no channel is that fast
_STARTS = 12
_SMALL_S = 1e-8  # what a constant of zero starts from: the fit is in logarithms


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured row, reduced to what its time depends on."""

    group: tuple[str, ...]
    measured_s: float
    cost: str
    launches: int
    peer_launches: int
    hops: int
    net_hops: int
    latency_s: float  # of the routes and the plugin
    transfer_s: float  # of the bytes, at the links' full speed
    pcie_s: float  # of the bytes, were the PCIe between the GPUs alone in the way
    network_s: float  # were the network alone in the way
    network_use: int  # 0 in rings, 1 fanned out, 2 through host memory
    channel_bytes: float


def observe(query: Query, measured_s: float, book: MachineBook) -> Observation:
    """Return the row of *query* as an observation; raises NotScored where it cannot be planned."""
    compiled = book.get(query.machine, query.n_nodes)
    strategy = Nccl(query.algorithm, query.gpus_per_process, costs=_NOTHING)
    try:
        plans = [
            strategy.plan(
                make_request(
                    compiled.machine,
                    query.size_bytes,
                    collective=query.collective,
                    gpus=gpus,
                    pairs=query.pairs,
                    router=compiled.router,
                )
            )
            for gpus in groups_of(query, compiled)
        ]
        whole_s = execute(compiled.machine, merge(plans)).end_s
    except (Unsuitable, InputError) as error:
        raise NotScored(str(error)) from None
    facts = plans[0].facts
    latency_s = _latency_s(plans[0])
    return Observation(
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
        pcie_s=_alone_s(plans[0], compiled.machine, ("pcie",), network=False),
        network_s=_alone_s(plans[0], compiled.machine, NETWORK_LINKS, network=True),
        network_use=2 if _is_staged(plans[0]) else int(facts["network_use"] == "fan"),
        channel_bytes=float(facts["channel_bytes"]),
    )


def _is_staged(plan: Plan) -> bool:
    flows = (flow for task in plan.tasks if isinstance(task, Transfer) for flow in task.flows)
    return any(flow.route.transport == "network-staged" for flow in flows)


def _alone_s(plan: Plan, machine: Machine, kinds: Collection[str], *, network: bool) -> float:
    """Return how long all flows together take over the slowest of their links of some kinds."""
    sent: dict[int, float] = {}
    for task in plan.tasks:
        if isinstance(task, Transfer):
            for flow in task.flows:
                if (flow.route.path_class == "net") == network:
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


def fit_costs(rows: Sequence[Observation], start: Costs = DEFAULT_COSTS) -> Costs:
    """Return the constants of least loss over *rows*.

    Raises
    ------
    MissingDependency
        Where SciPy is not installed.

    """
    try:
        import numpy as np
        from scipy.optimize import minimize
    except ImportError:
        raise MissingDependency("fitting needs SciPy: pip install 'toposim[fit]'") from None
    table = _Table(np, rows)
    random = np.random.default_rng(0)  # the same starts on every run
    names = _names()
    free = [i for i, name in enumerate(names) if name not in _NOT_FITTED]
    tied = names.index("P2P.share"), names.index("Simple.share")
    best = _vector(np, start)

    def loss(values: Any) -> float:
        vector = best.copy()
        vector[free] = values
        vector[tied[0]] = vector[tied[1]]
        return table.loss(vector)

    for attempt in range(_STARTS):
        values = best[free] + random.normal(0.0, 0.5 if attempt else 0.0, len(free))
        for method in ("Powell", "Nelder-Mead"):
            options = {"maxiter": 30 if method == "Powell" else 4000, "maxfev": 20_000}
            values = minimize(loss, values, method=method, options=options).x
        if loss(values) < table.loss(best):
            best[free] = values
            best[tied[0]] = best[tied[1]]
    return _costs(np, best)


_PROTOCOLS = tuple(DEFAULT_COSTS.protocols)
_FIELDS = ("base_s", "hop_s", "net_hop_s", "share", "channel_Bps")
_SHARED = ("launch_s", "peer_launch_s", "pcie_share", "network_share", "fan_share", "staged_share")
# LL alone is bound by its threads; NVLS leaves the network to trees of the Simple protocol, and
# point to point moves data as that does.
_NOT_FITTED = {f"{name}.channel_Bps" for name in ("LL128", "Simple", "NVLS", "P2P")} | {"NVLS.net_hop_s", "P2P.share"}
_FIRST = 6  # constants that stand before those of the protocols


def _names() -> list[str]:
    """Return the names of the constants in the order of the vector."""
    return [*_SHARED, *(f"{protocol}.{field}" for protocol in _PROTOCOLS for field in _FIELDS)]


def _vector(np: Any, costs: Costs) -> Any:
    """Return the logarithms of the constants; what is infinite stays so."""
    values = [getattr(costs, name) for name in _SHARED]
    for name in _PROTOCOLS:
        values += [getattr(costs.protocols[name], field) for field in _FIELDS]
    return np.log(np.minimum(np.maximum(np.array(values), _SMALL_S), _LARGE_BPS))


def _costs(np: Any, vector: Any) -> Costs:
    values = [float(v) for v in np.exp(vector)]
    shared = dict(zip(_SHARED, values[:_FIRST], strict=True))
    protocols = {}
    for i, name in enumerate(_PROTOCOLS):
        mine = values[_FIRST + len(_FIELDS) * i :][: len(_FIELDS)]
        base, hop, net_hop, share, channel = mine
        protocols[name] = replace(
            DEFAULT_COSTS.protocols[name],
            base_s=_rounded(base),
            hop_s=_rounded(hop),
            net_hop_s=_rounded(net_hop),
            share=_rounded(min(share, 1.0)),
            channel_Bps=_rounded(channel) if channel < _LARGE_BPS / 10 else float("inf"),
        )
    capped = {name: _rounded(min(v, 1.0) if name.endswith("share") else v) for name, v in shared.items()}
    return Costs(protocols=protocols, **capped)


def _rounded(value: float) -> float:
    """Keep three digits; what a fit makes of nothing is nothing."""
    return float(f"{value:.3g}") if value > 2 * _SMALL_S else 0.0


def _weights(groups: Sequence[tuple[str, ...]]) -> list[float]:
    """Return the weight of each row by its group: (machine, size class, collective, GPUs); they sum to 1."""
    in_group = Counter(groups)
    in_class = Counter(group[:2] for group in groups)
    n_groups = Counter(group[:2] for group in in_group)
    raw = [
        min(1.0, in_class[group[:2]] / _ENOUGH_ROWS) / n_groups[group[:2]] / in_group[group] for group in groups
    ]
    return [weight / sum(raw) for weight in raw]


class _Table:
    """The observations as columns."""

    def __init__(self, np: Any, rows: Sequence[Observation]) -> None:
        self.np = np
        self.protocol = np.array([_PROTOCOLS.index(r.cost) for r in rows])
        columns = [name for name in Observation.__slots__ if name not in ("group", "cost")]
        self.of = {name: np.array([getattr(r, name) for r in rows], dtype=float) for name in columns}
        self.weight = np.array(_weights([r.group for r in rows]))

    def predicted_s(self, vector: Any) -> Any:
        np, of = self.np, self.of
        values = np.exp(vector)
        base, hop, net_hop, share, channel = values[_FIRST:].reshape(-1, len(_FIELDS))[self.protocol].T
        kernel = base + hop * of["hops"] + net_hop * of["net_hops"] + of["latency_s"]
        moving = np.maximum(of["transfer_s"] / np.minimum(share, 1.0), of["channel_bytes"] / channel)
        moving = np.maximum(moving, of["pcie_s"] / np.minimum(values[2], 1.0))
        network = values[3:6][of["network_use"].astype(int)]
        kernel = kernel + np.maximum(moving, of["network_s"] / np.minimum(network, 1.0))
        return np.maximum(values[0] * of["launches"] + values[1] * of["peer_launches"], kernel)

    def loss(self, vector: Any) -> float:
        np = self.np
        shares = [2, 3, 4, 5, *range(_FIRST + 3, len(vector), len(_FIELDS))]
        over = np.clip(vector[shares], 0.0, None).sum()  # keeps shares from wandering off above 1
        errors = np.abs(np.log(self.predicted_s(vector) / self.of["measured_s"]))
        return float((errors * self.weight).sum() + over)


def split(
    rows: Sequence[tuple[Query, float]], book: MachineBook, held_out: Collection[str] = ()
) -> tuple[list[Observation], list[Observation]]:
    """Return the observations to fit and those of the machines *held_out*; rows that cannot be planned are left out."""
    kept: dict[Query, Observation] = {}
    fitted: list[Observation] = []
    judged: list[Observation] = []
    for query, measured_s in rows:
        try:
            if query not in kept:
                kept[query] = observe(query, measured_s, book)
        except NotScored:
            continue
        row = replace(kept[query], measured_s=measured_s)
        (judged if query.machine in held_out else fitted).append(row)
    return fitted, judged
