"""Fit the constants of NCCL's protocols to observations: ``fit_costs``.

The loss is the mean absolute logarithm of predicted over measured.  Each machine counts alike,
below 1 MiB and from there on, however many of its rows the table holds; within it each
collective and number of GPUs counts alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simulator.errors import MissingDependency
from simulator.strategies.nccl.cost import DEFAULT_COSTS, Costs, ProtocolCost
from validate.fit.observation import Observation

__all__ = ["fit_costs", "predicted_s"]

_ENOUGH_ROWS = 10  # a group of fewer rows counts for less
_LARGE_BPS = 1e12  # no channel is that fast
_STARTS = 12
_TETHER = 5e-4  # a constant that no row depends on stays where it began
_SMALL_S = 1e-8  # what a constant of zero starts from: the fit is in logarithms


# Where the search starts: round figures by hand, not the constants in use, so that a fit to the
# same table ends at the same place.
_START = Costs(
    launch_s=4e-6,
    peer_launch_s=1e-6,
    protocols={
        "LL": ProtocolCost(10e-6, 0.5e-6, 5e-6, share=0.7, channel_Bps=1.5e9, wire=2.0),
        "LL128": ProtocolCost(25e-6, 3e-6, 10e-6, share=0.9, wire=16 / 15),
        "Simple": ProtocolCost(35e-6, 4e-6, 15e-6, share=0.95),
        "NVLS": ProtocolCost(50e-6, 0.0, 0.0, share=0.7),
        "P2P": ProtocolCost(15e-6, 4e-6, 4e-6, share=0.95),
    },
    pcie_share=0.5,
    network_share=0.95,
    staged_share=0.6,
)


def fit_costs(rows: Sequence[Observation], start: Costs = _START) -> Costs:
    """Return the constants of least loss over *rows*, to three digits.

    Raises
    ------
    MissingDependency
        Where SciPy is not installed.

    """
    np, minimize = _scipy()
    table = _Table(np, rows)
    random = np.random.default_rng(0)  # the same starts on every run
    names = _names()
    free = [i for i, name in enumerate(names) if name not in _NOT_FITTED]
    tied = names.index("P2P.share"), names.index("Simple.share")
    best = _vector(np, start)
    anchor = best[free].copy()

    def loss(values: Any) -> float:
        vector = best.copy()
        vector[free] = values
        vector[tied[0]] = vector[tied[1]]
        return table.loss(vector) + _TETHER * float(((values - anchor) ** 2).sum())

    for attempt in range(_STARTS):
        values = best[free] + random.normal(0.0, 0.5 if attempt else 0.0, len(free))
        for method in ("Powell", "Nelder-Mead"):
            options = {"maxiter": 30 if method == "Powell" else 4000, "maxfev": 20_000}
            values = minimize(loss, values, method=method, options=options).x
        if loss(values) < loss(best[free]):
            best[free] = values
            best[tied[0]] = best[tied[1]]
    return _costs(np, best)


_PROTOCOLS = tuple(DEFAULT_COSTS.protocols)
_FIELDS = ("base_s", "hop_s", "net_hop_s", "share", "channel_Bps")
_SHARED = ("launch_s", "peer_launch_s", "pcie_share", "network_share", "staged_share")
# LL alone is bound by its threads; NVLS leaves the network to trees of the Simple protocol, and
# point to point moves data as that does.
_NOT_FITTED = {f"{name}.channel_Bps" for name in ("LL128", "Simple", "NVLS", "P2P")} | {
    "NVLS.hop_s",
    "NVLS.net_hop_s",
    "P2P.share",
}
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
        base, hop, net_hop, share, channel = values[_FIRST:].reshape(-1, len(_FIELDS))[self.protocol].T
        kernel = base + hop * of["hops"] + net_hop * of["net_hops"] + of["latency_s"]
        moving = np.maximum(of["transfer_s"], of["channel_bytes"] / channel)
        moving = np.maximum(moving, of["gpu_link_s"] / np.minimum(share, 1.0))
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
