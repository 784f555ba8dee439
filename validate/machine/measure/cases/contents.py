"""Random buffer contents: equal values would lower a device's power draw and so change its clock."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_BLOCK = 4 << 20  # bytes; larger buffers repeat the block, as generating random bytes is slower than copying


def random_bytes(size: int, device: Any, *, pinned: bool = False) -> Any:
    """Return *size* random bytes on *device*; *pinned*: in page-locked host memory."""
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
