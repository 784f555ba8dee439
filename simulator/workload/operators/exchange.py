"""Exchanges among the ranks that divide a layer."""

from __future__ import annotations

from typing import Literal

from simulator.records import dataclass, field
from simulator.workload.collective import Collective
from simulator.workload.operator import Kernels, Operator
from simulator.workload.precision import Precision


@dataclass(frozen=True, slots=True)
class Exchange(Operator):
    """A collective among the ranks that divide a layer, along the degree ``axis`` of a layout.

    ``forward`` and ``backward`` are the collectives of the two passes, or None.  ``elements`` is the
    collective's size by nccl-tests' convention (:mod:`simulator.workload.collective`), ``output_elements`` the size of
    the result.  ``copies``: how many equal copies are sent or summed, as of a token for its different experts.
    ``flex``: the dispatcher of experts sends one of them to each rank, and copies it there (DeepEP, HybridEP).
    """

    saved = ()
    per_token = ("elements", "output_elements")

    axis: Literal["tp", "cp", "ep", "etp"]
    forward: Collective | None
    backward: Collective | None
    elements: int
    output_elements: int = field()
    copies: int = 1
    flex: bool = False

    def forward_kernels(self, precision: Precision) -> Kernels:
        """Return no kernels of its own: a communicator moves the data."""
        return ()

    def input_gradients(self, precision: Precision) -> Kernels:
        """Return no kernels of its own."""
        return ()
