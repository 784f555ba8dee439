"""BERT (Devlin et al., arXiv 1810.04805, section 3), layer by layer as Hugging Face's model runs it."""

from __future__ import annotations

import torch
from torch import nn

from validate.machine.measure.cases.networks.attention import SelfAttention


class _Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, hidden: int, heads: int, length: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(hidden, hidden) for _ in range(3))
        self.attention = SelfAttention(heads, length, "add-padding")
        self.out = nn.Linear(hidden, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.gelu, self.down = nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.out(self.attention(self.q(x), self.k(x), self.v(x)))
        x = self.norm1(self.dropout(y) + x)
        return self.norm2(self.dropout(self.down(self.gelu(self.up(x)))) + x)


class Encoder(nn.Module):  # type: ignore[misc]
    """BERT with its pretraining heads if *training*, else with a classifier of two classes."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        layers: int,
        vocabulary: int,
        length: int,
        *,
        training: bool,
        positions: int = 512,
    ) -> None:
        super().__init__()
        self.embed, self.segments = nn.Embedding(vocabulary, hidden), nn.Embedding(2, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.norm, self.dropout = nn.LayerNorm(hidden), nn.Dropout(0.1)
        self.layers = nn.Sequential(*(_Layer(hidden, heads, length) for _ in range(layers)))
        self.pooler = nn.Linear(hidden, hidden)
        self.pretraining = training
        if training:
            self.transform, self.gelu, self.transform_norm = nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden)
            self.predictions = nn.Linear(hidden, vocabulary)
            self.predictions.weight = self.embed.weight
        self.relationship = nn.Linear(hidden, 2)
        self.register_buffer("places", torch.arange(length))

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the logits: of words and of the next sentence in pretraining, else of the two classes."""
        x = self.embed(tokens) + self.segments(segments) + self.positions(self.places)
        x = self.layers(self.dropout(self.norm(x)))
        pooled = torch.tanh(self.pooler(x[:, 0]))
        if not self.pretraining:
            return (self.relationship(self.dropout(pooled)),)
        y = self.predictions(self.transform_norm(self.gelu(self.transform(x))))
        return y, self.relationship(pooled)
