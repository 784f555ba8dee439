"""A collective over GPUs of a machine: :class:`CollectiveQuestion`."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.questions.where import TODAY, Software, Where
from simulator.workload.collective import Collective

__all__ = ["DTYPES", "REDUCTIONS", "CollectiveQuestion"]

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8", "uint8", "fp8")
REDUCTIONS = ("sum", "avg", "prod", "min", "max")
# What a switch does with each type (ncclNvlsSupported): an average is a product and a sum to NCCL, which it does not.
_IN_SWITCH = {
    "sum": ("fp64", "fp32", "tf32", "fp16", "bf16"),
    "min": ("fp16", "bf16"),
    "max": ("fp16", "bf16"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveQuestion:
    """How long ``size_bytes`` (nccl-tests' size) take by ``strategy``.

    Parameters
    ----------
    gpus : tuple of int, optional
        GPUs of the machine from 0, in rank order; all of them otherwise.
    group_size : int, optional
        Groups of so many consecutive ranks do the same at once; all are one group otherwise.
    root : int
        The rank at which a broadcast starts and a reduce ends.
    pairs : tuple of (source, target)
        Ranks of a send-recv; each rank to the next otherwise.
    gpus_per_process : int
        How many GPUs one host thread launches for, as nccl-tests' ``-g``; matters to ``nccl``.
    algorithm : str, optional
        NCCL's in place of its own choice (NCCL_ALGO): ``ring``, ``tree``, ``nvls``, ``nvls_tree``, ``pat``.
    protocol : str, optional
        NCCL's in place of its own choice (NCCL_PROTO): ``LL``, ``LL128``, ``Simple``.
    dtype : str
        Type of the elements, of ``DTYPES``.
    reduction : str
        What is made of the elements of all ranks, of ``REDUCTIONS``.  Each takes the same bytes over the same links
        and is bound by memory; what differs is whether a switch can do it.
    servers : tuple of str
        Where parameter servers stand: ``own`` machines, ``workers``, or names of CPUs; else as the strategy finds best.
    """

    where: Where
    size_bytes: float
    collective: Collective = "all-reduce"
    strategy: str = "nccl"
    gpus: tuple[int, ...] | None = None
    group_size: int | None = None
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()
    gpus_per_process: int = 1
    algorithm: str | None = None
    protocol: str | None = None
    dtype: str = "fp32"
    reduction: str = "sum"
    servers: tuple[str, ...] = ()
    software: Software = TODAY

    @property
    def in_switch(self) -> bool:
        """Whether a switch can do the reduction in the type; in integers of 8 bits and fp8 none."""
        return self.dtype in _IN_SWITCH.get(self.reduction, ())
