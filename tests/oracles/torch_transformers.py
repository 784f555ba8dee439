"""Transformers of the zoo as torch modules: GPT-2, MPT, Llama, Mixtral, BERT and ViT."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it
from torch.utils.checkpoint import checkpoint

from tests.oracles.pretended_cuda import autocasting
from tests.oracles.torch_memory import NewGelu


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, dropout: float = 0.0) -> torch.Tensor:
    """Return attention by the kernel that CUDA takes: flash attention in half precision, else the efficient one."""
    if torch.is_autocast_enabled("cuda"):
        q, k, v = (t.to(torch.get_autocast_dtype("cuda")) for t in (q, k, v))
    if q.dtype is torch.float32:
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(q, k, v, None, True, dropout, causal)[0]
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, False)[0]


@dataclass(frozen=True)
class Sizes:
    hidden: int = 256
    heads: int = 4
    layers: int = 2
    vocabulary: int = 1000
    length: int = 512
    kv_heads: int = 4
    inner: int = 1024
    experts: int = 0
    dropout: float = 0.0
    fused: bool = True  # attention in one kernel
    again: bool = False  # blocks run again in the backward pass

    @property
    def options(self) -> dict[str, int]:
        return {
            "hidden": self.hidden,
            "heads": self.heads,
            "layers": self.layers,
            "vocabulary": self.vocabulary,
            "sequence_length": self.length,
        }


def _split(x: torch.Tensor, heads: int) -> torch.Tensor:
    batch, length, _ = x.shape
    return x.view(batch, length, heads, -1).transpose(1, 2)


def _merged(y: torch.Tensor) -> torch.Tensor:
    batch, heads, length, size = y.shape
    return y.transpose(1, 2).reshape(batch, length, heads * size)


def _drop(x: torch.Tensor, s: Sizes) -> torch.Tensor:
    return F.dropout(x, s.dropout) if s.dropout else x


def _run(block: nn.Module, *inputs: torch.Tensor, again: bool) -> torch.Tensor:
    """Return the result of *block*; *again*: it saves its inputs alone, and runs again in the backward pass."""
    if not again:
        return block(*inputs)
    anew = autocasting if torch.is_autocast_enabled("cuda") else nullcontext
    return checkpoint(block, *inputs, use_reentrant=False, context_fn=lambda: (nullcontext(), anew()))


def _kernel_by_kernel(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, dropout: float
) -> torch.Tensor:
    """Return attention whose *mask* is added or, if of booleans, selects."""
    weights = torch.matmul(q, k.transpose(-1, -2))
    weights = weights / math.sqrt(q.shape[-1])
    chosen = mask.dtype is torch.bool
    weights = torch.where(mask, weights, torch.zeros((), dtype=weights.dtype)) if chosen else weights + mask
    weights = torch.softmax(weights, -1)
    weights = F.dropout(weights, dropout) if dropout else weights
    return torch.matmul(weights, v)


class GptBlock(nn.Module):
    """A block of GPT-2 with the formula of GELU, or of MPT with one kernel for it and no biases."""

    def __init__(self, s: Sizes, mpt: bool) -> None:
        super().__init__()
        h = s.hidden
        self.norm1, self.norm2 = nn.LayerNorm(h, bias=not mpt), nn.LayerNorm(h, bias=not mpt)
        self.qkv, self.out = nn.Linear(h, 3 * h, bias=not mpt), nn.Linear(h, h, bias=not mpt)
        self.up, self.down = nn.Linear(h, 4 * h, bias=not mpt), nn.Linear(4 * h, h, bias=not mpt)
        self.gelu = nn.GELU() if mpt else NewGelu()
        self.s = s

    def forward(self, x: torch.Tensor, *mask: torch.Tensor) -> torch.Tensor:
        s = self.s
        q, k, v = (_split(t, s.heads) for t in self.qkv(self.norm1(x)).split(s.hidden, 2))
        y = _kernel_by_kernel(q, k, v, *mask, s.dropout) if mask else attend(q, k, v, causal=True, dropout=s.dropout)
        x = x + _drop(self.out(_merged(y)), s)
        return x + _drop(self.down(self.gelu(self.up(self.norm2(x)))), s)


class Experts(nn.Module):
    """A mixture of gated experts, of which each token takes two: Hugging Face's ``grouped_mm_experts_forward``."""

    def __init__(self, h: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(h, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, 2 * inner, h))
        self.down = nn.Parameter(torch.empty(experts, h, inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.view(-1, x.shape[-1])
        weights, chosen = torch.topk(torch.softmax(self.router(y).float(), -1), 2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        of_rows, order = torch.sort(chosen.reshape(-1))
        counts = torch.histc(of_rows.int(), bins=len(self.up), min=0, max=len(self.up) - 1)
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        weights = weights.reshape(-1)[order]
        y = y[order // 2]
        y = F.grouped_mm(y, self.up.transpose(-2, -1), offs=ends)
        gate, up = y.chunk(2, -1)
        y = F.silu(gate) * up
        y = F.grouped_mm(y, self.down.transpose(-2, -1), offs=ends)
        y = y * weights.unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return y[back].view(-1, 2, x.shape[-1]).sum(1).to(x.dtype).view(x.shape)


class LlamaBlock(nn.Module):
    def __init__(self, s: Sizes) -> None:
        super().__init__()
        h, kv = s.hidden, s.hidden // s.heads * s.kv_heads
        self.norm1, self.norm2 = nn.RMSNorm(h), nn.RMSNorm(h)
        self.q, self.k, self.v = (nn.Linear(h, n, bias=False) for n in (h, kv, kv))
        self.out = nn.Linear(h, h, bias=False)
        if s.experts:
            self.experts = Experts(h, s.inner, s.experts)
        else:
            self.gate, self.up = nn.Linear(h, s.inner, bias=False), nn.Linear(h, s.inner, bias=False)
            self.down = nn.Linear(s.inner, h, bias=False)
        self.s = s

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        s = self.s
        y = self.norm1(x)
        q, k, v = _split(self.q(y), s.heads), _split(self.k(y), s.kv_heads), _split(self.v(y), s.kv_heads)
        q, k = (t * cosine + torch.cat((-t.chunk(2, -1)[1], t.chunk(2, -1)[0]), -1) * sine for t in (q, k))
        x = x + self.out(_merged(attend(q, k, v, causal=True)))
        y = self.norm2(x)
        return x + (self.experts(y) if self.s.experts else self.down(F.silu(self.gate(y)) * self.up(y)))


class Decoder(nn.Module):
    """GPT-2 and MPT (tied embeddings) or Llama."""

    def __init__(self, kind: str, s: Sizes) -> None:
        super().__init__()
        self.kind, self.s = kind, s
        self.embed = nn.Embedding(s.vocabulary, s.hidden)
        if kind != "llama":
            self.positions = nn.Embedding(s.length, s.hidden)
        block = LlamaBlock if kind == "llama" else partial(GptBlock, mpt=kind == "mpt")
        self.blocks = nn.ModuleList(block(s) for _ in range(s.layers))
        self.norm = nn.RMSNorm(s.hidden) if kind == "llama" else nn.LayerNorm(s.hidden, bias=kind != "mpt")
        self.head = nn.Linear(s.hidden, s.vocabulary, bias=False)
        if kind != "llama":
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        s = self.s
        x = self.embed(tokens)
        constants: tuple[torch.Tensor, ...] = ()
        if self.kind != "llama":
            x = _drop(x + self.positions(torch.arange(s.length)), s)
            constants = () if s.fused else (torch.zeros(s.length, s.length, dtype=torch.bool),)
        else:
            sine = torch.zeros(s.length, s.hidden // s.heads, dtype=self.norm.weight.dtype)
            constants = (sine, sine)
        for block in self.blocks:
            x = _run(block, x, *constants, again=s.again)
        return self.head(self.norm(x))


class BertBlock(nn.Module):
    """A block of BERT with attention kernel by kernel."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        h = s.hidden
        self.q, self.k, self.v, self.out = (nn.Linear(h, h) for _ in range(4))
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.s = s

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        s = self.s
        q, k, v = (_split(layer(x), s.heads) for layer in (self.q, self.k, self.v))
        y = _kernel_by_kernel(q, k, v, mask, s.dropout)
        x = self.norm1(_drop(self.out(_merged(y)), s) + x)
        return self.norm2(_drop(self.down(F.gelu(self.up(x))), s) + x)


class Bert(nn.Module):
    """BERT with the heads of pretraining."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        h, self.s = s.hidden, s
        self.embed, self.segments, self.positions = (nn.Embedding(n, h) for n in (s.vocabulary, 2, s.length))
        self.norm = nn.LayerNorm(h)
        self.blocks = nn.ModuleList(BertBlock(s) for _ in range(s.layers))
        self.pooler, self.relationship = nn.Linear(h, h), nn.Linear(h, 2)
        self.transform, self.norm2 = nn.Linear(h, h), nn.LayerNorm(h)
        self.head = nn.Linear(h, s.vocabulary)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embed(tokens) + self.segments(segments) + self.positions(torch.arange(self.s.length))
        x = _drop(self.norm(x), self.s)
        mask = torch.zeros(len(tokens), 1, 1, self.s.length, dtype=self.norm.weight.dtype)
        for block in self.blocks:
            x = _run(block, x, mask, again=self.s.again)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return self.head(self.norm2(F.gelu(self.transform(x)))), self.relationship(pooled)


class VisionBlock(nn.Module):
    def __init__(self, h: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(h, h) for _ in range(4))
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)
        self.norm1, self.norm2, self.heads = nn.LayerNorm(h), nn.LayerNorm(h), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (_split(layer(y), self.heads) for layer in (self.q, self.k, self.v))
        x = self.out(_merged(attend(q, k, v, causal=False))) + x
        return self.down(F.gelu(self.up(self.norm2(x)))) + x


class Vision(nn.Module):
    """ViT-B/32 with fused attention."""

    def __init__(self) -> None:
        super().__init__()
        h = 768
        self.patches, self.token = nn.Conv2d(3, h, 32, 32), nn.Parameter(torch.empty(1, 1, h))
        self.positions = nn.Parameter(torch.empty(1, 50, h))
        self.blocks = nn.Sequential(*(VisionBlock(h, 12) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(h), nn.Linear(h, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(images), -1, -1), x), 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])
