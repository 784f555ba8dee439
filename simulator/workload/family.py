"""The family of a network, by its operators: :func:`family_of`."""

from __future__ import annotations

from typing import Literal

from simulator.workload.network import Network, once
from simulator.workload.operators import Conv2d, Recurrent

__all__ = ["Family", "family_of"]

Family = Literal["CNN", "transformer", "MoE"]


@once
def family_of(network: Network) -> Family | None:
    """Return "CNN" if convolutions have most FLOPs, else "transformer" or "MoE" if nothing convolves or recurs.

    Tokens enter both; an MoE (a mixture of experts) has layers that send them to experts.
    """
    convolved = sum(layer.operator.flop for layer in network.layers if isinstance(layer.operator, Conv2d))
    if convolved > 0.5 * network.flop:
        return "CNN"
    others = any(isinstance(layer.operator, Conv2d | Recurrent) for layer in network.layers)
    if others or not network.tokens:
        return None
    return "MoE" if any(layer.part == "experts" for layer in network.layers) else "transformer"
