"""Front ends: what Python pays to issue an operator, to wait, and to look at a result.

PyTorch's dispatch is known operator by operator (:mod:`simulator.devices.dispatch`); of MXNet only what an operator
takes on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulator.constants import constants

__all__ = ["FrontEndCosts", "MxnetCosts", "PytorchCosts"]


@dataclass(frozen=True, slots=True)
class MxnetCosts:
    """Seconds of MXNet 1.x for an operator from Python, as a block of Gluon, hybridised, backward; and for an array."""

    operator_s: float
    layer_s: float
    compiled_s: float
    backward_s: float
    array_s: float


@dataclass(frozen=True, slots=True)
class PytorchCosts:
    """Seconds of PyTorch for a call that launches nothing, and for one that concerns an event."""

    view_s: float
    event_s: float


@constants("front_ends")
@dataclass(frozen=True, slots=True)
class FrontEndCosts:
    """Constants of front ends, the same for all hosts; ``wait_s`` is from the end of something to who waits for it."""

    PARTS: ClassVar = {"mxnet": MxnetCosts, "pytorch": PytorchCosts}
    mxnet: MxnetCosts
    pytorch: PytorchCosts
    launch_s: float
    wait_s: float
    print_s: float
