"""How a step runs: its mode, precision, optimiser and framework."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Literal, get_args

from simulator.errors import mention, spelt
from simulator.questions.checks import Checked, From
from simulator.records import dataclass, replace

Mode = Literal["train", "inference", "forward", "backward"]
Framework = Literal["pytorch", "megatron", "deepspeed-zero3", "adaptdl", "tensorflow", "paddle", "caffe"]
FRAMEWORKS: tuple[Framework, ...] = get_args(Framework)
PYTORCH: tuple[Framework, ...] = ("pytorch", "megatron", "deepspeed-zero3", "adaptdl")
_OfBitsandbytes = Literal["adam-8bit", "paged-adam", "paged-adam-8bit"]
Optimizer = Literal["none", "sgd", "momentum", "adam", "lamb", "adam-loop", "bert-adam", _OfBitsandbytes, "muon"]
_Uniform = Literal["fp32", "tf32", "fp16", "bf16", "fp64"]
_Mixed = Literal["amp-fp16", "amp-bf16", "graph-fp16", "graph-bf16"]
_Narrow = Literal["master-fp16", "master-bf16", "master-fp8", "nvfp4", "int8", "int4"]
Policy = Literal[_Uniform, _Mixed, _Narrow, "torch"]
Recompute = Literal["none", "selective", "operators", "full"]
RecomputedPart = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"]
RECOMPUTES: tuple[Recompute, ...] = get_args(Recompute)
RECOMPUTED_PARTS: tuple[RecomputedPart, ...] = get_args(RecomputedPart)
Accumulation = Literal["product", "add", "fp32"]
SamplesOption = Literal["batch", "micro_batch", "micro_batches"]
"""The option that cuts the samples: those of a device, or those of micro-batches of a step whose samples are given."""
ACCUMULATIONS: tuple[Accumulation, ...] = get_args(Accumulation)
MODES: tuple[Mode, ...] = get_args(Mode)
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)
POLICIES: tuple[Policy, ...] = get_args(Policy)
BITSANDBYTES: tuple[Optimizer, ...] = get_args(_OfBitsandbytes)
NOT_IN_TORCH: tuple[Optimizer, ...] = ("lamb", "bert-adam", "muon", *BITSANDBYTES)  # for all parameters
QUANTISED: tuple[Policy, ...] = ("int8", "int4")  # for inference only
_PARTS: tuple[RecomputedPart, ...] = ("core_attn",)
_HOLDS: Mapping[RecomputedPart, tuple[RecomputedPart, ...]] = {"moe": ("moe_act", "shared_experts")}
_ALONE: Mapping[Optimizer, str] = {  # those of which no library has one kernel for all parameters
    "lamb": "updates all parameters at once already",
    **dict.fromkeys(("adam-loop", "bert-adam", "muon", *BITSANDBYTES), "goes from tensor to tensor"),
}


@dataclass(frozen=True, slots=True)
class StepOptions(Checked):
    """The settings of one step; docs/steps.md tells them, as options of the command.

    - ``mode``: ``train`` is forward, backward and update; ``forward`` and ``backward`` are these parts alone (tensors
      saved by forward count in both); ``inference`` is forward with nothing saved.
    - ``precision``: a policy (:mod:`simulator.step.precision`); ``torch`` is PyTorch's default.
    - ``ns_steps``: iterations of Muon (of Newton and Schulz); None: 5.
    - ``cuda_graph_blocks``: in each pass, one call launches the kernels of a repeated block, except its experts
      (Transformer Engine's ``make_graphed_callables``).
    - ``recompute``: what the backward pass computes again instead of keeping it (:mod:`simulator.step.recompute`):
      ``none``; of repeated blocks all but their inputs (``full``), the ``recompute_parts`` (``selective``), or all but
      some results, chosen by the kind of operator (``operators``).
    - ``recompute_blocks``: of each pipeline stage, or of each chunk, if interleaved; None: all.
    - ``accumulation``: by the ``product`` that computes gradients of micro-batches (Megatron-LM's fusion; also if there
      is nothing to add), by a pass that reads both (``add``), or by passes into an extra fp32 copy (``fp32``).
    - ``delayed_scales``: layers of PyTorch in fp8 scale by the largest values of earlier steps and cast weights once a
      step (Transformer Engine, Flax); otherwise by those of the moment (torchao).
    """

    mode: Mode = "train"
    precision: Policy = "torch"
    optimizer: Optimizer = "momentum"
    ns_steps: Annotated[int, From(1, 99)] | None = None
    compiled: bool = False
    cuda_graph: bool = False
    cuda_graph_blocks: bool = False
    recompute: Recompute = "none"
    recompute_parts: tuple[RecomputedPart, ...] = _PARTS
    recompute_blocks: Annotated[int, From(1)] | None = None
    channels_last: bool = False
    fused_optimizer: bool = False
    framework: Framework = "pytorch"
    launch_blocking: bool = False
    delayed_scales: bool = False
    accumulation: Accumulation = "product"
    expandable_segments: bool = False

    @property
    def scales_by_moment(self) -> bool:
        """Whether layers in fp8 scale by the largest values of the moment, as torchao's do."""
        return self.framework == "pytorch" and not self.delayed_scales

    def _faults(self) -> Iterator[str]:
        mode = mention("mode", self.mode)
        if self.delayed_scales and (self.framework, self.precision) != ("pytorch", "master-fp8"):
            of = f"{mention('framework', 'pytorch')} in {mention('precision', 'master-fp8')}"
            yield f"{mention('delayed_scales')}: is of {of}"
        if self.cuda_graph:
            waiting = {
                f"{mention('launch_blocking')}: waits for each kernel": self.launch_blocking,
                f"{mention('framework', self.framework)}: waits for its statistics": self.framework == "adaptdl",
                f"{mention('optimizer', self.optimizer)}: waits for each tensor": self.optimizer in BITSANDBYTES,
            }
            whole = f"{mention('cuda_graph')} launches all at once"
            yield from (f"{said}, and {whole}" for said, waits in waiting.items() if waits)
        if self.compiled and self.framework == "paddle":
            whole = f"stands for compilers of PyTorch and XLA, and {mention('framework', 'paddle')} has its own"
            yield f"{mention('compiled')}: {whole}"
        if self.expandable_segments and not (self.trains and self.framework in PYTORCH):
            where = mention("framework", self.framework) if self.trains else mode
            whole = f"is an option of PyTorch's allocator in training, not of {where}"
            yield f"{mention('expandable_segments')}: {whole}"
        if self.fused_optimizer and self.mode != "train":
            yield f"{mention('fused_optimizer')}: updates parameters, and {mode} updates none"
        elif self.fused_optimizer and self.optimizer in _ALONE:
            how = f"{mention('optimizer', self.optimizer)} {_ALONE[self.optimizer]}"
            yield f"{mention('fused_optimizer')}: {how}; it is for adam, momentum, sgd"
        yield from self._update_faults()
        if self.precision in QUANTISED and self.mode != "inference":
            whole = f"is for {mention('mode', 'inference')}; gradients are no whole numbers"
            yield f"{mention('precision', self.precision)}: {whole}"
        if self.recompute_blocks is not None and self.recompute == "none":
            yield f"{mention('recompute_blocks')}: is about what is recomputed; add {mention('recompute')}"
        for whole, inside in _HOLDS.items():
            again = [part for part in inside if {whole, part} <= {*self.recompute_parts}]
            said = f"{whole} runs it again already; give one of the two"
            yield from (f"{mention('recompute_parts', part)}: {said}" for part in again)
        if self.recompute != "none" and not self.has_backward:
            yield from (f"{said}: is for the backward pass, and {mode} has none" for said in self.recompute_mentions)

    def _update_faults(self) -> Iterator[str]:
        said, framework = mention("optimizer", self.optimizer), mention("framework", self.framework)
        if self.optimizer in BITSANDBYTES:
            if self.framework not in ("pytorch", "deepspeed-zero3"):
                yield f"{said}: is of bitsandbytes, for PyTorch; {framework} has none"
            if self.precision == "fp64":
                yield f"{said}: updates parameters of 32 and 16 bits, and {mention('precision', 'fp64')} has none"
        if self.optimizer == "muon":
            if self.framework not in ("pytorch", "megatron"):
                yield f"{said}: is not modelled in {framework}; in {mention('framework', 'pytorch')} and megatron it is"
            if (self.framework, self.precision) == ("megatron", "master-fp16"):
                yield f"{said}: Megatron-LM has it without {mention('precision', 'master-fp16')}; take master-bf16"
        elif self.ns_steps is not None:
            yield f"{mention('ns_steps')}: is about Muon's iterations; add {mention('optimizer', 'muon')}"

    @property
    def most_zero(self) -> int:
        """The last stage of ZeRO in which the optimiser updates: Muon's ranks may share out whole matrices alone."""
        return 1 if self.optimizer == "muon" and self.mode == "train" else 3

    @property
    def recompute_mentions(self) -> tuple[str, ...]:
        """The options that say what is recomputed, as errors mention them."""
        parts, blocks = self.recompute_parts, self.recompute_blocks
        if self.recompute == "none":
            return ()
        if self.recompute == "selective" and parts != _PARTS:
            said = mention("recompute_parts", ",".join(parts))
        else:
            said = mention(
                {"full": "recompute", "selective": "recompute_attention"}.get(self.recompute, "recompute_operators")
            )
        return (said,) if blocks is None else (said, mention("recompute_blocks", blocks))

    @property
    def recompute_words(self) -> tuple[str, ...]:
        """The command-line options that say what is recomputed."""
        return tuple(spelt(said, "command") for said in self.recompute_mentions)

    @property
    def as_launched(self) -> "StepOptions":
        """These options with what the framework always does: the update of Megatron-LM is one kernel."""
        fuses = self.framework == "megatron" and self.mode == "train" and self.optimizer not in ("none", *_ALONE)
        return replace(self, fused_optimizer=True) if fuses else self

    @property
    def trains(self) -> bool:
        """Whether tensors are saved for the backward pass."""
        return self.mode != "inference"

    @property
    def has_backward(self) -> bool:
        """Whether the step runs the backward pass."""
        return self.mode in ("train", "backward")


USUAL = StepOptions()


@lru_cache
def of_tensors(options: StepOptions, *, updated: bool = False) -> StepOptions:
    """Return *options* as far as they decide which tensors there are, with *updated* those of updates too.

    How kernels are launched, and whether an update is one of them, decides none.
    """
    plain = replace(
        options, fused_optimizer=False, cuda_graph=False, cuda_graph_blocks=False, channels_last=False,
        launch_blocking=False, delayed_scales=False,
    )  # fmt: skip
    return plain if updated else replace(plain, optimizer=USUAL.optimizer, ns_steps=None, expandable_segments=False)


NetworkSizes = tuple[tuple[str, int | str], ...]
"""The sizes of a network that a question says, and words for its kernels."""


def said_of(sizes: NetworkSizes, name: str) -> int | str:
    """Return what *sizes* say of *name*; ``plain`` if nothing."""
    return dict(sizes).get(name, "plain")


_IN_HALF: tuple[Policy, ...] = ("fp16", "bf16", "master-fp16", "master-bf16")  # whose scores have 16 bits


def loss_faults(sizes: NetworkSizes, options: StepOptions, *, one_process: bool) -> Iterator[str]:
    """Yield what a cross-entropy that is not torch's own cannot be combined with."""
    way = said_of(sizes, "cross_entropy")
    if way == "plain":
        return
    said = mention("sizes", f"cross_entropy={way}")
    if way == "half" and options.precision not in _IN_HALF:
        needed = f"is for scores that reach the loss in 16 bits, as with {', '.join(_IN_HALF)}"
        yield f"{said}: {needed}, not with {mention('precision', options.precision)}"
    allowed = ("pytorch", "deepspeed-zero3", *(("megatron",) if way == "in-place" else ()))
    if options.framework not in allowed:
        yield f"{said}: {mention('framework', options.framework)} has none; {', '.join(allowed)} have"
    if not options.trains or said_of(sizes, "loss") == 0:
        yield f"{said}: is about the loss, which this step does not compute"
    if one_process:
        yield f"{said}: is of each process, and one process drives all GPUs"
    if options.cuda_graph and way not in ("chunked", "half"):
        yield f"{said}: waits for the device, and {mention('cuda_graph')} launches all at once"


def nf4_faults(sizes: NetworkSizes, options: StepOptions, *, shards: bool, one_process: bool) -> Iterator[str]:
    """Yield what frozen weights in nf4 cannot be combined with; *shards*: parameters are sharded."""
    weights = said_of(sizes, "lora_weights")
    if weights == "plain":
        return
    said = mention("sizes", f"lora_weights={weights}")
    if options.framework != "pytorch":
        yield f"{said}: is of bitsandbytes, for PyTorch; {mention('framework', options.framework)} has none"
    if options.precision in (*QUANTISED, "master-fp8", "nvfp4", "fp64"):
        yield f"{said}: is multiplied in 16 or 32 bits, and {mention('precision', options.precision)} in others"
    if shards and options.precision in ("fp32", "tf32", "torch"):
        yield f"{said}: is gathered as numbers of 16 bits; take {mention('precision', 'bf16')}"
    if one_process:
        yield f"{said}: is of each process, and one process drives all GPUs"
