"""Ladders of sizes, an order that covers their range early, and random contents of buffers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def ladder(first: int, last: int, factor: int = 4) -> list[int]:
    """Return *first* and its multiples by powers of *factor*, up to *last*."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return sizes


def spread(items: Sequence[T]) -> list[T]:
    """Return *items* in the order last, first, middle, then middles of the gaps: any first part covers the range."""
    if len(items) <= 2:
        return list(items)[::-1]
    order = [len(items) - 1, 0]
    gaps = [(0, len(items) - 1)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle > low:
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [items[i] for i in order]


_BLOCK = 4 << 20  # bytes; larger buffers repeat the block, as generating random bytes is slower than copying


def random_bytes(size: int, device: Any, *, pinned: bool = False) -> Any:
    """Return *size* random bytes on *device*, or *pinned*; equal ones would draw less power and raise the clock."""
    buffer = torch.empty(size, dtype=torch.uint8, device=device, pin_memory=pinned)
    block = _block()
    if buffer.device.type != "cpu":
        block = block.to(device)
    for start in range(0, size, _BLOCK):
        part = buffer[start : start + _BLOCK]
        part.copy_(block[: len(part)])
    return buffer


@cache
def _block() -> Any:
    return torch.randint(0, 256, (_BLOCK,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
