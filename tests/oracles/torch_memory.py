"""Bytes that autograd saves for small networks, measured with torch on the meta device; each storage counts once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.oracles.torch_counting import conv, dense, images
from tests.oracles.torch_written import Residual


def dropped(x: torch.Tensor) -> torch.Tensor:
    """Return dropout as CUDA's kernel does it, with a mask of bytes."""
    return torch.native_dropout(x, 0.1, True)[0]


class NewGelu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    """A GPT-2 block with eager attention."""

    def __init__(self, hidden: int, heads: int, length: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.gelu, self.down = nn.Linear(hidden, 4 * hidden), NewGelu(), nn.Linear(4 * hidden, hidden)
        self.heads = heads
        self.register_buffer("mask", torch.ones(1, 1, length, length, dtype=torch.bool))
        self.register_buffer("least", torch.full([], -1e9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = x.shape
        split = (batch, length, self.heads, -1)
        q, k, v = (t.view(split).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(hidden, 2))
        scores = torch.matmul(q, k.transpose(-1, -2)) / 8.0
        weights = dropped(torch.softmax(torch.where(self.mask, scores, self.least), -1))
        y = torch.matmul(weights, v).transpose(1, 2).contiguous().view(batch, length, hidden)
        x = x + dropped(self.out(y))
        return x + dropped(self.down(self.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Module):
    """GPT-2 with tied input and output embeddings."""

    def __init__(self, hidden: int, heads: int, layers: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads, length) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.positions(torch.zeros(tokens.shape[1], dtype=torch.int64))
        return self.head(self.norm(self.blocks(dropped(x))))


def residual(batch: int) -> Any:
    layers: list[nn.Module] = [nn.Conv2d(1, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    for stage in range(4):
        layers.append(Residual(64 << max(0, stage - 1), 64 << stage, 2 if stage else 1, False))
        layers.append(Residual(64 << stage, 64 << stage, 1, False))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), images(28, 1)[0].new_empty(batch, 1, 28, 28)


def column(batch: int) -> Any:
    pool = nn.MaxPool2d(3, 2)
    layers = [*conv(3, 64, 11, 4, 2), pool, *conv(64, 192, 5, 1, 2), pool, *conv(192, 384, 3, 1, 1)]
    layers += [*conv(384, 256, 3, 1, 1), *conv(256, 256, 3, 1, 1), pool, nn.Flatten()]
    return nn.Sequential(*layers, *dense(9216, 4096, 4096, 1000)), torch.empty(batch, 3, 224, 224)


def lenet(batch: int) -> Any:
    half = nn.AvgPool2d(2)
    layers = [nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), half, nn.Conv2d(6, 16, 5), nn.Sigmoid(), half]
    net = nn.Sequential(*layers, nn.Flatten(), *dense(400, 120, 84, 10, activation=nn.Sigmoid))
    return net, torch.empty(batch, 1, 28, 28)


def gpt(batch: int, **sizes: int) -> Any:
    return Gpt(**sizes), torch.zeros(batch, sizes["length"], dtype=torch.int64)


_SIZES = {"hidden": 64, "heads": 4, "layers": 2, "vocabulary": 100}
NETWORKS: Mapping[str, tuple[Callable[[int], Any], Mapping[str, Any]]] = {
    "resnet18-28x28": (residual, {}),
    "alexnet-owt": (column, {}),
    "lenet": (lenet, {}),
    "gpt2": (partial(gpt, length=32, **_SIZES), {**_SIZES, "sequence_length": 32, "positions": 32}),
}
NUMBERS = {"resnet18-28x28": 1, "alexnet-owt": 1, "lenet": 1, "gpt2": 10}


def saved_bytes(name: str, batch: int) -> int:
    """Return the bytes of all storages that autograd saves, except parameters and buffers."""
    kept: dict[int, tuple[int, Any]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = (storage.nbytes(), storage)
        return tensor

    with torch.device("meta"):
        module, x = NETWORKS[name][0](batch)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            logits = module(x)
            labels = torch.zeros(logits.shape[:-1].numel(), dtype=torch.int64)
            loss = cross_entropy(logits.reshape(-1, logits.shape[-1]), labels)
    own = {t.untyped_storage()._cdata for t in (*module.parameters(), *module.buffers())}
    assert loss.requires_grad
    return sum(size for place, (size, _) in kept.items() if place not in own)
