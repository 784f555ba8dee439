"""One operator on one device: :class:`OperatorQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.questions.where import Where
from simulator.workload.operators import Operator, Phase
from simulator.workload.precision import Precision

__all__ = ["Issued", "OperatorQuestion"]

Issued = Literal["", "graph", "stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorQuestion:
    """How long an operator's kernels take in a phase.

    Parameters
    ----------
    device : str, optional
        Of the machine, by its name or that of its part; else its first GPU, or its CPUs.
    channels_last : bool
        Images lie in memory pixel by pixel.
    is_cold : bool
        Nothing of what it reads and writes is in a cache when it starts.
    issued : str
        How a GPU's kernels come: ``graph``, from a captured graph; ``stream``, one call after the other, so that
        the host may be slower; nothing: they wait for nobody.
    calls : bool
        Of a CPU: with the framework's call.
    threads : int, optional
        Of a CPU; one for each core otherwise.
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
