"""A collective over GPUs of a machine: :class:`CollectiveQuestion`."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.questions.where import TODAY, Software, Where
from simulator.workload.collective import Collective

__all__ = ["DTYPES", "REDUCTIONS", "CollectiveQuestion"]

_WIDE_INTEGERS = ("int32", "uint32", "int64", "uint64")
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8", "uint8", *_WIDE_INTEGERS, "fp8")
REDUCTIONS = ("sum", "avg", "prod", "min", "max")
# Reductions that switches do, by type (ncclNvlsSupported). NCCL computes an average as a product and a sum, which they
# do not do.
_IN_SWITCH = {
    "sum": ("fp64", "fp32", "tf32", "fp16", "bf16", *_WIDE_INTEGERS),
    "min": ("fp16", "bf16", *_WIDE_INTEGERS),
    "max": ("fp16", "bf16", *_WIDE_INTEGERS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveQuestion:
    """The time of a collective of ``size_bytes`` (nccl-tests' size) with ``strategy``.

    Parameters
    ----------
    gpus : tuple of int, optional
        GPUs of the machine, counted from 0, in rank order; all by default.
    group_size : int, optional
        Ranks in each group of consecutive ranks, which all run the collective at once; by default one group.
    root : int
        The rank at which a broadcast starts and a reduce ends.
    pairs : tuple of (source, target)
        Ranks of a send-recv; by default each rank sends to the next.
    gpus_per_process : int
        GPUs that one host thread launches for, as nccl-tests' ``-g``; only ``nccl`` depends on it.
    algorithm : str, optional
        Replaces NCCL's own choice (NCCL_ALGO): ``ring``, ``tree``, ``nvls``, ``nvls_tree``, ``pat``.
    protocol : str, optional
        Replaces NCCL's own choice (NCCL_PROTO): ``LL``, ``LL128``, ``Simple``.
    nvls : bool
        Whether NCCL may use NVLS (NCCL_NVLS_ENABLE).
    dtype : str
        Type of the elements, one of ``DTYPES``.
    reduction : str
        The reduction over ranks, one of ``REDUCTIONS``.  All move the same bytes over the same links and are
        memory-bound; they differ only in whether a switch can do them.
    servers : tuple of str
        Places of parameter servers: ``own`` machines, ``workers``, or names of CPUs; by default the strategy's best.
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
    nvls: bool = True
    dtype: str = "fp32"
    reduction: str = "sum"
    servers: tuple[str, ...] = ()
    software: Software = TODAY

    @property
    def in_switch(self) -> bool:
        """Whether a switch can do the reduction in this type; never for 8-bit integers and fp8."""
        return self.dtype in _IN_SWITCH.get(self.reduction, ())
