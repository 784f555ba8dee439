"""The processes that a launcher starts (torchrun, deepspeed, srun, mpirun; ``#SBATCH`` lines), and their parallelism.

The latter are values of ``--parallel`` and ``--overlap``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from simulator.errors import nearest, one_line
from simulator.launch.arguments import Arguments
from simulator.launch.command import Command
from simulator.launch.deepspeed import DeepSpeed
from simulator.launch.slurm import batch_arguments, gpus_per_node, read_hosts
from simulator.launch.visible import EVERY_GPU, VisibleGpus, visible_gpus
from simulator.launch.words import Word
from simulator.records import dataclass, field

_NODES = ("nnodes", "num-nodes", "nodes", "N", "num-machines")
_EACH = ("nproc-per-node", "nproc", "num-gpus", "ntasks-per-node", "gpus-per-node", "npernode")
_ALL = ("np", "ntasks", "n", "num-processes")
_OF_MPI = ("mpirun", "mpiexec", "horovodrun")
_HOSTS = ("H", "host", "hosts")


@dataclass(frozen=True, slots=True)
class LaunchRanks:
    """Nodes, processes per node, and processes in total; None if unknown.  ``visible`` are the GPUs that they see."""

    nodes: int | None = None
    each: int | None = None
    whole: int | None = None
    visible: VisibleGpus = EVERY_GPU

    @property
    def first(self) -> LaunchRanks:
        """The one process of a program that no launcher starts."""
        return LaunchRanks(1, 1, 1, self.visible)


def read_ranks(
    command: Command, launcher: Arguments, comments: Sequence[Word], own: int | None, file: str, notes: list[str]
) -> LaunchRanks:
    """Return the ranks that *launcher*, the words before the program, starts; else those of ``#SBATCH`` lines.

    *own* is the number of GPUs of the machine.  Where nothing else is said, each visible GPU has a process.
    """
    outer, batch = Arguments(command.outer, file), batch_arguments(comments, file)
    visible = visible_gpus(launcher, command, own, notes)
    whole = launcher.number(*_ALL)
    if _is_mpi(command) and not visible.gpus and (slots := read_hosts(launcher, notes)):
        visible, there = _filled(slots, whole), sum(slots.values())
        if whole is not None and whole > there:
            name = next(name for name in _ALL if name in launcher)
            launcher.fault(name, f"{whole} processes, and the host file has {there} slots")
    nodes = visible.hosts or _nodes(command, launcher) or outer.number(*_NODES)
    each = None
    for name in _EACH:
        if launcher.text(name) in ("gpu", "auto"):  # all visible GPUs of the node
            if visible.each is None:
                return LaunchRanks(nodes, visible=visible)
            return _completed(nodes, visible.each, None, launcher, visible)
    each = _per_mpi_node(command, launcher) or launcher.number(*_EACH)
    if each is None and visible.of_launcher and "num-processes" not in launcher:
        each = visible.each
    if not (nodes or whole):
        nodes = batch.number("nodes", "N")
    if not (each or whole):
        each = _unless_told(command, batch, visible)
    launcher.faults += [*batch.faults, *outer.faults]
    if each is None and len(visible.gpus) > 1:  # hosts with unlike numbers
        whole = sum(map(len, visible.gpus))
    return _checked(_completed(nodes, each, whole, launcher, visible), launcher)


def _completed(
    nodes: int | None, each: int | None, whole: int | None, launcher: Arguments, visible: VisibleGpus
) -> LaunchRanks:
    """Return the ranks with what follows from the rest."""
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


def _checked(ranks: LaunchRanks, launcher: Arguments) -> LaunchRanks:
    """Return *ranks*; more on a machine than it shows GPUs are a fault of *launcher*."""
    few = min(ranks.visible.gpus, key=len, default=())
    if ranks.each is not None and few and ranks.each > len(few):
        name = next((name for name in (*_EACH, *_ALL) if name in launcher), "")
        shown = f"{len(few)} GPU{'s' if len(few) != 1 else ''}"
        launcher.fault(name or "processes", f"{ranks.each} on a machine, and {ranks.visible.said} shows {shown}")
    return ranks


def _filled(slots: Mapping[str, int], whole: int | None) -> VisibleGpus:
    """Return a GPU for each of *whole* processes, with which mpirun fills the *slots* of one host after the other."""
    found = []
    left = sum(slots.values()) if whole is None else whole
    for count in slots.values():
        if left > 0:
            found.append(tuple(range(min(count, left))))
            left -= count
    return VisibleGpus(tuple(found), "the host file", len(found))


def _nodes(command: Command, launcher: Arguments) -> int | None:
    """Return the nodes that *launcher* names; of ``torchrun --nnodes 1:4`` the most."""
    hosts = next((launcher.value(name) for name in _HOSTS if name in launcher), None)
    if hosts is not None and _is_mpi(command):
        launcher.has(*_HOSTS)
        return len({host.partition(":")[0] for host in hosts.split(",")})
    elastic = re.fullmatch(r"\d{1,9}:(\d{1,9})", launcher.value("nnodes") or "")
    if elastic is not None and int(elastic[1]):
        launcher.has("nnodes")
        return int(elastic[1])
    return launcher.number(*(name for name in _NODES if name != "N" or not _is_mpi(command)))


def _is_mpi(command: Command) -> bool:
    return any(word.text.rpartition("/")[2] in _OF_MPI for word in command.launcher)


def _per_mpi_node(command: Command, launcher: Arguments) -> int | None:
    """Return the processes of each node of ``mpirun -N 8`` and ``--map-by ppr:8:node``."""
    if not _is_mpi(command):
        return None
    placed = re.fullmatch(r"ppr:(\d{1,6}):node.*", launcher.text("map-by") or "") if "map-by" in launcher else None
    return int(placed[1]) if placed and int(placed[1]) else launcher.number("N")


def _unless_told(command: Command, batch: Arguments, visible: VisibleGpus) -> int | None:
    """Return the processes of a node whose launcher does not say them; None if all its GPUs have one."""
    if command.starts_one:
        return 1
    if command.starter:
        return visible.each or gpus_per_node(batch)
    return batch.number("ntasks-per-node") or gpus_per_node(batch) or visible.each


# -- parallelism -----------------------------------------------------------------------


SHARDED = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""The stage of ZeRO of each of Megatron-FSDP's ``--data-parallel-sharding-strategy``."""
_BUCKET_ELEMENTS = 40_000_000  # Megatron-LM's DistributedDataParallelConfig: the larger of this
_BUCKET_EACH = 1_000_000  # and of this times the data-parallel ranks


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
        degrees = {"tp": self.tp, "pp": self.pp, "cp": self.cp}
        said = [f"{name}={n}" for name, n in degrees.items() if n > 1]
        said += [f"dp={self.dp}"] if self.dp is not None else []
        over = self.shards if self.shards != (self.dp or 0) * self.cp else None
        said += self.more
        if self.zero == 3:
            said.append("fsdp" if over is None else f"fsdp={over}")
        elif self.zero:
            said += [f"zero={self.zero}"] + ([] if over is None else [f"shards={over}"])
        return ",".join(said) or "dp"

    def with_stages(self, args: Arguments, layers: int) -> None:
        """Add the virtual stages per pipeline stage, of a network with *layers* layers."""
        each = args.number("num-layers-per-virtual-pipeline-stage")
        parts = args.number("num-virtual-stages-per-pipeline-rank")
        if each is not None and layers:
            if layers % (self.pp * each):
                args.fault(
                    "num-layers-per-virtual-pipeline-stage", f"{each} x {self.pp} stages do not divide {layers} layers"
                )
                return
            parts = layers // (self.pp * each)
        if parts is not None and parts > 1 and self.pp > 1:
            self.more.append(f"vp={parts}")


_CP_COMM = {"p2p": "p2p", "a2a": "a2a", "all_gather": "all_gather", "allgather": "all_gather"}
_BOTH = "a2a+p2p"


def _cp_comm(args: Arguments, ranks: int) -> list[str]:
    """Return what *ranks* of a sequence exchange, where it is no ring; what is not modelled stays unread."""
    said = args.value("cp-comm-type") or "p2p"
    comm = _CP_COMM.get(said)
    for each in said.split():  # one for all layers, or one for each
        if each != _BOTH and each not in _CP_COMM:
            args.fault("cp-comm-type", f"'{one_line(each, 40)}' is no such way; {nearest(each, [*_CP_COMM, _BOTH])}")
    known = comm is not None and args.has("cp-comm-type")
    return [f"cp_comm={comm}"] if known and comm != "p2p" and ranks > 1 else []


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
            name = next((n for n in args.names if n.endswith("model-parallel-size")), "tensor-model-parallel-size")
            degrees = f"tp={found.tp} x pp={found.pp} x cp={found.cp}"
            args.fault(name, f"{degrees} is {model} ranks, and the launcher starts {ranks.whole}, no multiple of them")
        else:
            found.dp = ranks.whole // model
    found.more += _cp_comm(args, found.cp)
    experts = args.number("expert-model-parallel-size", "moe-expert-parallel-size") or 1
    if experts > 1:
        found.more.append(f"ep={experts}")
        if args.has("moe-enable-deepep") or args.value("moe-token-dispatcher-type") == "flex":
            found.more.append("flex")
    each = args.number("expert-tensor-parallel-size")
    if "num-experts" in args and each not in (None, found.tp):  # default: --tensor-model-parallel-size
        found.more.append(f"etp={each}")
    if args.has("sequence-parallel") and found.tp > 1:
        found.more.append("sp")
        if args.has("tp-comm-overlap"):
            found.more.append("tp_overlap")
    if args.has("use-tp-pp-dp-mapping"):
        found.more.append("order=tp-cp-pp-dp")
    zero = int(args.has("use-distributed-optimizer"))
    stage = args.number("zero-stage", least=0)
    if args.has("use-torch-fsdp2"):
        zero = 2 if args.has("torch-fsdp2-no-reshard-after-forward") else 3
    if args.has("use-megatron-fsdp", "use-custom-fsdp") or "data-parallel-sharding-strategy" in args:
        zero = SHARDED[args.choice(tuple(SHARDED), "data-parallel-sharding-strategy") or "no_shard"]
    if stage is not None:
        zero = min(stage, 3)
    if deepspeed.zero is not None:
        zero = deepspeed.zero
        found.shards = deepspeed.shards if zero == 3 else None
    found.zero = zero
    copies = args.number("num-distributed-optimizer-instances") or 1
    if copies > 1 and zero and found.dp is not None:  # of all ranks with the same parameters (parallel_state.py)
        if found.dp * found.cp % copies:
            args.fault("num-distributed-optimizer-instances", f"{copies} do not divide {found.dp * found.cp} ranks")
        else:
            found.shards = found.dp * found.cp // copies
    return found


def read_overlap(
    args: Arguments, layout: LaunchDegrees, precision: str | None, deepspeed: DeepSpeed, notes: list[str]
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
    if deepspeed.is_there and layout.zero < 3:
        if layout.pp > 1 or not (deepspeed.overlap or deepspeed.offload != "none"):  # each bucket's copy is waited for
            return options | {"overlap": "none"}
        later = {"prefetch": False} if layout.zero else {}  # parameters are gathered after the update
        return options | {"overlap": _bucket(deepspeed.bucket * element_bytes), **later}
    if not of_megatron or layout.zero == 3 or layout.dp == layout.cp == 1:
        return options
    if gathers and not overlaps:  # which Megatron-LM refuses (training/arguments.py, validate_args)
        notes.append("--overlap-grad-reduce: not given; neither gradients nor parameters overlap with computing")
    if layout.zero and overlaps and not gathers:
        options["prefetch"] = False
    if not overlaps:
        return options | {"overlap": "none"}
    elements = said or max(_BUCKET_ELEMENTS, _BUCKET_EACH * (layout.dp or 1) * layout.cp)
    return options | {"overlap": _bucket(elements * element_bytes)}


def _bucket(n_bytes: int) -> str:
    return f"bucket:{n_bytes // 10**6}MB" if n_bytes % 10**6 == 0 else f"bucket:{n_bytes}B"
