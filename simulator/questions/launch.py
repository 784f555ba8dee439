"""The cost of launches: :class:`LaunchQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.checks import check
from simulator.questions.where import Where
from simulator.workload.operators import Operator, Phase
from simulator.workload.precision import Precision

Launched = Literal["host", "stream", "graph", "device", "staying"]
Call = Literal["", "view", "record", "hold", "wait", "read", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchQuestion:
    """The time to launch something, and to run it.

    What is launched: an ``operator`` in ``phases``, by a framework that records its tape if ``is_taped``, with
    gradients for ``parameters`` tensors; a captured graph of ``kernels`` such operators; or, without an operator, an
    update of ``parameters`` tensors.  ``timed`` is what counts: the ``host``, until it is free again; one launch after
    the other in a ``stream``, or within a captured ``graph``; the ``device`` alone, with the launch of the captured
    work; or one pass of a kernel ``staying`` on the device, which waits for all its blocks.

    ``call`` is a call without an operator that occupies the host: a ``view``; to ``record`` an event; to make a stream
    wait for one (``hold``); to ``wait`` for a device; to ``read`` one number from an idle device; or to launch an
    ``empty`` kernel, and with ``timed=device`` to wait for it too.
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

    def __post_init__(self) -> None:
        check(self)
