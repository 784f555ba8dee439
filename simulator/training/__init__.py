"""How a step is divided (:func:`divided` has one rank's part) and synchronised: each way writes a plan."""

from __future__ import annotations

from simulator.questions.layout import Layout
from simulator.workload.network import Network
from simulator.workload.split.experts import expert_split


def divided(network: Network, layout: Layout) -> Network:
    """Return one rank's part of *network*, over all pipeline stages; raises InputError if it cannot be divided."""
    if layout.tp > 1:
        from simulator.workload.split.tensor import tensor_split

        network = tensor_split(network, layout.tp, layout.sp)
    if layout.cp > 1:
        from simulator.workload.split.context import context_split

        network = context_split(network, layout.cp)
    return expert_split(network, layout.ep, layout.expert_tp, layout.tp == 1 or layout.sp, layout.flex)
