"""What issuing costs: :class:`LaunchQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.where import Where
from simulator.workload.operators import Operator, Phase
from simulator.workload.precision import Precision

__all__ = ["Call", "LaunchQuestion", "Launched"]

Launched = Literal["host", "stream", "graph", "device", "staying"]
Call = Literal["", "view", "record", "hold", "wait", "read", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchQuestion:
    """How long it takes to issue something, and to run it.

    What is issued: an ``operator`` in ``phases``, by a framework that keeps its tape where ``is_taped``, whose
    ``parameters`` get gradients; a captured graph of it so many times (``kernels``); or, without an operator, an
    update of so many ``parameters``.  ``timed``: the ``host``, until it is free again; one after the other in a
    ``stream``, or within a captured ``graph``; the ``device`` by itself, with the launch of what was captured; or one
    pass of a kernel that is ``staying`` on the device and waits for all its blocks.

    ``call``: a call that runs no operator, for which the host is busy: a ``view``, to ``record`` an event, to have a
    stream wait for one (``hold``), to ``wait`` for a device, to ``read`` one number of a device that is idle; or an
    ``empty`` kernel, whose launch the host pays, and with ``timed=device`` its wait too.
    """

    where: Where
    timed: Launched
    device: str | None = None
    operator: Operator | None = None
    phases: tuple[Phase, ...] = ("fwd",)
    is_taped: bool = False
    parameters: int = 0
    kernels: int = 0
    precision: Precision = "fp32"
    call: Call = ""
