"""A step of a network, ready to run repeatedly: eager, as a graph, or compiled; on a rank, replicated or sharded."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import lru_cache, partial
from typing import Any

import torch
import torch.distributed as dist

from validate.machine.measure.bench import aside, recorded
from validate.machine.measure.built.module import build_module, build_own
from validate.machine.measure.case import TimedRun, Unavailable
from validate.machine.measure.cases.step_shapes import MeasuredStep
from validate.machine.measure.timing import Interval

_BLOCK = re.compile(r"(?:[^.]+\.)*?\d+")  # the name of a repeated block, such as layers.3


def across(module: Any, shape: MeasuredStep, device: Any) -> Any:
    """Return *module* for this process group's ranks, as *shape* says; raises Unavailable where torch lacks FSDP2."""
    if shape.shards:
        return _sharded(module, shape, device)
    bucket: dict[str, Any] = {"bucket_cap_mb": shape.bucket / (1 << 20)} if shape.bucket else {}
    if not shape.overlaps:  # a single bucket is full only when the last gradient is there
        bucket = {"bucket_cap_mb": sum(p.numel() * p.element_size() for p in module.parameters()) // (1 << 20) + 1}
    devices = [device.index] if device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(module, device_ids=devices, **bucket)


def _sharded(module: Any, shape: MeasuredStep, device: Any) -> Any:
    """Return *module* sharded by blocks and the rest; autocast gathers 16 bits unless *shape* gathers in fp32."""
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        raise Unavailable(f"torch {torch.__version__} has no fully_shard; 2.6 and later have") from None
    half = _FORMATS[shape.policy.removeprefix("amp-")] if shape.policy.startswith("amp-") else None
    gathered, summed = None if shape.gathers_in_fp32 else half, torch.float32 if shape.sums_in_fp32 else None
    how: dict[str, Any] = {"mp_policy": MixedPrecisionPolicy(param_dtype=gathered, reduce_dtype=summed)}
    how["mesh"] = _mesh(dist.group.WORLD, device.type, shape.n_gpus // shape.shards, shape.shards)
    for block in (*_blocks(module), module):
        fully_shard(block, **how)
    return module


@lru_cache(maxsize=16)
def _mesh(_: Any, kind: str, replicas: int, shards: int) -> Any:
    """Return a mesh of ranks of this group, one for all: each creates communicators whose memory is not released."""
    from torch.distributed.device_mesh import init_device_mesh

    sides = (replicas, shards) if replicas > 1 else (shards,)
    return init_device_mesh(kind, sides, mesh_dim_names=("replicas", "shards")[-len(sides) :])


def _blocks(module: Any) -> list[Any]:
    """Return the repeated blocks of *module* that have parameters: its own list, else its outermost numbered parts."""
    own = getattr(module, "blocks", None)
    if isinstance(own, list):
        return own
    found: dict[str, Any] = {}
    for name, part in module.named_modules():
        inner = any(name.startswith(f"{block}.") for block in found)
        holds = next(part.children(), None) is not None and next(part.parameters(), None) is not None
        if _BLOCK.fullmatch(name) and holds and not inner:
            found[name] = part
    return list(found.values())


_FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}
_WARMUP, _WARMUP_OF_RANKS = 3, 11  # steps before a capture, as torch's notes on CUDA graphs recommend
# torch starts at 65536 and halves the scale at each step that overflows, skipping its update: not a training step.
_SCALE = 128.0
_MOST_HALVINGS = 20
Wrap = Callable[[Any], Any]


def set_precision(policy: str) -> None:
    """Allow TF32 for fp32 products if *policy* says so, and let cuDNN try its algorithms, as predictions assume."""
    tf32 = policy == "tf32"
    convolutions = policy in ("tf32", "torch")  # torch's default is TF32 for convolutions
    with warnings.catch_warnings():  # torch 2.9 recommends newer settings; older versions have only these
        warnings.filterwarnings("ignore", message="Please use the new API settings")
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = convolutions
    torch.backends.cudnn.benchmark = True


def make_step(shape: MeasuredStep, device: Any, wrap: Wrap | None = None) -> TimedRun:
    """Return the step *shape* on *device*, *wrap* dividing it; raises Unavailable if capture or compiling fails."""
    set_precision(shape.policy)
    if shape.threads:
        torch.set_num_threads(shape.threads)
    torch.manual_seed(0)
    stepper = Stepper(shape, device, wrap)
    if shape.issue in ("graph", "compile+graph"):
        return TimedRun(stepper.captured())
    if shape.phase == "bwd":
        return TimedRun(stepper.backward, stepper.prepare, stepper.begin, stepper.end)
    stepper.settle_scale()
    run = {"train": stepper.train, "fwd": stepper.forward, "inference": stepper.infer}[shape.phase]
    return TimedRun(run, None, stepper.begin, stepper.end)


def _mend_compiler() -> None:
    """Let torch 2.11 raise CantSplit, which tries another way to split a loop, without arguments (mended in 2.13)."""
    with suppress(ImportError, AttributeError):
        from torch._inductor.codegen.simd import CantSplit

        CantSplit.__init__.__defaults__ = (None, None)


class Stepper:
    """The module of a step with its inputs and optimiser, and the phases of the step."""

    def __init__(self, shape: MeasuredStep, device: Any, wrap: Wrap | None = None) -> None:
        self.shape, self.device = shape, device
        amp, trains = shape.policy.startswith("amp-"), shape.phase != "inference"
        dtype = _FORMATS.get(shape.policy.removeprefix("amp-"))
        to: dict[str, Any] = {"dtype": dtype or torch.bfloat16, "enabled": amp}
        self.autocast = partial(torch.autocast, device.type, **to)  # the context in which the forward pass runs
        how: dict[str, Any] = {"dtype": None if amp else dtype}
        if shape.source:
            example = build_own(shape.source, device, training=trains, **how)
        else:
            how |= {"recompute": shape.recompute, "in_blocks": shape.shards > 0}
            example = build_module(shape.description(), device, **how)
            example.module.train(trains)
        module = example.module
        if shape.channels_last and shape.sample == "images":
            module = module.to(memory_format=torch.channels_last)
            images = [x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in example.inputs]
            example = example._replace(inputs=tuple(images))
        if shape.shards and wrap is not None:  # gathering shards is compiled together with the computation
            module = wrap(module)
        if shape.issue.startswith("compile"):
            _mend_compiler()
            module = torch.compile(module)
        if not shape.shards and wrap is not None:
            with aside() if shape.issue.endswith("graph") and device.type == "cuda" else nullcontext():
                module = wrap(module)
        self.example = example._replace(module=module)
        self.optimizer = _optimizer(shape, module) if shape.phase == "train" else None
        scales = shape.policy == "amp-fp16" and shape.phase == "train"
        self.scaler = torch.amp.GradScaler(device.type, init_scale=_SCALE) if scales else None
        self._scale = _SCALE
        self._loss: Any = None

    def settle_scale(self) -> None:
        """Run steps until the loss scale causes no overflow; raises Unavailable where no scale does."""
        if self.scaler is None:
            return
        for _ in range(_MOST_HALVINGS):
            before = self.scaler.get_scale()
            self.train()
            if self.scaler.get_scale() >= before:
                return
        raise Unavailable(f"gradients in fp16 overflow even where the loss is scaled by {before:g}")

    def begin(self) -> None:
        """Begin the measured part: reset the memory peak and note the loss scale."""
        self._forget_peak()
        if self.scaler is not None:
            self._scale = self.scaler.get_scale()

    def end(self) -> None:
        """Raise Unavailable where an update was skipped since :meth:`begin`."""
        if self.scaler is not None and self.scaler.get_scale() < self._scale:
            raise Unavailable("gradients in fp16 overflowed while steps were timed: updates were left out")

    def _forget_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def train(self) -> None:
        """Run the forward pass, the backward pass and the update."""
        self.clear()
        # Replicas exchange gradients in the last micro-batch alone.  Shards do in each, as no rank keeps whole ones.
        apart = getattr(self.example.module, "no_sync", nullcontext)
        for number in range(1, self.shape.micro_batches + 1):
            with nullcontext() if number == self.shape.micro_batches else apart():
                loss = self.forward()
                if self.scaler is None:
                    loss.backward()
                else:
                    self.scaler.scale(loss).backward()
        if self.scaler is not None and self.optimizer is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif self.optimizer is not None:
            self.optimizer.step()
        if self.shape.each:
            loss.item()

    def clear(self) -> None:
        """Drop the gradients, so that the next backward pass writes them and does not add."""
        (self.optimizer or self.example.module).zero_grad(set_to_none=True)

    def forward(self) -> Any:
        """Return the loss, with everything that the backward pass needs."""
        with self.autocast():
            return self.example.loss()

    def infer(self) -> None:
        """Run the forward pass without saving activations."""
        with torch.no_grad(), self.autocast():
            self.example.forward()

    def prepare(self) -> None:
        """Run the forward pass before a timed backward pass."""
        self.clear()
        self._loss = self.forward()

    def backward(self) -> None:
        """Run the backward pass of the prepared forward pass."""
        loss, self._loss = self._loss, None
        loss.backward()

    def captured(self) -> Callable[[], object]:
        """Return what launches a step as one CUDA graph, captured as torch's notes say; raises Unavailable."""
        run = {"train": self.train, "inference": self.infer}.get(self.shape.phase)
        if run is None:
            raise Unavailable("parts of a step are not captured in a graph; take --mode train or inference")
        reasons = {
            "a step that the host waits for cannot be captured": self.scaler is not None or self.shape.each,
            "graphs are captured on GPUs alone": self.device.type != "cuda",
            "shards are gathered by the host's hooks, and no graph is captured of them": self.shape.shards,
        }
        if reason := next((words for words, holds in reasons.items() if holds), ""):
            raise Unavailable(reason)
        with aside():
            for _ in range(_WARMUP if self.shape.n_gpus == 1 else _WARMUP_OF_RANKS):
                run()
        self.clear()
        torch.cuda.synchronize()
        self._forget_peak()  # the capture allocates memory; replays do not
        graph = torch.cuda.CUDAGraph()
        with recorded(graph):
            run()

        def replay() -> None:
            graph.replay()
            _ = self.example  # keeps alive the tensors that the graph reads and writes

        return replay


def _optimizer(shape: MeasuredStep, module: Any) -> Any:
    """Return torch's optimiser with its default kernels (over lists of parameters on GPUs), or *fused* ones."""
    parameters = list(module.parameters())
    how: dict[str, Any] = {"fused": True} if shape.fused else {}
    if shape.optimizer in ("adam", "adam-loop"):
        how = {"foreach": False} if shape.optimizer == "adam-loop" else how
        return torch.optim.Adam(parameters, lr=1e-5, capturable=shape.issue.endswith("graph"), **how)
    if shape.optimizer in ("sgd", "momentum"):
        return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9 if shape.optimizer == "momentum" else 0.0, **how)
    return None


def gpu_memory(device: Any) -> dict[str, int]:
    """Return the cells of memory of a GPU, in bytes, since the last reset; all in use counts: none else works."""
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    return {
        "max_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "max_reserved_bytes": torch.cuda.max_memory_reserved(device),
        "smi_bytes": total - free,
    }


def step_figures(shape: MeasuredStep, interval: Interval, of_ranks: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Return the measured cells: step time in seconds, throughput, and the largest of each figure of memory."""
    samples = shape.batch * shape.micro_batches * shape.n_gpus
    found = {"step_time_s": interval.median, "throughput": samples / interval.median}
    memory = {name: max(each[name] for each in of_ranks) for name in of_ranks[0]}
    return {**found, "throughput_unit": f"{shape.sample}/s", **memory}
