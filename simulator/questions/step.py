"""A step of a network on a machine: :class:`StepQuestion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from simulator.questions.options import USUAL, StepOptions
from simulator.questions.where import TODAY, Software, Where

__all__ = ["BUCKET_BYTES", "PARALLELISMS", "Parallelism", "StepQuestion"]

Parallelism = Literal["dp", "fsdp"]
PARALLELISMS: tuple[Parallelism, ...] = get_args(Parallelism)
BUCKET_BYTES = 25 * 2**20  # bucket_cap_mb of PyTorch's DistributedDataParallel


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuestion:
    """How long a step takes in which each device computes ``micro_batches`` of ``batch`` samples.

    Parameters
    ----------
    workload : str
        A network of the zoo, a YAML file of layers, or ``torch:package.module:factory``.
    sizes : tuple of (name, value)
        Of a network of the zoo other than its own: ``sequence_length``, ``image``, ``layers``, ``attention``, ...,
        and ``loss`` (0: no cross-entropy comes last).
    device : str, optional
        One device of the machine by its name (``gpu0``, ``cpu0``, ``cpu`` for all sockets); else its GPUs.
    gpus : tuple of int, optional
        GPUs of the machine from 0; all of them otherwise.
    parallel : str
        How several divide the work: ``dp``, each has a replica (DistributedDataParallel); ``fsdp``, each a shard of
        the parameters, gathered when needed (ZeRO-3).
    strategy : str
        How they exchange.
    bucket_bytes : float
        Of ``dp``: gradients are exchanged in buckets of so many bytes while the backward pass goes on; 0: all
        after it.
    sums_in_fp32 : bool
        Of ``fsdp``: gradients of 16 bits are summed in fp32.
    prefetches : bool
        Of ``fsdp``: backward, the next unit is gathered while one computes (BACKWARD_PRE); else after it.
    contention : bool
        What computes and what exchanges at the same time slow each other, gradients are copied into buckets and out
        of them, and all wait for the slowest rank; otherwise each runs as if alone, on equal devices.
    threads : int, optional
        Of a CPU; one for each core otherwise.
    """

    where: Where
    workload: str
    batch: int
    sizes: tuple[tuple[str, int | str], ...] = ()
    options: StepOptions = USUAL
    micro_batches: int = 1
    device: str | None = None
    gpus: tuple[int, ...] | None = None
    parallel: Parallelism = "dp"
    strategy: str = "nccl"
    bucket_bytes: float = BUCKET_BYTES
    sums_in_fp32: bool = False
    prefetches: bool = True
    contention: bool = True
    threads: int | None = None
    software: Software = TODAY

    @property
    def way(self) -> str:
        """How several devices exchange, in a few words."""
        if self.parallel == "fsdp":
            return f"{self.strategy} with FSDP"
        if self.bucket_bytes == BUCKET_BYTES:
            return self.strategy
        buckets = f"with buckets of {self.bucket_bytes / 2**20:g} MiB" if self.bucket_bytes else "without overlap"
        return f"{self.strategy} {buckets}"
