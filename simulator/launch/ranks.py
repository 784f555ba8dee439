"""The processes that a launcher or the program starts, how they divide the step, and what the line says in all."""

import re
from collections.abc import Sequence

from simulator.errors import InputError, nearest, one_line
from simulator.launch.arguments import ARGUMENTS, KNOWN, Arguments, is_off, reasons, spelt_flag
from simulator.launch.command import Command
from simulator.launch.settings import DeepSpeed
from simulator.launch.slurm import batch_arguments, gpus_per_node
from simulator.launch.visible import EVERY_GPU, VisibleGpus, read_hosts, visible_gpus, written_gpus
from simulator.launch.words import COMMANDS, Word
from simulator.records import dataclass, field, replace

_EACH, _ALL = ARGUMENTS["of_each_node"], ARGUMENTS["of_all"]
SHARDED = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""The stage of ZeRO of each of Megatron-FSDP's ``--data-parallel-sharding-strategy``."""
_BUCKET_ELEMENTS = 40_000_000  # Megatron-LM's DistributedDataParallelConfig: the larger of this
_BUCKET_EACH = 1_000_000  # and of this times the data-parallel ranks
_CP_COMM = {"p2p": "p2p", "a2a": "a2a", "all_gather": "all_gather", "allgather": "all_gather"}
_BOTH = "a2a+p2p"
_COUNTED = re.compile(r"[`(].*(?:device_count|nvidia-smi|rocm-smi|amd-smi)")  # by a command in a script
_BLOCKING = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
_EXPANDABLE = re.compile(r"(?:^|,)\s*expandable_segments\s*:\s*true\s*(?:,|$)", re.IGNORECASE | re.ASCII)
_KNOWN = KNOWN["variables"]


@dataclass(frozen=True, slots=True)
class LaunchRanks:
    """Nodes, processes per node, and processes in total; None if unknown.  ``visible`` are the GPUs that they see."""

    nodes: int | None = None
    each: int | None = None
    whole: int | None = None
    visible: VisibleGpus = EVERY_GPU

    @property
    def first(self) -> "LaunchRanks":
        """The one process of a program that no launcher starts."""
        return LaunchRanks(1, 1, 1, self.visible)


def read_ranks(command: Command, launcher: Arguments, comments: Sequence[Word], own: int | None) -> LaunchRanks:
    """Return the ranks that *launcher* or ``#SBATCH`` lines start; by default one for each of *own* visible GPUs."""
    outer, batch = Arguments(command.outer, launcher.file), batch_arguments(comments, launcher.file)
    is_mpi = any(word.name in COMMANDS["of_mpi"] for word in command.launcher)
    visible = visible_gpus(launcher, command, own)
    whole = launcher.number(*_ALL)
    if is_mpi and not visible.gpus and (slots := read_hosts(launcher)):
        there = sum(slots.values())
        if whole is not None and whole > there:
            launcher.fault(launcher.given(*_ALL), f"{whole} processes, and the host file has {there} slots")
        filled, left = [], there if whole is None else whole
        for count in slots.values():  # mpirun fills the slots of one host after the other
            if left > 0:
                filled.append(tuple(range(min(count, left))))
                left -= count
        visible = VisibleGpus(tuple(filled), "the host file", len(filled))
    nodes = visible.hosts or _nodes(launcher, is_mpi=is_mpi) or outer.number(*ARGUMENTS["nodes"])
    for name in _EACH:
        said = launcher.text(name) or ""
        if said in ("gpu", "auto") or _COUNTED.search(said):  # all visible GPUs of the node
            if visible.each is None:
                return LaunchRanks(nodes, visible=visible)
            return _completed(nodes, visible.each, None, launcher, visible)
    placed = launcher.text("map-by") if is_mpi and "map-by" in launcher else None
    of_node = re.fullmatch(r"ppr:(\d{1,6}):node.*", placed or "")
    each = (int(of_node[1]) if of_node else None) or (launcher.number("N") if is_mpi else None)
    each = each or launcher.number(*_EACH)
    if each is None and visible.of_launcher and "num-processes" not in launcher:
        each = visible.each
    if not (nodes or whole):
        nodes = batch.number("nodes", "N")
    if not (each or whole):  # None: all GPUs of a node have a process
        if command.starter in COMMANDS["start_one_unless_told"]:
            each = 1
        elif command.starter:
            each = visible.each or gpus_per_node(batch)
        else:
            each = batch.number("ntasks-per-node") or gpus_per_node(batch) or visible.each
    launcher.faults += [*batch.faults, *outer.faults]
    if each is None and len(visible.gpus) > 1:  # hosts with unlike numbers
        whole = sum(map(len, visible.gpus))
    ranks = _completed(nodes, each, whole, launcher, visible)
    few = min(visible.gpus, key=len, default=())
    if ranks.each is not None and few and ranks.each > len(few):
        name = next((name for name in (*_EACH, *_ALL) if name in launcher), "processes")
        shown = f"{len(few)} GPU{'s' if len(few) != 1 else ''}"
        launcher.fault(name, f"{ranks.each} on a machine, and {visible.said} shows {shown}")
    return ranks


def _completed(
    nodes: int | None, each: int | None, whole: int | None, launcher: Arguments, visible: VisibleGpus
) -> LaunchRanks:
    if nodes is None and each is not None and whole is not None and whole % each == 0:
        nodes = whole // each
    if nodes is None and each is None and "num-processes" in launcher:  # Accelerate's default is one machine
        nodes, each = 1, whole
    if nodes is None and each is not None and whole is None:
        nodes = 1
    if whole is None and nodes is not None and each is not None:
        whole = nodes * each
    unlike = len(visible.gpus) > 1 and visible.each is None
    if each is None and nodes is not None and whole is not None and whole % nodes == 0 and not unlike:
        each = whole // nodes
    return LaunchRanks(nodes, each, whole, visible)


def _nodes(launcher: Arguments, *, is_mpi: bool) -> int | None:
    hosts = next((launcher.value(name) for name in ARGUMENTS["hosts"] if name in launcher), None)
    if hosts is not None and is_mpi:
        launcher.has(*ARGUMENTS["hosts"])
        return len({host.partition(":")[0] for host in hosts.split(",")})
    elastic = re.fullmatch(r"\d{1,9}:(\d{1,9})", launcher.value("nnodes") or "")
    if elastic is not None and int(elastic[1]):
        launcher.has("nnodes")
        return int(elastic[1])
    return launcher.number(*(name for name in ARGUMENTS["nodes"] if name != "N" or not is_mpi))


def started_ranks(command: Command, args: Arguments, ranks: LaunchRanks) -> LaunchRanks:
    """Return *ranks*, or those that the program starts itself (``--devices 4``) where no launcher does."""
    of_batch = ranks.nodes is not None or ranks.whole is not None
    only_shown = bool(ranks.visible.gpus) and ranks.nodes == 1
    if command.starter or (of_batch and not only_shown) or ("num-layers" in args and "devices" not in args):
        return ranks
    for name in ARGUMENTS["devices"]:
        said = args.value(name) or ""
        listed = re.fullmatch(r"\d+(,\d+)+", said) is not None
        if listed or re.fullmatch(r"[1-9]\d{0,5}", said):
            args.has(name, "num-nodes")
            chosen = tuple(map(int, said.split(","))) if listed else tuple(range(int(said)))
            nodes, visible = args.number("num-nodes") or 1, ranks.visible
            if len(set(chosen)) < len(chosen):
                args.fault(name, f"{one_line(said, 40)}: a GPU is named twice")
            elif listed or visible.gpus:
                try:
                    visible = visible.among(chosen, f"{spelt_flag(name)} {one_line(said, 40)}")
                except InputError as error:
                    args.fault(name, error.faults[0].message.partition(f"{spelt_flag(name)} ")[2])
            return LaunchRanks(nodes, len(chosen), nodes * len(chosen), visible)
    if args.has("multiprocessing-distributed"):
        return ranks
    if command.program.endswith(".py") and not command.launcher and not only_shown:
        args.notes.append("the line starts one process: simulated with one for each GPU; for one GPU, add --gpus 1")
    return ranks


@dataclass(slots=True)
class LaunchDegrees:
    """Degrees of parallelism; ``dp`` is None if the number of ranks is unknown."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    dp: int | None = None
    more: list[str] = field(default_factory=list)
    zero: int = 0
    shards: int | None = None  # ranks that hold one full set; None: all

    @property
    def words(self) -> str:
        """The value of ``--parallel``."""
        said = [f"{name}={n}" for name, n in (("tp", self.tp), ("pp", self.pp), ("cp", self.cp)) if n > 1]
        said += [f"dp={self.dp}"] if self.dp is not None else []
        over = self.shards if self.shards != (self.dp or 0) * self.cp else None
        said += self.more
        if self.zero == 3:
            said.append("fsdp" if over is None else f"fsdp={over}")
        elif self.zero:
            said += [f"zero={self.zero}"] + ([] if over is None else [f"shards={over}"])
        return ",".join(said) or "dp"


def read_layout(args: Arguments, ranks: LaunchRanks, deepspeed: DeepSpeed) -> LaunchDegrees:
    """Return the division of *args* over *ranks*; virtual stages are added later, when the layers are known."""
    found = LaunchDegrees(
        tp=args.number("tensor-model-parallel-size", "model-parallel-size", "tensor-parallel-size") or 1,
        pp=args.number("pipeline-model-parallel-size", "pipeline-parallel-size") or 1,
        cp=args.number("context-parallel-size") or 1,
    )
    model = found.tp * found.pp * found.cp
    if ranks.whole is not None:
        if ranks.whole % model:
            name = next((n for n in args if n.endswith("model-parallel-size")), "tensor-model-parallel-size")
            degrees = f"tp={found.tp} x pp={found.pp} x cp={found.cp}"
            args.fault(name, f"{degrees} is {model} ranks, and the launcher starts {ranks.whole}, no multiple of them")
        else:
            found.dp = ranks.whole // model
    ways = dict.fromkeys((args.value("cp-comm-type") or "p2p").split())  # one for all layers, or one for each
    for each in ways:
        if each != _BOTH and each not in _CP_COMM:
            args.fault("cp-comm-type", f"'{one_line(each, 40)}' is no such way; {nearest(each, [*_CP_COMM, _BOTH])}")
    said = next(iter(ways)) if len(ways) == 1 else ""
    comm = _CP_COMM[said] if said in _CP_COMM and args.has("cp-comm-type") else "p2p"  # others stay unread
    is_both = said == _BOTH and args.has("cp-comm-type")
    of_heads = _of_heads(args, found.cp) if is_both and found.cp > 1 else 1
    experts = args.number("expert-model-parallel-size", "moe-expert-parallel-size") or 1
    way = args.choice(("allgather", "alltoall", "flex", "alltoall_seq"), "moe-token-dispatcher-type")
    has_flex = experts > 1 and (args.has("moe-enable-deepep") or way == "flex")
    has_shared = "moe-shared-expert-intermediate-size" in args and args.has("moe-shared-expert-overlap")
    of_expert = args.number("expert-tensor-parallel-size")
    has_etp = "num-experts" in args and of_expert not in (None, found.tp)  # default: --tensor-model-parallel-size
    has_sp = args.has("sequence-parallel") and found.tp > 1
    is_default = way is None and "num-experts" in args and not (deepspeed.is_there or has_flex)
    asks = way == "allgather" or (is_default and (has_sp or found.tp == 1))
    gathers = asks and experts * (of_expert or found.tp) > 1
    if gathers:
        _check_gathering(args, has_shared=has_shared)
    words = {
        f"cp_comm={comm}": comm != "p2p" and found.cp > 1,
        f"cp_a2a={of_heads}": of_heads > 1,
        f"ep={experts}": experts > 1,
        "ep_comm=all_gather": gathers,
        "flex": has_flex,
        "shared_overlap": has_shared and experts > 1,
        f"etp={of_expert}": has_etp,
        "sp": has_sp,
        "tp_overlap": has_sp and args.has("tp-comm-overlap"),
        "schedule=gpipe": args.value("pp-engine") == "afab" and args.has("pp-engine") and found.pp > 1,  # nanotron's
        "sync_bn": args.flag("sync-bn", "syncbn", "sync-batchnorm", "sync-batch-norm") and ranks.whole != 1,
        "order=tp-cp-pp-dp": args.has("use-tp-pp-dp-mapping"),
    }
    found.more += [word for word, is_said in words.items() if is_said]
    _read_shards(args, deepspeed, found)
    if found.zero < 2 and args.has("overlap-moe-expert-parallel-comm") and experts > 1:
        found.more += ["ep_overlap", "delay_wgrad"] if args.has("delay-wgrad-compute") else ["ep_overlap"]
    return found


def _of_heads(args: Arguments, cp: int) -> int:
    """Return how many ranks of a sequence exchange heads; the second size is that of the rings between them."""
    name = "hierarchical-context-parallel-sizes"
    sizes = [int(each) for each in re.findall(r"\d{1,6}", args.text(name) or "")]
    if len(sizes) == 2 and sizes[0] * sizes[1] == cp:
        return sizes[0]
    why = f"'{one_line(args.value(name) or '', 40)}' are not two sizes whose product is --context-parallel-size {cp}"
    args.fault(name, why if name in args else f"is missing; --cp-comm-type {_BOTH} needs two sizes")
    return 1


def _check_gathering(args: Arguments, *, has_shared: bool) -> None:
    """Add what Megatron-LM refuses where tokens are gathered (transformer_config.py), which is its default."""
    if (args.text("moe-router-dtype") or "none").lower() != "none":
        args.notes.append("--moe-router-dtype: is not modelled with allgather; experts' results are summed in 16 bits")
    for name in ("overlap-moe-expert-parallel-comm", *(["moe-shared-expert-overlap"] if has_shared else [])):
        if args.has(name):
            args.fault(name, "goes with --moe-token-dispatcher-type alltoall; by default tokens are gathered")


def _read_shards(args: Arguments, deepspeed: DeepSpeed, found: LaunchDegrees) -> None:
    layer_wise = args.has("use-layer-wise-distributed-optimizer") or args.value("optimizer") == "dist_muon"
    found.zero = int(args.has("use-distributed-optimizer") or layer_wise)
    stage = args.number("zero-stage", least=0)
    if args.has("use-torch-fsdp2"):
        found.zero = 2 if args.has("torch-fsdp2-no-reshard-after-forward") else 3
    strategy = args.choice(tuple(SHARDED), "data-parallel-sharding-strategy") or "no_shard"
    if args.has("use-megatron-fsdp", "use-custom-fsdp"):  # which alone reads it
        found.zero = SHARDED[strategy]
    if stage is not None:
        found.zero = min(stage, 3)
    if deepspeed.zero is not None:
        found.zero = deepspeed.zero
        found.shards = deepspeed.shards if found.zero == 3 else None
    if "num-layers" in args and deepspeed.precision == "master-bf16" and not found.zero:
        found.zero, deepspeed.in_fp32, deepspeed.sums_whole = 1, True, True  # deepspeed/runtime/bf16_optimizer.py
    copies = args.number("num-distributed-optimizer-instances") or 1
    if copies > 1 and found.zero and found.dp is not None:  # of all ranks with the same parameters (parallel_state.py)
        whole = found.dp * found.cp
        if whole % copies:
            args.fault("num-distributed-optimizer-instances", f"{copies} do not divide {whole} ranks")
        else:
            found.shards = whole // copies


def read_overlap(
    args: Arguments, layout: LaunchDegrees, precision: str | None, deepspeed: DeepSpeed
) -> dict[str, str | bool]:
    """Return the options for the format of gradient exchanges and their overlap with the backward pass."""
    overlaps, gathers = args.has("overlap-grad-reduce"), args.has("overlap-param-gather")
    said = args.number("ddp-bucket-size")
    narrow, wide = args.has("grad-reduce-in-bf16"), args.has("accumulate-allreduce-grads-in-fp32")
    of_megatron = "num-layers" in args
    wide = not narrow and (wide or (of_megatron and args.has("bf16")))  # Megatron-LM sets it with --bf16
    options: dict[str, str | bool] = {}
    if wide and precision not in (None, "fp32"):
        options["reduce_fp32"] = True
    element_bytes = 4 if wide or precision in (None, "fp32") else 2
    elements = said or max(_BUCKET_ELEMENTS, _BUCKET_EACH * (layout.dp or 1) * layout.cp)
    if deepspeed.is_there and layout.zero < 3:  # the copy of each bucket is waited for
        overlaps = layout.pp == 1 and (deepspeed.overlap or deepspeed.offload != "none")
        elements, gathers = deepspeed.bucket, False  # parameters are gathered after the update
        options |= {"reduce_whole": True} if layout.zero and deepspeed.sums_whole else {}
        options |= {"accumulate": "fp32", "reduce_fp32": True} if deepspeed.in_fp32 else {}
    elif not of_megatron or layout.zero == 3 or layout.dp == layout.cp == 1:
        return options
    elif gathers and not overlaps:  # which Megatron-LM refuses (training/arguments.py, validate_args)
        args.notes.append("--overlap-grad-reduce: not given; neither gradients nor parameters overlap with computing")
    n_bytes = elements * element_bytes
    bucket = f"bucket:{n_bytes // 10**6}MB" if n_bytes % 10**6 == 0 else f"bucket:{n_bytes}B"
    if layout.zero and overlaps and not gathers:
        options["prefetch"] = False
    return options | {"overlap": bucket if overlaps else "none"}


@dataclass(slots=True)
class LaunchLine:
    """What a launch line says."""

    options: dict[str, str | bool] = field(default_factory=dict)  # those of ``simulate`` as text, by field
    sizes: dict[str, int | str] = field(default_factory=dict)  # those of ``--set``
    batch: str = ""  # the argument that says the batch
    notes: list[str] = field(default_factory=list)  # a line for each setting that is not simulated
    each: int | None = None  # processes on each of several nodes
    whole: int | None = None  # processes on nobody says how many nodes
    visible: VisibleGpus = EVERY_GPU  # that take part, by machine
    variables: dict[str, str] = field(default_factory=dict)  # the program's
    unknown: str = ""  # an unknown network
    files: list[str] = field(default_factory=list)  # that are not read

    def place(self, ranks: LaunchRanks) -> None:
        """Add the options that say where *ranks* are."""
        gpus = tuple(each[: ranks.each] for each in ranks.visible.gpus)
        self.visible = replace(ranks.visible, gpus=gpus)
        if ranks.nodes is not None and ranks.nodes > 1:
            self.options["nodes"] = str(ranks.nodes)
            self.each = ranks.each
        elif gpus and (ranks.nodes == 1 or ranks.whole is None):
            self.options["gpus"] = written_gpus(gpus[0])
        elif ranks.nodes == 1 and ranks.each is not None:
            self.options["gpus"] = str(ranks.each)
        elif ranks.nodes is None:
            self.whole = ranks.whole

    def take_gpt2(self, sizes: dict[str, int], length: int, batch: tuple[int, int], precision: str) -> None:
        """Add GPT-2 trained alone with Adam, fused GELU; *batch*: that of a step, and of one pass of a process."""
        self.options |= {
            "workload": "gpt2", "precision": precision, "seq_len": str(length), "optimizer": "adam",
            "fused_optimizer": True, "global_batch": str(batch[0]), "micro_batch": str(batch[1]),
        }  # fmt: skip
        self.sizes |= {**sizes, "attention": "fused", "gelu": "fused"}


def read_variables(found: LaunchLine) -> None:
    """Add the options of the variables of *found*, and notes on those that are not simulated, except NCCL's."""
    variables = found.variables
    if any(not is_off(variables.get(name, "0")) for name in _BLOCKING):
        found.options["launch_blocking"] = True
    if any(_EXPANDABLE.search(variables.get(name, "")) for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")):
        found.options["expandable_segments"] = True
    instead, usual = reasons(_KNOWN["instead"]), _KNOWN["usual"]
    if variables.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper() == "DETAIL":
        instead["TORCH_DISTRIBUTED_DEBUG"] = "the checks of each collective are left out"
    for name in (name for name in instead if name in variables):
        value = variables[name]
        off = name not in usual and name != "NVIDIA_TF32_OVERRIDE" and is_off(value)
        if value != usual.get(name) and not off:
            found.notes.append(f"{name}={one_line(value, 40)}: is not modelled; {instead[name]}")
