"""A step of a network on a machine: :class:`StepQuestion`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.questions.checkpoints import CheckpointQuestion
from simulator.questions.input import InputQuestion
from simulator.questions.layout import REPLICAS, Layout
from simulator.questions.options import USUAL, Accumulation, StepOptions
from simulator.questions.where import TODAY, Software, Where

__all__ = ["BUCKET_BYTES", "StepQuestion", "accumulating"]

BUCKET_BYTES = 25 * 2**20  # bucket_cap_mb of PyTorch's DistributedDataParallel


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuestion:
    """How long a step takes in which each replica computes ``micro_batches`` of ``batch`` samples.

    A replica is a device, or those that divide the network between them (``layout``).

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
    layout : Layout
        How several divide the work; otherwise each has a replica of the network.
    strategy : str
        How they exchange gradients, or shards; what is divided within layers goes by NCCL.
    bucket_bytes : float
        Gradients are exchanged in buckets of so many bytes while the backward pass goes on; 0: all after it.  Shards of
        parameters (``zero=3``) go unit by unit.
    sums_in_fp32 : bool
        Gradients of 16 bits are summed in fp32.
    prefetches : bool
        Of ``zero=3``: backward, the next unit is gathered while one computes (BACKWARD_PRE); else after it.  Of
        ``zero=1`` and 2: parameters are gathered while the next step computes; else after the update.
    contention : bool
        What computes and what exchanges at the same time slow each other, gradients are copied into buckets and out
        of them, and all wait for the slowest rank; otherwise each runs as if alone, on equal devices.
    threads : int, optional
        Of a CPU; one for each core otherwise.
    stragglers : tuple of (name, factor)
        A GPU, or a node with all its GPUs, whose devices take so many times as long as others of their part.
    servers : tuple of str
        Where parameter servers stand, as :class:`~simulator.questions.collective.CollectiveQuestion` has it.
    staleness : int, optional
        Of parameter servers: a worker goes on while it is no more than so many steps ahead of the slowest; 0: all
        wait for all; None: nobody waits for others.
    epoch_samples : int
        Samples of an epoch; 0: nobody asks.
    divided : bool
        Of replicas: ``batch`` samples for each GPU are divided so that all finish together, not evenly.
    helpers : tuple of str
        CPUs that get a part of them too.
    lost : (name, seconds), optional
        A CPU with a server on it that is gone so long after the start of a step.
    checkpoints : CheckpointQuestion, optional
        Failures and checkpoints of a run of such steps.
    input : InputQuestion, optional
        Where the samples come from; otherwise each step finds them on its devices.
    programs : int
        Processes that each do such a step on one GPU, which runs kernels of one of them at a time.
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

    @property
    def one_process(self) -> bool:
        """Whether one process feeds all GPUs."""
        return self.layout.process != "each"

    @property
    def has_servers(self) -> bool:
        """Whether replicas exchange through parameter servers, key by key."""
        served = self.strategy.startswith("parameter-server")
        return served and self.layout.has_replicas and self.options.mode == "train"

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
        divided = [f"{axis.upper()} {n}" for axis in ("tp", "pp", "cp", "ep") if (n := getattr(layout, axis)) > 1]
        divided += [f"ETP {layout.etp}"] if layout.etp not in (None, layout.tp) else []
        shards = ["FSDP" if layout.zero == 3 else f"ZeRO-{layout.zero}"] if layout.zero else []
        parts = ", ".join([*divided, *shards])
        way = f"{self.strategy} with {parts}" if parts else self.strategy
        if self.bucket_bytes == BUCKET_BYTES or layout.zero == 3:
            return way
        return (
            f"{way} with buckets of {self.bucket_bytes / 2**20:g} MiB"
            if self.bucket_bytes
            else f"{way} without overlap"
        )


def accumulating(question: StepQuestion, said: Accumulation | None) -> StepQuestion:
    """Return *question* with how gradients of its micro-batches are added up: as *said*, else as its framework does it.

    Where gradients are scattered in every micro-batch, each rank adds up a shard of them, which is left out.
    """
    options, parts = question.options, question.micro_batches > 1 and question.layout.zero < 2
    usual: Accumulation = "product" if options.framework == "megatron" else "add"
    how = (said or usual) if parts and options.mode in ("train", "backward") else "product"
    return replace(question, options=replace(options, accumulation=how))
