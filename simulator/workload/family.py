"""The family of a network, by its operators: :func:`family_of`."""

from __future__ import annotations

from typing import Literal

from simulator.workload.network import Network, once
from simulator.workload.operators import Attention, Conv2d, MatMul, Recurrent, Softmax

Family = Literal["CNN", "transformer", "MoE"]


@once
def family_of(network: Network) -> Family | None:
    """Return "CNN" if convolutions have most FLOPs, "MoE" if tokens go to experts, "transformer" if tokens attend.

    Hybrids with Mamba's layers belong to the last two.  A network that recurs, or does none of this, has no family.
    """
    convolved = sum(layer.operator.flop for layer in network.layers if isinstance(layer.operator, Conv2d))
    if convolved > 0.5 * network.flop:
        return "CNN"
    if any(isinstance(layer.operator, Recurrent) for layer in network.layers):
        return None
    if any(layer.part == "experts" for layer in network.layers):
        return "MoE"
    kinds = {type(layer.operator) for layer in network.layers}
    return "transformer" if Attention in kinds or {MatMul, Softmax} <= kinds else None
