"""Fit the constants of NCCL's protocols to observations: ``fit_costs``.

The loss is the mean absolute logarithm of predicted over measured.  Each machine counts alike,
below 1 MiB and from there on, however many of its rows the table holds; within it each
collective and number of GPUs counts alike.

Earlier and recent versions of NCCL have constants of their own.  The recent ones start from the
earlier, and only what happens inside a machine is fitted to their rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from simulator.errors import MissingDependency
from simulator.strategies.nccl.cost import DEFAULT_COSTS, EARLIER_COSTS, Costs, ProtocolCost
from validate.fit.nccl.observation import Observation

__all__ = ["fit_both", "fit_costs", "predicted_s"]

_ENOUGH_ROWS = 10  # a group of fewer rows counts for less
_LARGE_BPS = 1e12  # no channel is that fast
_STARTS = 6  # of each block of constants
_ROUNDS = 3  # through all blocks
_TETHER = 5e-4  # a constant that no row depends on stays where it began
_SMALL_S = 1e-8  # what a constant of zero starts from: the fit is in logarithms


# Where the search starts: round figures by hand, not the constants in use, so that a fit to the
# same table ends at the same place.
_START = Costs(
    launch_s=4e-6,
    peer_launch_s=1e-6,
    protocols={
        "LL": ProtocolCost(10e-6, 0.5e-6, 5e-6, share=0.7, channel_Bps=1.5e9, wire=2.0),
        "LL128": ProtocolCost(25e-6, 3e-6, 10e-6, share=0.9, wire=16 / 15, own_passes=4.0),
        "Simple": ProtocolCost(35e-6, 4e-6, 15e-6, share=0.95, own_passes=4.0),
        "NVLS": ProtocolCost(50e-6, 0.0, 0.0, share=0.7, fill=0.5),
        "P2P": ProtocolCost(15e-6, 4e-6, 4e-6, share=0.95, own_passes=4.0, fill=0.5),
    },
    pcie_share=0.5,
    network_share=0.95,
    staged_share=0.6,
)


def fit_both(rows: Sequence[Observation]) -> tuple[Costs, Costs]:
    """Return the constants of earlier and of recent versions of NCCL; raises as :func:`fit_costs`.

    Where there are no rows of the one or the other, its constants are those in use.
    """
    before = [row for row in rows if not row.is_recent]
    since = [row for row in rows if row.is_recent]
    earlier = fit_costs(before) if before else EARLIER_COSTS
    recent = fit_costs(since, earlier, fixed=_BETWEEN_MACHINES) if since else DEFAULT_COSTS
    return earlier, recent


def fit_costs(rows: Sequence[Observation], start: Costs = _START, *, fixed: Collection[str] = ()) -> Costs:
    """Return the constants of least loss over *rows*, to three digits, those in *fixed* as they were.

    The constants of one protocol at a time, as no row depends on those of two; then those that they share.

    Raises
    ------
    MissingDependency
        Where SciPy is not installed.

    """
    np, minimize = _scipy()
    table = _Table(np, rows)
    random = np.random.default_rng(0)  # the same starts on every run
    names = _names()
    ties = [(names.index(name), names.index(source)) for name, source in _TIED.items()]
    best = _vector(np, start)
    anchor = best.copy()

    def filled(free: Sequence[int], values: Any) -> Any:
        vector = best.copy()
        vector[free] = values
        for name, source in ties:
            vector[name] = vector[source]
        return vector

    for _ in range(_ROUNDS):
        for block in (*_PROTOCOLS, ""):
            mine = [
                i
                for i, name in enumerate(names)
                if name.rpartition(".")[0] == block and name not in {*_NOT_FITTED, *_TIED, *fixed}
            ]
            if not mine:
                continue

            def loss(values: Any, free: Sequence[int] = mine) -> float:
                return table.loss(filled(free, values)) + _TETHER * float(((values - anchor[free]) ** 2).sum())

            for attempt in range(_STARTS):
                values = best[mine] + random.normal(0.0, 0.5 if attempt else 0.0, len(mine))
                for method in ("Powell", "Nelder-Mead"):
                    options = {"maxiter": 30 if method == "Powell" else 1500, "maxfev": 4000}
                    values = minimize(loss, values, method=method, options=options).x
                if loss(values) < loss(best[mine]):
                    best = filled(mine, values)
    return _costs(np, best)


_PROTOCOLS = tuple(DEFAULT_COSTS.protocols)
_FIELDS = ("base_s", "hop_s", "net_hop_s", "share", "channel_Bps", "own_passes", "fill")
_SHARED = ("launch_s", "peer_launch_s", "pcie_share", "network_share", "staged_share")
# LL alone is bound by its threads; NVLS leaves the network to trees of the Simple protocol.
_NOT_FITTED = {
    *(f"{name}.channel_Bps" for name in ("LL128", "Simple", "NVLS", "P2P")),
    *("NVLS.hop_s", "NVLS.net_hop_s"),
    *(f"{name}.own_passes" for name in ("LL", "NVLS")),
    *(f"{name}.fill" for name in ("LL", "LL128", "Simple")),
}
# Point to point moves data as Simple does, and a ring of LL128 has the same steps.
_TIED = {"P2P.share": "Simple.share", "LL128.own_passes": "Simple.own_passes"}
_BETWEEN_MACHINES = {*_SHARED, *(f"{name}.net_hop_s" for name in _PROTOCOLS)}
_FIRST = 5  # constants that stand before those of the protocols


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
        base, hop, net_hop, share, channel, own_passes, fill = mine
        protocols[name] = replace(
            DEFAULT_COSTS.protocols[name],
            base_s=_rounded(base),
            hop_s=_rounded(hop),
            net_hop_s=_rounded(net_hop),
            share=_rounded(min(share, 1.0)),
            channel_Bps=_rounded(channel) if channel < _LARGE_BPS / 10 else float("inf"),
            own_passes=_rounded(own_passes),
            fill=_rounded(fill),
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
    raw = [min(1.0, in_class[group[:2]] / _ENOUGH_ROWS) / n_groups[group[:2]] / in_group[group] for group in groups]
    return [weight / sum(raw) for weight in raw]


class _Table:
    """The observations as columns."""

    def __init__(self, np: Any, rows: Sequence[Observation]) -> None:
        self.np = np
        self.protocol = np.array([_PROTOCOLS.index(r.cost) for r in rows])
        columns = [name for name in Observation.__slots__ if name not in ("machine", "group", "cost")]
        self.of = {name: np.array([getattr(r, name) for r in rows], dtype=float) for name in columns}
        self.weight = np.array(_weights([r.group for r in rows]))

    def predicted_s(self, vector: Any) -> Any:
        np, of = self.np, self.of
        values = np.exp(vector)
        mine = values[_FIRST:].reshape(-1, len(_FIELDS))[self.protocol].T
        base, hop, net_hop, share, channel, own_passes, fill = mine
        kernel = (base + hop * of["hops"]) * of["pace"] + net_hop * of["net_hops"] + of["latency_s"]
        moving = np.maximum(of["transfer_s"], of["channel_bytes"] / channel)
        driven = of["gpu_link_s"] / np.minimum(share, 1.0) * (1 + fill * of["first"]) + own_passes * of["own_s"]
        moving = np.maximum(moving, np.where(of["gpu_link_s"] > 0, driven, 0.0))
        moving = np.maximum(moving, of["pcie_s"] / np.minimum(values[2], 1.0))
        network = np.where(of["is_staged"] > 0, values[4], values[3])
        kernel = kernel + np.maximum(moving, of["network_s"] / np.minimum(network, 1.0))
        return np.maximum(values[0] * of["launches"] + values[1] * of["peer_launches"], kernel)

    def loss(self, vector: Any) -> float:
        np = self.np
        shares = [2, 3, 4, *range(_FIRST + 3, len(vector), len(_FIELDS))]
        over = np.clip(vector[shares], 0.0, None).sum()  # keeps shares from wandering off above 1
        errors = np.abs(np.log(self.predicted_s(vector) / self.of["measured_s"]))
        return float((errors * self.weight).sum() + over)


def predicted_s(rows: Sequence[Observation], costs: Costs) -> list[float]:
    """Return what *costs* say of each row, in seconds; raises MissingDependency without SciPy."""
    np, _ = _scipy()
    return [float(t) for t in _Table(np, rows).predicted_s(_vector(np, costs))]


def _scipy() -> tuple[Any, Any]:
    try:
        import numpy as np
        from scipy.optimize import minimize
    except ImportError:
        raise MissingDependency("fitting needs SciPy; in the clone: pip install -e '.[fit]'") from None
    return np, minimize
