"""A step of a network on a machine: :class:`StepQuestion`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from simulator.errors import InputError, one_line
from simulator.questions.checkpoints import CheckpointQuestion
from simulator.questions.input import InputQuestion
from simulator.questions.layout import REPLICAS, Layout
from simulator.questions.options import USUAL, Accumulation, StepOptions
from simulator.questions.where import TODAY, Software, Where

__all__ = ["BUCKET_BYTES", "StepQuestion", "accumulating", "check_loss", "check_straggler"]

BUCKET_BYTES = 25 * 2**20  # bucket_cap_mb of PyTorch's DistributedDataParallel
_MOST = 100.0  # times as long as others


def check_straggler(name: str, factor: float) -> None:
    """Raise InputError if *name* cannot take *factor* times as long as others."""
    if not 1.0 <= factor <= _MOST:
        said = f"--straggler {one_line(name, 60)}"
        raise InputError(f"{said}: must be between 1x and {_MOST:g}x, times as long; got {factor:g}x")


def check_loss(name: str, after_s: float) -> None:
    """Raise InputError if the server on *name* cannot fail *after_s* seconds after the start of a step."""
    if not 0.0 < after_s < math.inf:
        raise InputError(f"--lose {one_line(name, 60)}: must fail later than 0 s in a step; got {after_s:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuestion:
    """The time of a step in which each replica computes ``micro_batches`` of ``batch`` samples.

    A replica is one device, or several that divide the network among them (``layout``).

    Parameters
    ----------
    workload : str
        A network of the zoo, a YAML file of layers, or ``torch:package.module:factory``.
    sizes : tuple of (name, value)
        Sizes of a zoo network that differ from its defaults: ``sequence_length``, ``image``, ``layers``, ``attention``,
        ..., and ``loss`` (0: no cross-entropy at the end).
    device : str, optional
        One device of the machine by its name (``gpu0``, ``cpu0``, ``cpu`` for all sockets); by default its GPUs.
    gpus : tuple of int, optional
        GPUs of the machine, counted from 0; all by default.
    layout : Layout
        How several devices divide the work; by default each has a replica of the network.
    strategy : str
        The strategy that exchanges gradients or shards; exchanges within layers use NCCL.
    bucket_bytes : float
        Gradients are exchanged in buckets of this size during the backward pass; 0: all after it.  Shards of parameters
        (``zero=3``) are exchanged unit by unit.
    sums_in_fp32 : bool
        16-bit gradients are summed in fp32.
    prefetches : bool
        With ``zero=3``, the next unit of the backward pass is gathered while one computes (BACKWARD_PRE), otherwise
        after it.  With ``zero=1`` and 2, parameters are gathered during the next step, otherwise after the update.
    contention : bool
        Concurrent computation and communication slow each other, gradients are copied into and out of buckets, and all
        ranks wait for the slowest; otherwise everything runs as if alone, on equal devices.
    threads : int, optional
        Threads of a CPU; by default one per core.
    stragglers : tuple of (name, factor)
        A GPU, or a node with all its GPUs, that takes *factor* (1 to 100) times as long as others of its part.
    servers : tuple of str
        Places of parameter servers, as in :class:`~simulator.questions.collective.CollectiveQuestion`.
    staleness : int, optional
        With parameter servers, the steps that a worker may be ahead of the slowest; 0: all wait for all; None: nobody
        waits.
    epoch_samples : int
        Samples of an epoch; 0: not asked for.
    divided : bool
        The samples (``batch`` per GPU) are divided among replicas so that all finish together, not evenly.
    helpers : tuple of str
        CPUs that also get a part of these samples.
    lost : (name, seconds), optional
        A CPU whose server fails, and the time of the failure after the start of a step.
    checkpoints : CheckpointQuestion, optional
        Failures and checkpoints of a run of such steps.
    input : InputQuestion, optional
        The input pipeline; by default each step finds its samples on the devices.
    programs : int
        Processes that each run such a step on the same GPU, which runs kernels of one process at a time.

    Raises InputError if the factor of a straggler or the time of a loss cannot be.
    """

    where: Where
    workload: str
    batch: int
    sizes: tuple[tuple[str, int | str], ...] = ()
    options: StepOptions = USUAL
    micro_batches: int = 1
    device: str | None = None
    gpus: tuple[int, ...] | None = None
    layout: Layout = REPLICAS
    strategy: str = "nccl"
    bucket_bytes: float = BUCKET_BYTES
    sums_in_fp32: bool = False
    prefetches: bool = True
    contention: bool = True
    threads: int | None = None
    stragglers: tuple[tuple[str, float], ...] = ()
    servers: tuple[str, ...] = ()
    staleness: int | None = 0
    epoch_samples: int = 0
    divided: bool = False
    helpers: tuple[str, ...] = ()
    lost: tuple[str, float] | None = None
    checkpoints: CheckpointQuestion | None = None
    input: InputQuestion | None = None
    programs: int = 1
    software: Software = TODAY

    def __post_init__(self) -> None:
        for name, factor in self.stragglers:
            check_straggler(name, factor)
        if self.lost is not None:
            check_loss(*self.lost)

    @property
    def one_process(self) -> bool:
        """Whether one process launches for all GPUs."""
        return self.layout.process != "each"

    @property
    def has_servers(self) -> bool:
        """Whether replicas exchange through parameter servers, key by key."""
        served = self.strategy.startswith("parameter-server")
        return served and self.layout.has_replicas and self.options.mode == "train"

    def exchanges_by(self, n_ranks: int) -> str | None:
        """Return the strategy by which *n_ranks* devices exchange; None if they exchange nothing, or through servers.

        Gradients and shards go by ``strategy``, exchanges within a divided network by NCCL.  Raises InputError if the
        layout does not fit so many.
        """
        if n_ranks == 1 or self.has_servers:
            return None
        alike = n_ranks // self.layout.on(n_ranks).model_ranks * self.layout.cp  # ranks with the same parameters
        if alike > 1 and (self.layout.zero == 3 or self.options.mode in ("train", "backward")):
            return self.strategy
        return "nccl" if self.layout.divides_network else None

    @property
    def way(self) -> str:
        """How several devices exchange, in a few words."""
        layout = self.layout
        if self.has_servers:
            words = {0: self.strategy, None: f"{self.strategy}, asynchronous"}
            found = words.get(self.staleness, f"{self.strategy}, staleness {self.staleness}")
            return found if self.bucket_bytes else f"{found} without overlap"
        if layout.process == "loop":
            return "one Python loop, gradient by gradient"
        if layout.process == "dataparallel":
            return f"nn.DataParallel over {self.strategy}"
        parts = ", ".join(_parts(layout))
        way = f"{self.strategy} with {parts}" if parts else self.strategy
        if self.bucket_bytes == BUCKET_BYTES or layout.zero == 3:
            return way
        return (
            f"{way} with buckets of {self.bucket_bytes / 2**20:g} MiB"
            if self.bucket_bytes
            else f"{way} without overlap"
        )


def _parts(layout: Layout) -> list[str]:
    """Return how *layout* divides a step, in words that tell it from all others for as many ranks."""
    found = [f"{axis.upper()} {n}" for axis in ("tp", "pp", "cp", "ep", "vp") if (n := getattr(layout, axis)) > 1]
    found += [f"ETP {layout.etp}"] if layout.etp not in (None, layout.tp) else []
    found += ["SP"] if layout.sp else []
    found += ["TP overlap"] if layout.tp_overlap else []
    found += ["flex"] if layout.flex else []
    found += [layout.schedule] if layout.schedule != REPLICAS.schedule else []
    found += [f"order {'-'.join(layout.order)}"] if layout.order != REPLICAS.order else []
    if layout.zero:
        shards = "" if layout.shards is None else f" over {layout.shards}"
        found.append(f"FSDP{shards}" if layout.zero == 3 else f"ZeRO-{layout.zero}{shards}")
    return found


def accumulating(question: StepQuestion, said: Accumulation | None) -> StepQuestion:
    """Return *question* with the way its gradients are accumulated: *said*, or by default its framework's.

    If gradients are scattered after every micro-batch, each rank accumulates only a shard, whose cost is neglected.
    """
    options, parts = question.options, question.micro_batches > 1 and question.layout.zero < 2
    usual: Accumulation = "product" if options.framework == "megatron" else "add"
    how = (said or usual) if parts and options.mode in ("train", "backward") else "product"
    return replace(question, options=replace(options, accumulation=how))
