"""Bytes that autograd saves in a torch module's forward pass, to compare with the simulator's count."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def masks_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make dropout work like CUDA's kernel, with a mask of bytes."""

    def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        del inplace
        return torch.native_dropout(x, p, True)[0] if training else x

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)


def kept_bytes(example: Any) -> int:
    """Return the bytes of all storages that autograd saves, except parameters and buffers."""
    kept: dict[int, tuple[int, Any]] = {}

    def pack(tensor: Any) -> None:
        """Save nothing: there is no backward pass, and an operator that holds its own output would never be freed."""
        storage = tensor.untyped_storage()
        kept[storage._cdata] = (storage.nbytes(), storage)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda nothing: nothing):
        loss = example.loss()
    own = {t.untyped_storage()._cdata for t in (*example.module.parameters(), *example.module.buffers())}
    assert loss.requires_grad
    return sum(size for place, (size, _) in kept.items() if place not in own)
