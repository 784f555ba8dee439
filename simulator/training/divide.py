"""The network of one rank of a layout: ``divided``."""

from __future__ import annotations

from simulator.questions.layout import Layout
from simulator.workload.network import Network
from simulator.workload.split.context import context_split
from simulator.workload.split.experts import expert_split
from simulator.workload.split.tensor import tensor_split


def divided(network: Network, layout: Layout) -> Network:
    """Return one rank's part of *network*, over all pipeline stages; raises InputError if it cannot be divided."""
    split = context_split(tensor_split(network, layout.tp, layout.sp), layout.cp)
    return expert_split(split, layout.ep, layout.expert_tp, layout.tp == 1 or layout.sp, layout.flex)
