"""Self-attention as frameworks run it, in separate operations (eager) or one (fused), and rotary embeddings."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own short name

Mask = Literal["add-padding", "where-causal", "fused-causal"]


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Attention with *heads* heads over queries, keys and values of shape ``(batch, length, heads * size)``.

    *mask*: ``add-padding`` adds a padding mask to the scores, like Hugging Face's BERT with
    ``attn_implementation="eager"``; ``where-causal`` selects by a causal mask, like its GPT-2; ``fused-causal`` is one
    call of ``scaled_dot_product_attention``.
    """

    mask: torch.Tensor

    def __init__(self, heads: int, length: int, mask: Mask, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads, self.kind = heads, mask
        self.dropout = nn.Dropout(dropout)
        if mask == "where-causal":
            self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).tril().view(1, 1, length, length))
            self.register_buffer("least", torch.full((), -1e4))
        elif mask == "add-padding":
            self.register_buffer("mask", torch.zeros(1, 1, 1, length))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return the attention output, of shape ``(batch, length, heads * size)``."""
        batch, length, hidden = q.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        if self.kind == "fused-causal":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(batch, length, hidden)
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        if self.kind == "where-causal":
            scores = torch.where(self.mask, scores, self.least)
        else:
            if self.mask.dtype != scores.dtype:  # under autocast: cast once, so that the sum has the scores' format
                self.mask = self.mask.to(scores.dtype)
            scores = scores + self.mask
        weights = self.dropout(torch.softmax(scores, -1))
        y = torch.matmul(weights.to(v.dtype), v)
        return y.transpose(1, 2).contiguous().view(batch, length, hidden)


class Rotation(nn.Module):  # type: ignore[misc]
    """Rotary embeddings for heads of *size* (Su et al., arXiv 2104.09864, section 3.2), one kernel per operation."""

    cosine: torch.Tensor
    sine: torch.Tensor

    def __init__(self, length: int, size: int) -> None:
        super().__init__()
        rates = 1e4 ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)
        angles = torch.cat((angles, angles), -1).view(1, length, 1, size)
        self.register_buffer("cosine", torch.cos(angles))
        self.register_buffer("sine", torch.sin(angles))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return *x*, of shape ``(batch, length, heads, size)``, rotated by position."""
        if self.cosine.dtype != x.dtype:  # under autocast: cast once
            self.cosine, self.sine = self.cosine.to(x.dtype), self.sine.to(x.dtype)
        first, second = x.chunk(2, -1)
        return x * self.cosine + torch.cat((-second, first), -1) * self.sine
