"""Front ends: the Python time to issue an operator, to wait, and to read a result.

PyTorch's dispatch is modelled operator by operator (:mod:`simulator.devices.dispatch`); for MXNet, only the average
time per operator is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulator.constants import constants


@dataclass(frozen=True, slots=True)
class MxnetCosts:
    """Seconds of MXNet 1.x per operator: from Python, in a Gluon block, hybridised, backward; and per array."""

    operator_s: float
    layer_s: float
    compiled_s: float
    backward_s: float
    array_s: float


@dataclass(frozen=True, slots=True)
class PytorchCosts:
    """Seconds of PyTorch per call that launches nothing (a view), and per call on an event."""

    view_s: float
    event_s: float


@constants("front_ends")
@dataclass(frozen=True, slots=True)
class FrontEndCosts:
    """Constants of front ends, the same for all hosts; ``wait_s``: from the end of the work to the waiter's wake-up."""

    PARTS: ClassVar = {"mxnet": MxnetCosts, "pytorch": PytorchCosts}
    mxnet: MxnetCosts
    pytorch: PytorchCosts
    launch_s: float
    wait_s: float
    print_s: float
