"""Decoder-only transformers: GPT-2 as Hugging Face runs it, MPT and Llama with fused attention."""

from __future__ import annotations

import math

import torch
from torch import nn

from validate.machine.measure.cases.networks.attention import Rotation, SelfAttention


def _new_gelu(x: torch.Tensor) -> torch.Tensor:
    """Return the tanh approximation of GELU, one kernel per operation."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class _GptLayer(nn.Module):  # type: ignore[misc]
    def __init__(self, hidden: int, heads: int, length: int, fused: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.attention = SelfAttention(heads, length, "fused-causal" if fused else "where-causal")
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.gelu = nn.GELU() if fused else _new_gelu
        self.dropout = nn.Identity() if fused else nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.attention(*self.qkv(self.norm1(x)).chunk(3, -1))
        x = self.dropout(self.out(y)) + x
        return x + self.dropout(self.down(self.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Module):  # type: ignore[misc]
    """GPT-2 with eager attention; *fused*: MPT, with fused attention and no dropout.

    The output layer shares its weight with the token embedding.  *positions* is the number of position embeddings
    (*length* where 0).
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        layers: int,
        vocabulary: int,
        length: int,
        *,
        positions: int = 0,
        fused: bool = False,
    ) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(positions or length, hidden)
        self.dropout = nn.Identity() if fused else nn.Dropout(0.1)
        self.layers = nn.Sequential(*(_GptLayer(hidden, heads, length, fused) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("places", torch.arange(length))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each token."""
        x = self.dropout(self.embed(tokens) + self.positions(self.places))
        return self.head(self.norm(self.layers(x)))


class _LlamaLayer(nn.Module):  # type: ignore[misc]
    def __init__(self, hidden: int, heads: int, inner: int, length: int, rotate: Rotation) -> None:
        super().__init__()
        self.heads, self.rotate = heads, rotate
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-6), nn.RMSNorm(hidden, eps=1e-6)
        self.q, self.k, self.v, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.attention = SelfAttention(heads, length, "fused-causal")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        split = (*y.shape[:2], self.heads, -1)
        q, k = (self.rotate(layer(y).view(split)).view(y.shape) for layer in (self.q, self.k))
        x = x + self.out(self.attention(q, k, self.v(y)))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):  # type: ignore[misc]
    """Llama (Touvron et al., arXiv 2302.13971) with as many key heads as query heads."""

    def __init__(self, hidden: int, heads: int, layers: int, inner: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden)
        rotate = Rotation(length, hidden // heads)
        self.layers = nn.Sequential(*(_LlamaLayer(hidden, heads, inner, length, rotate) for _ in range(layers)))
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each token."""
        return self.head(self.norm(self.layers(self.embed(tokens))))
