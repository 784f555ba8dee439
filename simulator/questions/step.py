"""A step of a network on a machine, :class:`StepQuestion`, and a run of such steps that fails now and then."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from simulator.errors import mention, one_line
from simulator.questions import options as how
from simulator.questions.checks import MOST, WITHOUT_NCCL, Checked, From, exchange_faults, is_served, unread_faults
from simulator.questions.collective import OF_NCCL, Algorithm, Protocol
from simulator.questions.input import InputQuestion
from simulator.questions.layout import REPLICAS, Layout
from simulator.questions.where import TODAY, Software, Where
from simulator.records import dataclass, replace

BUCKET_BYTES = 25 * 2**20  # bucket_cap_mb of PyTorch's DistributedDataParallel
_PACE = From(1, 100)  # times as long as others
_OF_SERVERS = {"staleness": "others wait for all", "lost": f"others go on from a checkpoint ({mention('mtbf_s')})"}
_OF_SHARDS = {
    "prefetches": ((1, 2, 3), f"is for {mention('layout', 'fsdp')}, or zero=1 or 2"),
    "sums_whole": ((1, 2), f"is for {mention('layout', 'zero=2')} or zero=1, whose gradients are scattered"),
    "gathers_in_fp32": ((3,), f"is for {mention('layout', 'fsdp')}, whose parameters are gathered"),
    "gathers_again": ((3,), f"is for {mention('layout', 'fsdp')}, whose parameters are gathered"),
    "flat_parameters": ((3,), f"is for {mention('layout', 'fsdp')}, whose parameters are gathered"),
}
_OF_RECOMPUTED = {"gathers_again": ((), f"is about blocks that run again; add {mention('recompute')}")}
_OF_LOOP = ("strategy", *OF_NCCL)
Offload = Literal["none", "optimizer", "optimizer+parameters"]
OffloadTo = Literal["host", "nvme"]
_HAS_NO_HOST_UPDATE = ("none", *how.NOT_IN_TORCH)  # optimisers that no library runs on the host for a GPU
_OF_FORMAT = ("sums_in_fp32", "sums_whole", "gathers_in_fp32", "gathers_again", "flat_parameters")
EXCHANGING = ("strategy", "layout", "bucket_bytes", *_OF_FORMAT, "bucket_views", "divided", "contention", *OF_NCCL)
"""Fields of a step that are about its exchanges."""


@dataclass(frozen=True, slots=True)
class CheckpointQuestion(Checked):
    """A run that fails once in ``mtbf_s`` on average, and resumes from its last checkpoint.

    ``every_steps``: steps between checkpoints; None: the best interval.  ``write_s``: seconds to write a checkpoint,
    during which training stops; None: the time of the first disk.  ``restart_s``: seconds from a failure to the first
    step.
    """

    mtbf_s: Annotated[float, From(0, above=True)]
    every_steps: Annotated[int, From(1)] | None = None
    write_s: Annotated[float, From(0, above=True)] | None = None
    restart_s: Annotated[float, From(0)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepQuestion(Checked):
    """The time of a step in which each replica computes ``micro_batches`` of ``batch`` samples.

    A replica is one device, or several that divide the network among them (``layout``).  Fields are the options of the
    command (docs/options.md, docs/steps.md, docs/parallel.md); more of some:

    - ``sizes``: sizes of a zoo network that differ from its defaults: ``sequence_length``, ``image``, ``layers``,
      ``attention``, ..., and ``loss`` (0: no cross-entropy at the end).
    - ``device``: one device of the machine; by default its ``gpus``, counted from 0, or all of these.
    - ``strategy``: the strategy that exchanges gradients or shards; exchanges within layers use NCCL.
    - ``bucket_bytes``: 0: computing waits.  Shards of parameters (``zero=3``) are exchanged unit by unit.
    - ``flat_parameters``: with ``zero=3``, a unit's parameters are views of one tensor, which is gathered (FSDP1, XLA);
      otherwise, since PyTorch 2.6, they are copied out of it, and gradients into what is scattered (FSDP2).
    - ``sums_in_fp32``, ``gathers_in_fp32``: shards' 16-bit gradients are summed, and autocast's parameters gathered, in
      four bytes an element.
    - ``sums_whole``: with ``zero=1`` and 2, gradients are all-reduced, of which a rank keeps a shard (DeepSpeed).
    - ``gathers_again``: with ``zero=3``, a block that runs again gathers its parameters once more.
    - ``bucket_views``: gradients are parts of DDP's buckets, and not copied out of them.
    - ``prefetches``: with ``zero=3``, the next unit of the backward pass is gathered while one computes (BACKWARD_PRE),
      otherwise after it; ``deepspeed-zero3`` then exchanges nothing in either pass while one computes, as a fetch
      waits for the device (until 0.5.9: stage3.py, ``_synchronize_communication``).  With ``zero=1`` and 2,
      parameters are gathered during the next step, otherwise after the update.
    - ``contention``: concurrent computation and communication slow each other, gradients are copied into and out of
      buckets, shards out of what was gathered, and all ranks wait for the slowest; otherwise everything runs as if
      alone, on equal devices.
    - ``stragglers``: a GPU, or a node with all its GPUs, that takes *factor* (1 to 100) times as long as others of its
      part.
    - ``staleness``: with parameter servers, the steps that a worker may be ahead of the slowest; None: nobody waits.
    - ``divided``: the samples (``batch`` per GPU, and ``remainder`` of all together) are divided among replicas and
      ``helpers``, which are CPUs, so that all finish together, not evenly.
    - ``lost``: a CPU whose server fails, and the time in seconds of the failure after the start of a step.
    - ``threads``: of a CPU that computes; None: one per core.  ``epoch_samples``: of an epoch, whose time is also told.
    - ``programs``: processes that share one GPU, which runs one of them at a time.
    - ``round_robin``, ``bind_cores``: of what is offloaded: parameters go round the ranks, which copy gradients to the
      host together; each rank has its share of the host's cores, and without that several ranks are refused.

    Raises InputError for what the command refuses, in its words.
    """

    topic: ClassVar[Literal["step"]] = "step"

    where: Where
    workload: str
    batch: Annotated[int, From(1, MOST)]
    sizes: how.NetworkSizes = ()
    options: how.StepOptions = how.USUAL
    micro_batches: Annotated[int, From(1, MOST)] = 1
    device: str | None = None
    gpus: tuple[int, ...] | None = None
    layout: Layout = REPLICAS
    strategy: str = "nccl"
    algorithm: Algorithm | None = None
    protocol: Protocol | None = None
    nvls: bool = True
    bucket_bytes: Annotated[float, From(0)] = BUCKET_BYTES
    sums_in_fp32: bool = False
    sums_whole: bool = False
    gathers_in_fp32: bool = False
    gathers_again: bool = False
    flat_parameters: bool = False
    bucket_views: bool = False
    prefetches: bool = True
    contention: bool = True
    threads: Annotated[int, From(1, MOST)] | None = None
    stragglers: tuple[tuple[str, float], ...] = ()
    servers: tuple[str, ...] = ()
    staleness: int | None = 0
    epoch_samples: Annotated[int, From(0)] = 0
    divided: bool = False
    remainder: Annotated[int, From(0)] = 0
    helpers: tuple[str, ...] = ()
    lost: tuple[str, float] | None = None
    checkpoints: CheckpointQuestion | None = None
    input: InputQuestion | None = None
    offload: Offload = "none"
    offload_to: OffloadTo = "host"
    round_robin: bool = False
    bind_cores: bool = False
    programs: Annotated[int, From(1, 64)] = 1
    software: Software = TODAY

    def _faults(self) -> Iterator[str]:
        for name, factor in self.stragglers:
            said = mention("stragglers", one_line(name, 60))
            if not _PACE.least <= factor <= _PACE.most:
                within = f"must be between {_PACE.least}x and {_PACE.most}x, times as long"
                yield f"{said}: {within}; got {factor:g}x"
        if self.lost is not None and not 0.0 < self.lost[1] < math.inf:
            said = mention("lost", one_line(self.lost[0], 60))
            yield f"{said}: must fail later than 0 s in a step; got {self.lost[1]:g} s"
        if self.staleness is not None and self.staleness < 0:
            yield f"{mention('staleness', self.staleness)}: must be at least 0, or async"
        if self.helpers and not self.divided:
            yield f"{mention('helpers', ','.join(self.helpers))}: a CPU gets a part of what is divided best"
        if self.remainder and not self.divided:
            yield f"{mention('remainder', self.remainder)}: is a part of what is divided best"
        if self.layout.zero == 3 and self.options.framework == "paddle":
            yield f"{mention('framework', 'paddle')}: its stage 3 is not modelled; take {mention('layout', 'zero=2')}"
        if self.options.framework == "megatron" and how.said_of(self.sizes, "expert_kernels") == "scatter":
            yield f"{mention('sizes', 'expert_kernels=scatter')}: Megatron-LM has no such kernels; grouped is its own"
        if self.programs > 1 and self.input is not None:
            yield f"{mention('input')}: applies to one program; leave out {mention('programs')}"
        if self.offload != "none":
            yield from self._offload_faults()
        adds = self.micro_batches > 1 and self.layout.zero < 2 and self.options.has_backward
        if self.options.accumulation == "fp32" and not adds:
            several = mention("micro_batches", 4)
            why = f"is about gradients of several micro-batches ({several}), which zero=2 and fsdp scatter"
            yield f"{mention('accumulation')}: {why}"
        yield from self._update_faults()
        shards, one_process = self.layout.zero == 3, self.one_process
        yield from how.nf4_faults(self.sizes, self.options, shards=shards, one_process=one_process)
        yield from how.loss_faults(self.sizes, self.options, one_process=one_process)
        if self.layout.sync_bn:
            asked = {"mode": self.options.mode, "framework": self.options.framework, "strategy": self.strategy}
            of_torch = {"mode": ("train",), "framework": ("pytorch", "deepspeed-zero3"), "strategy": ("nccl",)}
            wrong = [mention(name, value) for name, value in asked.items() if value not in of_torch[name]]
            others = {"compiled": self.options.compiled, "divided": self.divided}
            for words in wrong + [mention(name) for name, said in others.items() if said]:
                yield f"{words}: sync_bn trains equal parts with PyTorch over NCCL, not compiled; leave one out"
        yield from exchange_faults(self)
        if self.gpus is not None:
            yield from self.device_faults(len(self.gpus))
        yield from unread_faults(self)

    def _update_faults(self) -> Iterator[str]:
        said = mention("optimizer", self.options.optimizer)
        if self.layout.zero > self.options.most_zero:
            whole = f"takes whole matrices, and {mention('layout', self.layout.words)} shards them"
            yield f"{said}: {whole}; take zero=1, which shares them out"
        if self.has_servers and self.options.optimizer in ("muon", *how.BITSANDBYTES):
            yield f"{said}: updates on GPUs, and parameter servers are CPUs"

    def _offload_faults(self) -> Iterator[str]:
        said, options, layout = mention("offload", self.offload), self.options, self.layout
        if options.mode == "train" and options.optimizer in _HAS_NO_HOST_UPDATE:
            yield f"{said}: {mention('optimizer', options.optimizer)} does not run on the host; adam does"
        if options.framework in ("tensorflow", "paddle", "caffe"):
            yield f"{said}: is DeepSpeed's and PyTorch's, not {mention('framework', options.framework)}"
        if layout.pp > 1 or layout.process != "each":
            yield f"{said}: is not modelled with {mention('layout', layout.words)}"
        if self.programs > 1 or self.divided:
            other = mention("programs", self.programs) if self.programs > 1 else mention("divided")
            yield f"{said}: is not modelled with {other}"
        of_deepspeed = options.framework in ("deepspeed-zero3", "megatron") or self.offload == "optimizer"
        if not of_deepspeed:
            stage_3 = f"{mention('framework', 'deepspeed-zero3')} or {mention('offload', 'optimizer')}"
            yield f"{said}: published steps with FSDP's CPUOffload take twice the predicted time; take {stage_3}"
        if options.optimizer == "adam-loop":
            why = "torch's Adam, tensor by tensor, takes a CPU 1.7 to 1.9 times the predicted time"
            yield f"{said}: {why}; take {mention('optimizer', 'adam')}, DeepSpeed's"
        if self.offload_to == "nvme" and not (of_deepspeed and layout.zero in (0, 3)):
            stage_3 = f"{mention('layout', 'fsdp')} and {mention('framework', 'deepspeed-zero3')}"
            yield f"{mention('offload_to', 'nvme')}: DeepSpeed's stage 3 alone has it; take {stage_3}"

    def device_faults(self, count: int) -> Iterator[str]:
        """Yield what does not go with *count* GPUs that take part."""
        said, fsdp = mention("offload", self.offload), mention("layout", "fsdp")
        if count > 1 and self.offload == "optimizer+parameters" and self.layout.zero < 3:
            yield f"{said}: takes {fsdp}, which shards parameters"
        elif count > 1 and self.offload != "none" and not self.layout.zero:
            allowed = fsdp if self.offload_to == "nvme" else f"{mention('layout', 'zero=2')} or {fsdp}"
            yield f"{said}: takes {allowed}; each rank has a shard on its host"
        if count > 1 and self.programs > 1:
            yield f"{mention('programs')}: applies to one GPU, but {count} take part; take {mention('gpus', 1)}"
        if count > 1 and self.threads is not None and not self.helpers:
            yield f"{mention('threads')}: applies to a CPU; {count} GPUs take part"

    @staticmethod
    def unread(asked: Any) -> Iterator[tuple[str, str]]:
        """Yield the fields that a step with the fields of *asked* does not read, and why."""
        layout, mode, served = asked.layout, asked.options.mode, is_served(asked.strategy)
        alone = asked.device is not None or (asked.gpus is not None and len(asked.gpus) < 2 and not asked.helpers)
        of_replicas, as_mode = f"is for {mention('layout', 'dp')}", mention("mode", mode)
        if mode == "inference" and not alone:
            forward = f"{mention('mode', 'forward')} divides a network over several"
            yield "layout", f"{as_mode} is that of one device; {forward}"
        if alone or mode == "inference":
            none = "one device steps alone" if alone else f"{as_mode} has none"
            of_exchanges = [name for name in (*EXCHANGING, "remainder") if name not in asked_by_host(asked)]
            yield from ((name, f"is about an exchange, and {none}") for name in of_exchanges)
        elif mode == "forward" and layout.has_replicas:
            none = f"is about an exchange, and {as_mode} of replicas has none"
            yield from ((name, none) for name in ("strategy", "bucket_bytes", "bucket_views", "sums_in_fp32", *OF_NCCL))
        if mode != "train":
            updates = f"is about training, and {as_mode} updates nothing"
            yield from ((name, updates) for name in (*_OF_SERVERS, "offload", "checkpoints"))
        whole = f"{of_replicas}; servers keep the parameters of whole replicas"
        yield from ((name, whole) for name in ("servers", *_OF_SERVERS) if not layout.has_replicas)
        if asked.strategy != "nccl" and not layout.divides_network:
            yield from ((name, WITHOUT_NCCL) for name in OF_NCCL)
        if not served:
            through = f"is for {mention('strategy', 'parameter-server')}"
            yield "servers", through
            yield from ((name, f"{through}; {why}") for name, why in _OF_SERVERS.items())
        if not (layout.has_replicas and not served and asked.bucket_bytes and asked.options.framework == "pytorch"):
            buckets = f"{mention('framework', 'pytorch')} and the buckets of {mention('bucket_bytes')}"
            yield "bucket_views", f"{of_replicas} with {buckets}"
        if served or not layout.has_replicas:
            yield from ((name, f"{of_replicas}, with a collective") for name in ("divided", "remainder", "helpers"))
        if layout.zero == 3 or layout.process != "each":
            yield "bucket_bytes", f"{of_replicas}; shards are gathered one unit ahead"
        elif served and asked.bucket_bytes:
            yield "bucket_bytes", "servers exchange key by key, a layer at a time; leave it out or take none"
        if layout.process == "loop":
            yield from ((name, f"of {mention('layout', 'loop')} is a sum on the first GPU") for name in _OF_LOOP)
        if layout.process != "each":
            yield "sums_in_fp32", f"{of_replicas} or fsdp; one process sums as it stores"
            yield "contention", "applies to one process for each GPU"
        optimizer = mention("offload", "optimizer")
        if asked.offload == "none":
            of_offload = f"applies to what is offloaded; add {optimizer}"
            yield from ((name, of_offload) for name in ("offload_to", "bind_cores"))
        if asked.offload == "none" or layout.zero not in (1, 2):
            yield "round_robin", f"is about copies to the host, with {mention('layout', 'zero=2')} and {optimizer}"
        of_shards = _OF_SHARDS if asked.options.recompute == "full" else _OF_SHARDS | _OF_RECOMPUTED
        yield from ((name, why) for name, (stages, why) in of_shards.items() if layout.zero not in stages)

    @property
    def rank_options(self) -> how.StepOptions:
        """The options of a rank's work: to gradients that leave it after every micro-batch it adds at no cost."""
        leave = self.layout.zero > 1 or (self.offload != "none" and self.layout.zero != 1)
        return replace(self.options, accumulation="product") if leave else self.options

    @property
    def sum_of_shards(self) -> Literal["all-reduce", "reduce-scatter"]:
        """The collective that sums gradients of which a rank keeps a shard."""
        whole = self.sums_whole or self.options.optimizer == "muon"  # LayerWiseDistributedOptimizer of Megatron-LM
        return "all-reduce" if whole else "reduce-scatter"

    @property
    def loss_way(self) -> int | str:
        """How the cross-entropy is computed; ``plain`` is torch's own."""
        return how.said_of(self.sizes, "cross_entropy")

    @property
    def one_process(self) -> bool:
        """Whether one process launches for all GPUs."""
        return self.layout.process != "each"

    @property
    def has_servers(self) -> bool:
        """Whether replicas exchange through parameter servers, key by key."""
        return is_served(self.strategy) and self.layout.has_replicas and self.options.mode == "train"

    def exchanges_by(self, n_ranks: int) -> str | None:
        """Return the strategy by which *n_ranks* devices exchange; None if they exchange nothing, or through servers.

        Gradients and shards go by ``strategy``, exchanges within a divided network by NCCL.  Raises InputError if the
        layout does not fit so many.
        """
        if n_ranks == 1 or self.has_servers:
            return None
        alike = n_ranks // self.layout.on(n_ranks).model_ranks * self.layout.cp  # ranks with the same parameters
        if alike > 1 and (self.layout.zero == 3 or self.options.has_backward):
            return self.strategy
        return "nccl" if self.layout.divides_network else None

    @property
    def forced(self) -> str:
        """What replaces NCCL's own choice, in words after a space; empty if nothing does."""
        said = filter(None, (self.algorithm, self.protocol, "" if self.nvls else "no NVLS"))
        words = ", ".join(said).replace("_", " ")
        return f" ({words})" if words else ""

    @property
    def way(self) -> str:
        """How several devices exchange, in a few words that begin with the strategy."""
        return self._way(self.strategy)

    @property
    def called(self) -> str:
        """How several devices divide a step, as the field says it: DDP, HSDP, TP=8; NCCL goes without saying."""
        return self._way("" if self.strategy == "nccl" else self.strategy)

    def _way(self, strategy: str) -> str:
        host = "" if self.offload == "none" else f", {self.offload.replace('+', ' and ')} on the host"
        return self._divided(strategy) + host + self.forced

    def _divided(self, strategy: str) -> str:
        layout = self.layout
        if self.has_servers:
            words = {0: self.strategy, None: f"{self.strategy}, asynchronous"}
            found = words.get(self.staleness, f"{self.strategy}, staleness {self.staleness}")
            return found if self.bucket_bytes else f"{found} without overlap"
        if layout.process != "each":
            over = f"nn.DataParallel{f' over {strategy}' if strategy else ''}"
            return "one Python loop, gradient by gradient" if layout.process == "loop" else over
        parts = ", ".join(_parts(layout, short=bool(strategy)))
        way = f"{strategy} with {parts}" if parts and strategy else parts or strategy or "DDP"
        if self.bucket_bytes == BUCKET_BYTES or layout.zero == 3:
            return way
        size = f"{self.bucket_bytes / 2**20:g} MiB"
        return f"{way} with buckets of {size}" if self.bucket_bytes else f"{way} without overlap"


def asked_by_host(asked: Any) -> tuple[str, ...]:
    """Return the fields about exchanges that *asked* reads on one device, too: buckets in which gradients leave it."""
    return ("bucket_bytes",) if asked.offload == "optimizer" else ()


def _parts(layout: Layout, *, short: bool) -> list[str]:
    """Return how *layout* divides a step, in words that tell it from others; not *short*: as its row is called."""
    found = [
        f"{axis.upper()}{' ' if short else '='}{n}"
        for axis in ("tp", "pp", "cp", "ep", "vp")
        if (n := getattr(layout, axis)) > 1
    ]
    found += [f"blocks {'-'.join(map(str, layout.blocks))}"] if layout.blocks else []
    found += [f"ETP {layout.etp}"] if layout.etp not in (None, layout.tp) else []
    found += ["SP"] if layout.sp else []
    found += ["TP overlap"] if layout.tp_overlap else []
    found += [f"CP by {layout.cp_comm}"] if layout.cp_comm != REPLICAS.cp_comm else []
    found += [f"CP heads {layout.cp_a2a}"] if layout.cp_a2a > 1 else []
    found += [f"EP by {layout.ep_comm}"] if layout.ep_comm != REPLICAS.ep_comm else []
    found += ["flex"] if layout.flex else []
    found += ["EP overlap"] if layout.ep_overlap else []
    found += ["weights' gradients late"] if layout.delay_wgrad else []
    found += ["shared expert beside"] if layout.shared_overlap else []
    found += [layout.schedule] if layout.schedule != REPLICAS.schedule else []
    found += [f"order {'-'.join(layout.order)}"] if layout.order != REPLICAS.order else []
    found += ["SyncBN"] if layout.sync_bn else []
    if layout.zero:
        groups = "" if layout.shards is None else f" over {layout.shards}" if short else f" (groups of {layout.shards})"
        full = "HSDP" if groups and not short else "FSDP"
        found.append(f"{full if layout.zero == 3 else f'ZeRO-{layout.zero}'}{groups}")
    return found


def accumulating(question: StepQuestion, said: how.Accumulation | None) -> StepQuestion:
    """Return *question* with the way its gradients are accumulated: *said*, or by default its framework's."""
    options = question.options
    usual: how.Accumulation = "product" if options.framework == "megatron" else "add"
    adds = question.micro_batches > 1 and options.has_backward
    return replace(question, options=replace(options, accumulation=(said or usual) if adds else "product"))
