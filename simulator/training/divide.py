"""What one rank of a layout computes of a network: ``divided``."""

from __future__ import annotations

from simulator.questions.layout import Layout
from simulator.workload.network import Network
from simulator.workload.split.context import context_split
from simulator.workload.split.experts import expert_split
from simulator.workload.split.tensor import tensor_split

__all__ = ["divided"]


def divided(network: Network, layout: Layout) -> Network:
    """Return what a rank computes of *network*, all pipeline stages together; raises InputError where it cannot."""
    split = context_split(tensor_split(network, layout.tp, layout.sp), layout.cp)
    return expert_split(split, layout.ep, layout.expert_tp, layout.tp == 1 or layout.sp)
