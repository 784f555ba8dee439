"""Steps that CPUs run with kernels that allocate nothing else: no convolutions, no masks of dropout.

Their memory can be measured, and the oracle of memory (:mod:`tests.oracles.torch_tracked`) be compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import gelu, mish, silu

from tests.oracles.torch_steps import USUAL, Step, bert_step, classify, gpt2_step, numbers, perceptron
from tests.oracles.torch_tracked import Built


class Readers(nn.Module):
    """Three functions read one tensor, whose gradient is a sum in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(256, 256), nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(silu(x) + gelu(x) + mish(x))


class Twice(nn.Module):
    """A weight is used twice; its gradients are views, whose sum is a third tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.both(torch.relu(self.both(x)))


def _readers() -> Built:
    return Readers(), (torch.zeros(4096, 256),), (numbers(4096),)


def _twice() -> Built:
    return Twice(), (torch.zeros(8, 512),), (numbers(8),)


_SMALL = replace(USUAL, length=128, fused=False)
ON_CPUS: Mapping[str, Step] = {
    "perceptron": classify("mlp", 1024, perceptron),
    "readers": Step("", 4096, _readers),
    "twice": Step("", 8, _twice),
    "decoder": gpt2_step(_SMALL),
    "decoder of many words": gpt2_step(replace(_SMALL, layers=1, vocabulary=20000)),
    "decoder, again": gpt2_step(replace(_SMALL, layers=3, again=True)),
    "encoder": bert_step(_SMALL),
}
