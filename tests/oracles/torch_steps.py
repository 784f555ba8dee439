"""Networks of the zoo as torch modules with a loss, for steps that :mod:`tests.oracles.torch_tracked` follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from tests.oracles import torch_memory
from tests.oracles.torch_counting import BATCH, dense
from tests.oracles.torch_dense import halves
from tests.oracles.torch_images import resnet50, vgg11
from tests.oracles.torch_losses import LOSSES
from tests.oracles.torch_tracked import WAYS, Built, Way
from tests.oracles.torch_transformers import Bert, Decoder, Sizes, Vision
from tests.oracles.torch_written import first_inception, small_residual


def _vision() -> Built:
    return Vision(), (torch.empty(32, 3, 224, 224),), (numbers(32),)


def perceptron(batch: int) -> Any:
    return nn.Sequential(*dense(512, 256, 128, 2)), torch.empty(batch, 512)


@dataclass(frozen=True)
class Step:
    """A network of the zoo, with its batch and options, and what torch runs for it: see ``Built``."""

    zoo: str
    batch: int
    build: Callable[[], Built]
    options: Mapping[str, Any] = field(default_factory=dict)
    again: bool = False
    ways: tuple[Way, ...] = WAYS
    wide: bool = False  # the loss takes logits in fp32
    loss_way: str = "plain"


def numbers(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int64)


def classify(zoo: str, batch: int, make: Callable[[int], Any], *ways: Way) -> Step:
    def build() -> Built:
        module, x = make(batch)
        return module, (x,), (numbers(batch),)

    return Step(zoo, batch, build, ways=ways or WAYS)


def _of_two(zoo: str, make: Callable[[str], Any], *ways: Way) -> Step:
    """Return the step of a network that is written for a batch of two."""

    def build() -> Built:
        module, images = make(zoo)
        results = module(*images)
        return module, images, (numbers(BATCH, *results.shape[2:]),)

    return Step(zoo, BATCH, build, ways=ways)


def _decoder(zoo: str, kind: str, s: Sizes, batch: int = 4, **options: Any) -> Step:
    def build() -> Built:
        return Decoder(kind, s), (numbers(batch, s.length),), (numbers(batch * s.length),)

    attention = "fused" if s.fused else "eager"
    # In fp32, no fused kernel of CUDA's has fewer heads of keys than of queries.  grouped_mm is for bf16, to which
    # autocast does not cast its operands.
    ways = ("bf16",) if s.experts else WAYS if s.kv_heads == s.heads else WAYS[1:]
    return Step(zoo, batch, build, {**s.options, "attention": attention, **options}, s.again, ways, wide=True)


def bert_step(s: Sizes, batch: int = 4) -> Step:
    def build() -> Built:
        tokens = numbers(batch, s.length), numbers(batch, s.length)
        return Bert(s), tokens, (numbers(batch * s.length), numbers(batch))

    return Step("bert-base", batch, build, {**s.options, "positions": s.length}, s.again, wide=True)


USUAL = Sizes()
_WORDS = replace(USUAL, layers=1, vocabulary=50257)
_AGAIN = replace(USUAL, layers=3, again=True)
_DROPS = {"dropout": 0.1}


def _with_loss(step: Step, loss_way: str) -> Step:
    """Return *step*, of many words, with another loss."""
    options = {**step.options, "cross_entropy": loss_way}
    return replace(step, options=options, loss_way=loss_way, ways=("fp32", "bf16"))


gpt2_step = partial(_decoder, "gpt2", "gpt2", positions=USUAL.length)
_llama = partial(_decoder, "llama2-7b", "llama", inner=USUAL.inner)
STEPS: Mapping[str, Step] = {
    "mlp": classify("mlp", 8192, perceptron),
    "lenet": classify("lenet", 256, torch_memory.lenet),
    "alexnet-owt": classify("alexnet-owt", 256, torch_memory.column),
    "vgg11": classify("vgg11", 16, vgg11, "fp32", "amp-bf16"),
    "resnet18-28x28": classify("resnet18-28x28", 64, torch_memory.residual, "bf16", "amp-bf16"),
    "resnet50": classify("resnet50", 8, resnet50, "fp32", "amp-bf16"),
    "resnet20": _of_two("resnet20", small_residual, "bf16"),
    "googlenet": _of_two("googlenet", first_inception, "amp-bf16"),
    "unet": _of_two("unet", halves, "bf16", "amp-bf16"),
    "vit-b32": Step("vit-b32", 32, _vision, {"attention": "fused"}, ways=("amp-bf16",)),
    "gpt2": gpt2_step(USUAL, dropout=0),
    "gpt2, dropout": gpt2_step(replace(USUAL, **_DROPS)),
    "gpt2, all words": gpt2_step(_WORDS, dropout=0),
    "gpt2, again": gpt2_step(_AGAIN, dropout=0),
    "gpt2, eager": gpt2_step(replace(USUAL, fused=False, **_DROPS)),
    "gpt2, eager, all words": gpt2_step(replace(_WORDS, fused=False, **_DROPS)),
    "mpt": _decoder("mpt-125m", "mpt", USUAL),
    "llama": _llama(USUAL),
    "llama, grouped": _llama(replace(USUAL, kv_heads=2), kv_heads=2),
    "llama, all words": _llama(_WORDS),
    **{f"llama, {way} loss": _with_loss(_llama(_WORDS), way) for way in LOSSES},
    "llama, again": _llama(_AGAIN),
    "mixtral": _decoder("mixtral-8x7b", "llama", replace(USUAL, experts=8), kv_heads=4, expert_inner=USUAL.inner),
    "bert": bert_step(replace(USUAL, **_DROPS)),
    "bert, all words": bert_step(replace(_WORDS, vocabulary=30522, **_DROPS)),
    "bert, again": bert_step(replace(_AGAIN, **_DROPS)),
}
