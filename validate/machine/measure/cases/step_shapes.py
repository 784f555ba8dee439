"""The steps to measure (``steps.json``): networks, batches, precision and modes of issue, most informative first."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, Literal

from validate.machine.measure.built import description as built
from validate.machine.measure.built.description import DescriptionFile, Sizes, builtin_facts
from validate.machine.measure.built.spans import Recompute

Phase = Literal["train", "inference", "fwd", "bwd"]
Issue = Literal["eager", "graph", "compile", "compile+graph"]
Policy = Literal["torch", "fp32", "tf32", "fp16", "bf16", "fp64", "amp-fp16", "amp-bf16"]
Optimizer = Literal["none", "sgd", "momentum", "adam", "adam-loop"]

Columns = dict[str, str | int]
OWN = Sizes()  # the network's default sizes


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step: the network, and how it is run.

    ``policy``: one format for everything, or PyTorch's autocast with ``amp-``.  ``fused``: the optimiser is one kernel
    for a list of parameters.  ``each``: the host waits for the loss of each step.  ``n_gpus`` ranks, spread over
    ``n_nodes`` machines, are replicas (DistributedDataParallel); with ``shards``, that many divide one copy of the
    parameters (FSDP2). ``overlaps``: gradients are exchanged during the backward pass.  ``sums_in_fp32``: shards'
    16-bit gradients are reduced in fp32; ``gathers_in_fp32``: shards are gathered in fp32, and autocast casts them.
    ``bucket``: bytes of gradients exchanged together; 0 is DistributedDataParallel's default.  ``network``: the
    description to build, which ``model`` only names.  ``source``: measure the module of this factory instead.
    ``parts``: measure its operators one by one. ``micro_batches``: batches whose gradients are summed before the
    update.  ``recompute``: activations not kept. ``threads``: CPU threads; 0 is torch's default.
    """

    model: str
    batch: int
    policy: Policy = "fp32"
    phase: Phase = "train"
    issue: Issue = "eager"
    optimizer: Optimizer = "momentum"
    fused: bool = False
    channels_last: bool = False
    each: bool = False
    sizes: Sizes = OWN
    n_gpus: int = 1
    network: DescriptionFile | None = None
    micro_batches: int = 1
    recompute: Recompute = ""
    threads: int = 0
    n_nodes: int = 1
    bucket: int = 0
    parts: bool = False
    shards: int = 0
    overlaps: bool = True
    sums_in_fp32: bool = False
    gathers_in_fp32: bool = False
    source: str = ""

    @property
    def sample(self) -> str:
        """Return the unit that throughput counts: images, sequences or samples."""
        return self.network.read().sample if self.network is not None else builtin_facts(self.model).sample

    def description(self) -> built.Description:
        """Return the network as it is run: the user's, or a built-in one."""
        if self.network is not None:
            return self.network.read()
        return built.builtin_network(self.model, self.sizes, self.batch, training=self.phase != "inference")

    def cells(self, threads: int = 0) -> Columns:
        """Return the identifying cells of ``training.csv``; *threads* is the number of CPU threads, 0 on a GPU."""
        threads = threads and (self.threads or threads)
        words = {f"cpu threads={threads}": threads, "cross-entropy": self.phase != "inference"}
        words |= {"channels last": self.channels_last, "fused optimizer": self.fused}
        gpus = 0 if threads and self.n_gpus == 1 else self.n_gpus
        found = Columns(n_nodes=self.n_nodes, n_gpus=gpus, framework="torch", model=self.model, phase=self.phase)
        found |= Columns(dtype=self.policy, batch_per_gpu=self.batch)
        found["global_batch"] = self.batch * self.n_gpus * self.micro_batches
        if self.network is None:
            facts, sizes = builtin_facts(self.model), self.sizes
            own = Columns(seq_len=sizes.length or facts.length, hidden=sizes.hidden, heads=sizes.heads)
            own |= Columns(layers=sizes.layers, vocab=sizes.vocabulary, image=facts.image, norms=facts.norms)
        else:  # whose sizes are in its description
            summed = self.micro_batches if self.micro_batches > 1 else 0
            own = Columns(network=self.network.name, policy=self.policy, grad_accum=summed, recompute=self.recompute)
            own |= Columns(modules="own" if self.source else "", channels_last=int(self.channels_last))
            own |= Columns(fused_optimizer=int(self.fused))
        found |= {name: value for name, value in own.items() if value}
        found["optimizer"] = self.optimizer if self.phase == "train" else "none"
        found["schedule"] = "; ".join(word for word, is_said in words.items() if is_said)
        found |= Columns(sync="each step" if self.each else "", issue=self.issue)
        if self.n_gpus > 1 and self.shards:
            wide = "units" if self.gathers_in_fp32 else "sums" if self.sums_in_fp32 else ""
            found |= Columns(sync=f"fsdp, {wide} in fp32" if wide else "fsdp", fsdp=1)
            found |= Columns(shards=self.shards) if self.shards != self.n_gpus else {}
        elif self.n_gpus > 1:
            overlap = "none" if not self.overlaps else f"{self.bucket} B" if self.bucket else ""
            found |= Columns(sync="ddp", overlap=overlap)
        return found

    def row_id(self, machine: str, threads: int = 0) -> str:
        """Return the row's ID, which is always the same for the same step on *machine*."""
        text = "|".join(f"{name}={value}" for name, value in sorted(self.cells(threads).items()))
        return "step-" + hashlib.sha256(f"{machine}|{text}".encode()).hexdigest()[:12]


_DATA = json.loads(Path(__file__).with_name("steps.json").read_text(encoding="utf-8"))
# Networks, each with a small, a medium and a large batch, and its sizes; and those that judge, each with its batch.
NETWORKS = [(name, batches, Sizes(**sizes)) for name, batches, sizes in _DATA["networks"]]
JUDGED = [(name, batch, Sizes(**sizes)) for name, batch, sizes in _DATA["judged"]]
_WAYS = tuple(_DATA["ways"])
_STRIDE = 7  # offset between the ways of successive networks; coprime to the number of ways


def gpu_steps(policies: Sequence[Policy]) -> Iterator[MeasuredStep]:
    """Yield steps in formats that a GPU supports: all networks in turn, each time run in another way."""
    queues = []
    for i, (model, batches, sizes) in enumerate(NETWORKS):
        turned = [_WAYS[(i * _STRIDE + r) % len(_WAYS)] for r in range(len(_WAYS))]
        found = [_shape(model, batches, sizes, **way) for way in turned if way["policy"] in policies]
        queues.append(list(dict.fromkeys(found)))
    for row in zip_longest(*queues):
        yield from (shape for shape in row if shape is not None)
    half: Policy = "amp-bf16" if "amp-bf16" in policies else "amp-fp16"
    # Last, as compilation takes a minute each.
    yield MeasuredStep("resnet50", 32, half, issue="compile", channels_last=True, fused=True)
    yield MeasuredStep("gpt2", 4, half, issue="compile", optimizer="adam", fused=True)


def _shape(model: str, batches: Sequence[int], sizes: Sizes, batch: int, policy: Policy, **how: Any) -> MeasuredStep:
    """Return a step with the small, medium or large *batch* (0, 1, 2); ``plain`` is SGD without momentum."""
    sample = builtin_facts(model).sample
    optimizer: Optimizer = "sgd" if how.pop("plain", False) else "adam" if sample == "sequences" else "momentum"
    how["channels_last"] = how.get("channels_last", False) and sample == "images"
    return MeasuredStep(model, batches[batch], policy, optimizer=optimizer, sizes=sizes, **how)


def judged_steps(policies: Sequence[Policy]) -> Iterator[MeasuredStep]:
    """Yield a step of each network of ``JUDGED`` in half precision: all eager, as one graph, then compiled."""
    half: Policy = "amp-bf16" if "amp-bf16" in policies else "amp-fp16" if "amp-fp16" in policies else "fp32"
    issues: tuple[Issue, ...] = ("eager", "graph", "compile")
    for issue, (model, batch, sizes) in product(issues, JUDGED):
        images = builtin_facts(model).sample == "images"
        how: dict[str, Any] = {"optimizer": "momentum" if images else "adam", "channels_last": images}
        yield MeasuredStep(model, batch, half, issue=issue, sizes=sizes, fused=not images, **how)


CPU_STEPS: tuple[MeasuredStep, ...] = tuple(
    MeasuredStep(**{**step, "sizes": Sizes(**step.get("sizes", {}))}) for step in _DATA["cpu"]
)  # steps that take a fraction of a second on two cores

_BEST: tuple[Policy, ...] = ("tf32", "amp-bf16", "fp32", "amp-fp16")


def parallel_steps(n_gpus: int, policies: Sequence[Policy]) -> Iterator[MeasuredStep]:
    """Yield steps over *n_gpus* GPUs; where *policies* is only fp32, as on CPUs, a single small step."""
    if tuple(policies) == ("fp32",):
        yield MeasuredStep("resnet18-28x28", 8, n_gpus=n_gpus)
        return
    best = [policy for policy in _BEST if policy in policies][:1]
    for batch, (model, batches, sizes), policy in product((1, 2), NETWORKS[:6], best):
        yield replace(_shape(model, batches, sizes, batch, policy), n_gpus=n_gpus)
