"""One operator on one device: :class:`OperatorQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.checks import check
from simulator.questions.where import Where
from simulator.workload.operators import Operator, Phase
from simulator.workload.precision import Precision

Issued = Literal["", "graph", "stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorQuestion:
    """The time of an operator's kernels in one phase.

    Parameters
    ----------
    device : str, optional
        A device of the machine, by its name or its part's; by default its first GPU, or its CPUs.
    channels_last : bool
        Images lie in memory pixel by pixel.
    is_cold : bool
        No input or output is in a cache at the start.
    issued : str
        How a GPU's kernels are launched: ``graph``, from a captured graph; ``stream``, one call after the other, so
        that the host may be slower; empty: without waiting for launches.
    calls : bool
        On a CPU, include the framework's call.
    threads : int, optional
        Threads of a CPU; by default one per core.
    """

    where: Where
    operator: Operator
    phase: Phase = "fwd"
    precision: Precision = "fp32"
    device: str | None = None
    channels_last: bool = False
    is_cold: bool = False
    issued: Issued = ""
    calls: bool = False
    threads: int | None = None

    def __post_init__(self) -> None:
        check(self)
