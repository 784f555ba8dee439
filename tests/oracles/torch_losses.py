"""Cross-entropies that never hold all scores, in torch, for steps whose memory is followed.

They allocate what torchtitan's ``ChunkedCELoss`` and Liger's fused kernel do; the kernel itself is any in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

CHUNKS = 8


class _Known(torch.autograd.Function):
    """A loss whose gradient of the hidden state is known."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, gradient: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gradient)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        return *ctx.saved_tensors, None, None


def chunked(hidden: torch.Tensor, head: nn.Linear, labels: torch.Tensor) -> torch.Tensor:
    """Return the loss, a chunk of rows at a time, each with its backward pass."""
    gradient = torch.zeros_like(hidden, dtype=torch.float32)
    total = hidden.new_zeros((), dtype=torch.float32)
    rows = len(hidden) // CHUNKS
    for start in range(0, len(hidden), rows):
        part = hidden[start : start + rows].detach().requires_grad_()
        scores = head(part)
        loss = cross_entropy(scores.float(), labels[start : start + rows], reduction="sum")
        loss.backward()
        gradient[start : start + rows] = part.grad
        part.grad = None
        total = total + loss.detach()
    return _Known.apply(hidden, gradient.to(hidden.dtype), total)


class _Liger(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        words, width = weight.shape
        rows = 1 << (-(-len(hidden) // -(-words // width)) - 1).bit_length()
        of_hidden, of_weight = torch.zeros_like(hidden), torch.zeros_like(weight)
        there = torch.empty(rows, words, dtype=hidden.dtype)
        for start in range(0, len(hidden), rows):
            part = hidden[start : start + rows]
            scores = there[: len(part)]
            torch.mm(part, weight.t(), out=scores)
            scores.exp_()
            torch.mm(scores, weight, out=of_hidden[start : start + rows])
            torch.addmm(of_weight, scores.t(), part, out=of_weight)
        ctx.save_for_backward(of_hidden, of_weight)
        return hidden.new_zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        of_hidden, of_weight = ctx.saved_tensors
        return of_hidden.mul_(0.5), of_weight.mul_(0.5)


def fused_linear(hidden: torch.Tensor, head: nn.Linear, _: torch.Tensor) -> torch.Tensor:
    """Return the loss; the forward pass computes the gradients, too."""
    return _Liger.apply(hidden, head.weight)


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor) -> torch.Tensor:
        sums = scores.new_zeros(3 * len(scores), dtype=torch.float32)
        ctx.save_for_backward(scores, sums)
        return sums.sum()

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        scores, _sums = ctx.saved_tensors
        return scores.detach().exp_()


def in_place(hidden: torch.Tensor, head: nn.Linear, _: torch.Tensor) -> torch.Tensor:
    """Return the loss; the backward pass writes the gradient of the scores over them."""
    return _InPlace.apply(head(hidden))


LOSSES = {"chunked": chunked, "fused-linear": fused_linear, "in-place": in_place}
