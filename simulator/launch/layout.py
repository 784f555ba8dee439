"""The parallelism of a launch line, as values of ``--parallel`` and ``--overlap``."""

from __future__ import annotations

from simulator.launch.arguments import Arguments
from simulator.launch.deepspeed import DeepSpeed
from simulator.launch.ranks import LaunchRanks
from simulator.records import dataclass, field

_SHARDED = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
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
                    "num-layers-per-virtual-pipeline-stage",
                    f"{each} x {self.pp} stages do not divide {layers} layers",
                )
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
            name = next((n for n in args.names if n.endswith("model-parallel-size")), "tensor-model-parallel-size")
            degrees = f"tp={found.tp} x pp={found.pp} x cp={found.cp}"
            args.fault(name, f"{degrees} is {model} ranks, and the launcher starts {ranks.whole}, no multiple of them")
        else:
            found.dp = ranks.whole // model
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
        zero = 3
    if args.has("use-megatron-fsdp", "use-custom-fsdp") or "data-parallel-sharding-strategy" in args:
        zero = _SHARDED[args.choice(tuple(_SHARDED), "data-parallel-sharding-strategy") or "no_shard"]
    if stage is not None:
        zero = min(stage, 3)
    if deepspeed.zero is not None:
        zero = deepspeed.zero
        found.shards = deepspeed.shards if zero == 3 else None
    found.zero = zero
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
        return options | {"overlap": _bucket(deepspeed.bucket * element_bytes), "prefetch": False}
    if not of_megatron or layout.zero == 3 or layout.dp == layout.cp == 1:
        return options
    if layout.zero and overlaps != gathers:
        which, how = ("--overlap-param-gather", "both") if overlaps else ("--overlap-grad-reduce", "do not")
        notes.append(f"{which}: not given; gradients and parameters {how} overlap with computing in the simulation")
    if not overlaps:
        return options | {"overlap": "none"}
    elements = said or max(_BUCKET_ELEMENTS, _BUCKET_EACH * (layout.dp or 1) * layout.cp)
    return options | {"overlap": _bucket(elements * element_bytes)}


def _bucket(n_bytes: int) -> str:
    return f"bucket:{n_bytes // 10**6}MB" if n_bytes % 10**6 == 0 else f"bucket:{n_bytes}B"
