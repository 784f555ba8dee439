"""How a launch line divides a step among its ranks, and what they exchange: ``--parallel`` and ``--overlap``."""

from __future__ import annotations

from simulator.errors import nearest, one_line
from simulator.launch.arguments import Arguments
from simulator.launch.deepspeed import DeepSpeed
from simulator.launch.ranks import LaunchRanks
from simulator.records import dataclass, field

SHARDED = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""The stage of ZeRO of each of Megatron-FSDP's ``--data-parallel-sharding-strategy``."""
_BUCKET_ELEMENTS = 40_000_000  # Megatron-LM's DistributedDataParallelConfig: the larger of this
_BUCKET_EACH = 1_000_000  # and of this times the data-parallel ranks
_CP_COMM = {"p2p": "p2p", "a2a": "a2a", "all_gather": "all_gather", "allgather": "all_gather"}
_BOTH = "a2a+p2p"


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

    def with_stages(self, args: Arguments, layers: int) -> None:
        """Add the virtual stages per pipeline stage, of a network with *layers* layers."""
        name = "num-layers-per-virtual-pipeline-stage"
        each, parts = args.number(name), args.number("num-virtual-stages-per-pipeline-rank")
        if each is not None and layers:
            if layers % (self.pp * each):
                args.fault(name, f"{each} x {self.pp} stages do not divide {layers} layers")
                return
            parts = layers // (self.pp * each)
        if parts is not None and parts > 1 and self.pp > 1:
            self.more.append(f"vp={parts}")


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
    said = args.value("cp-comm-type") or "p2p"  # one for all layers, or one for each
    for each in said.split():
        if each != _BOTH and each not in _CP_COMM:
            args.fault("cp-comm-type", f"'{one_line(each, 40)}' is no such way; {nearest(each, [*_CP_COMM, _BOTH])}")
    comm = _CP_COMM[said] if said in _CP_COMM and args.has("cp-comm-type") else "p2p"  # others stay unread
    experts = args.number("expert-model-parallel-size", "moe-expert-parallel-size") or 1
    has_flex = experts > 1 and (args.has("moe-enable-deepep") or args.value("moe-token-dispatcher-type") == "flex")
    of_expert = args.number("expert-tensor-parallel-size")
    has_etp = "num-experts" in args and of_expert not in (None, found.tp)  # default: --tensor-model-parallel-size
    has_sp = args.has("sequence-parallel") and found.tp > 1
    words = {
        f"cp_comm={comm}": comm != "p2p" and found.cp > 1,
        f"ep={experts}": experts > 1,
        "flex": has_flex,
        f"etp={of_expert}": has_etp,
        "sp": has_sp,
        "tp_overlap": has_sp and args.has("tp-comm-overlap"),
        "order=tp-cp-pp-dp": args.has("use-tp-pp-dp-mapping"),
    }
    found.more += [word for word, is_said in words.items() if is_said]
    _read_shards(args, deepspeed, found)
    return found


def _read_shards(args: Arguments, deepspeed: DeepSpeed, found: LaunchDegrees) -> None:
    """Read what data-parallel ranks shard, and how many hold a full set, into *found*."""
    found.zero = int(args.has("use-distributed-optimizer"))
    stage = args.number("zero-stage", least=0)
    if args.has("use-torch-fsdp2"):
        found.zero = 2 if args.has("torch-fsdp2-no-reshard-after-forward") else 3
    if args.has("use-megatron-fsdp", "use-custom-fsdp") or "data-parallel-sharding-strategy" in args:
        found.zero = SHARDED[args.choice(tuple(SHARDED), "data-parallel-sharding-strategy") or "no_shard"]
    if stage is not None:
        found.zero = min(stage, 3)
    if deepspeed.zero is not None:
        found.zero = deepspeed.zero
        found.shards = deepspeed.shards if found.zero == 3 else None
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
    elif not of_megatron or layout.zero == 3 or layout.dp == layout.cp == 1:
        return options
    elif gathers and not overlaps:  # which Megatron-LM refuses (training/arguments.py, validate_args)
        args.notes.append("--overlap-grad-reduce: not given; neither gradients nor parameters overlap with computing")
    n_bytes = elements * element_bytes
    bucket = f"bucket:{n_bytes // 10**6}MB" if n_bytes % 10**6 == 0 else f"bucket:{n_bytes}B"
    if layout.zero and overlaps and not gathers:
        options["prefetch"] = False
    return options | {"overlap": bucket if overlaps else "none"}
