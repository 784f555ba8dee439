"""Capture work in a CUDA graph so that a capture that fails is the fault of its case alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

__all__ = ["recorded"]


@contextmanager
def recorded(graph: Any) -> Iterator[None]:
    """Capture in *graph* what is issued within; where that fails, torch is left as it was before."""
    pool = torch.cuda.graph_pool_handle()  # known by name, so that it can be given back
    try:
        with torch.cuda.graph(graph, pool=pool):
            yield
    except BaseException:
        _recover(pool)
        raise


def _recover(pool: Any) -> None:
    """Undo what a capture that CUDA refused to end leaves behind (torch 2.11, CUDAGraph::capture_end, stops there).

    Its own stream is the current one; the allocator takes a capture to be under way, and keeps the memory; the
    generator of random numbers refuses all that is not captured.
    """
    torch.cuda.set_stream(torch.cuda.default_stream())
    with suppress(RuntimeError, AttributeError):  # it raises where the capture has ended in good order
        device = torch.cuda.current_device()
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
    try:
        number = torch.zeros(1, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):  # the generator leaves its mode at the end of a good capture
            number.zero_()
    except RuntimeError:  # the device may be lost, which the first error tells
        torch.cuda.set_stream(torch.cuda.default_stream())
