"""The parameters that one token passes through, as papers of networks with experts count them."""

from __future__ import annotations

from simulator.workload.network import Network
from simulator.workload.operators import GroupedLinear


def active_parameters(network: Network) -> int:
    """Return the elements of all parameters but those of the experts that a token is not routed to."""
    idle = 0
    for layer in network.layers:
        operator = layer.operator
        if isinstance(operator, GroupedLinear) and operator.experts > 1:
            weights = sum(p.elements for p in layer.parameters)
            idle += weights - weights * operator.rows // (operator.experts * network.tokens)
    return network.parameter_count - idle
