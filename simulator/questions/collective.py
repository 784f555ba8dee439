"""A collective over GPUs of a machine: :class:`CollectiveQuestion`."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, get_args

from simulator.errors import mention
from simulator.questions.checks import WITHOUT_NCCL, Checked, From, exchange_faults, is_served, unread_faults
from simulator.questions.where import TODAY, Software, Where
from simulator.records import dataclass
from simulator.workload import Collective

Algorithm = Literal["tree", "ring", "nvls", "nvls_tree", "pat"]
Protocol = Literal["LL", "LL128", "Simple"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)  # in NCCL's order: of two equally fast ones the first is chosen
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "int8", "uint8", "int32", "uint32", "int64", "uint64", "fp8"]
Reduction = Literal["sum", "avg", "prod", "min", "max"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
_WIDE_INTEGERS = ("int32", "uint32", "int64", "uint64")
_REDUCING = ("all-reduce", "reduce-scatter", "reduce")
_ROOTED = ("broadcast", "reduce")
SENDING = ("all-to-all", "send-recv")
"""Collectives that are sends and receives, for which NCCL has no algorithms."""
OF_NCCL = ("algorithm", "protocol", "nvls")
"""Fields of exchanges, of their own and of steps, that change what NCCL chooses."""
# Reductions that switches do, by type (ncclNvlsSupported). NCCL computes an average as a product and a sum, which they
# do not do.
_IN_SWITCH = {
    "sum": ("fp64", "fp32", "tf32", "fp16", "bf16", *_WIDE_INTEGERS),
    "min": ("fp16", "bf16", *_WIDE_INTEGERS),
    "max": ("fp16", "bf16", *_WIDE_INTEGERS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveQuestion(Checked):
    """The time of a collective of ``size_bytes`` (nccl-tests' size) with ``strategy``; options tell its other fields.

    - ``gpus``: GPUs of the machine, counted from 0, in rank order; all by default.
    - ``group_size``: of groups of consecutive ranks, which all run the collective at once; by default one group.
    - ``pairs``: ranks of a send-recv; by default each rank sends to the next.
    - ``algorithm``, ``protocol``: replace NCCL's own choice.
    - ``reduction``: all move the same bytes over the same links and are memory-bound; they differ only in whether a
      switch can do them.
    - ``servers``: places of parameter servers: ``own`` machines, ``workers``, or names of CPUs; by default the
      strategy's best.

    Raises InputError for what the command refuses, in its words.
    """

    topic: ClassVar[Literal["collective"]] = "collective"

    where: Where
    size_bytes: float
    collective: Collective = "all-reduce"
    strategy: str = "nccl"
    gpus: tuple[int, ...] | None = None
    group_size: int | None = None
    root: Annotated[int, From(0)] = 0
    pairs: tuple[tuple[int, int], ...] = ()
    gpus_per_process: Annotated[int, From(1)] = 1
    algorithm: Algorithm | None = None
    protocol: Protocol | None = None
    nvls: bool = True
    dtype: Dtype = "fp32"
    reduction: Reduction = "sum"
    servers: tuple[str, ...] = ()
    software: Software = TODAY

    def _faults(self) -> Iterator[str]:
        if not 0 <= self.size_bytes < math.inf:
            yield f"{mention('size_bytes', self.size_bytes)}: must be at least zero and finite"
        if self.reduction != "sum" and self.collective not in _REDUCING:
            yield f"{mention('reduction', self.reduction)}: {self.collective} reduces nothing"
        if self.root and self.collective not in _ROOTED:
            ours = f"is for {mention('collective', 'broadcast')} or reduce, not {self.collective}"
            yield f"{mention('root')}: {ours}"
        if self.pairs and self.collective != "send-recv":
            yield f"{mention('pairs')}: is for {mention('collective', 'send-recv')}, not {self.collective}"
        yield from exchange_faults(self)
        yield from self.rank_faults(None if self.gpus is None else len(self.gpus))
        yield from unread_faults(self)

    @staticmethod
    def unread(asked: Any) -> Iterator[tuple[str, str]]:
        """Yield the fields that an exchange with the fields of *asked* does not read, and why."""
        if asked.strategy != "nccl":
            yield from ((name, WITHOUT_NCCL) for name in (*OF_NCCL, "gpus_per_process"))
        if asked.collective in SENDING:
            why = f"chooses how a collective goes; {asked.collective} is sends and receives, which have no algorithm"
            yield from ((name, why) for name in OF_NCCL)
        if not is_served(asked.strategy):
            yield "servers", f"is for {mention('strategy', 'parameter-server')}"

    def rank_faults(self, n_ranks: int | None) -> Iterator[str]:
        """Yield what does not go with *n_ranks* GPUs that take part; None: their number is not known yet."""
        if n_ranks is not None and self.root >= n_ranks:
            yield f"{mention('root', self.root)}: the ranks are 0 to {n_ranks - 1}"
        if n_ranks is not None and self.gpus_per_process > n_ranks:
            some = f"{n_ranks} GPUs take part; a process drives 1 to {n_ranks}"
            yield f"{mention('gpus_per_process', self.gpus_per_process)}: {some}"
        size = self.group_size
        if size is not None and (size < 2 or (n_ranks is not None and n_ranks % size)):
            all_of = "the" if n_ranks is None else n_ranks
            yield f"{mention('group_size', size)}: {all_of} GPUs do not make groups of it"
        for first, second in self.pairs:
            if first == second or min(first, second) < 0 or (n_ranks is not None and max(first, second) >= n_ranks):
                most = "" if n_ranks is None else f" 0 to {n_ranks - 1}"
                said = mention("pairs", f"{first}>{second}")
                yield f"{said}: a pair names two of the ranks{most}"

    @property
    def in_switch(self) -> bool:
        """Whether a switch can do the reduction in this type; never for 8-bit integers and fp8."""
        return self.dtype in _IN_SWITCH.get(self.reduction, ())
