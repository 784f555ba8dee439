"""Capture work in a CUDA graph such that a failed capture does not affect later cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def recorded(graph: Any) -> Iterator[None]:
    """Capture the work issued in the body into *graph*; on failure restore torch's state and raise the error."""
    pool = torch.cuda.graph_pool_handle()  # explicit, so that it can be released
    try:
        with torch.cuda.graph(graph, pool=pool):
            yield
    except BaseException:
        _recover(pool)
        raise


def _recover(pool: Any) -> None:
    """Undo what a capture leaves behind when CUDA refuses to end it (torch 2.11, CUDAGraph::capture_end, stops there).

    Its private stream is still current, the allocator believes that a capture is under way and keeps the memory, and
    the random number generator refuses any use outside a capture.
    """
    torch.cuda.set_stream(torch.cuda.default_stream())
    with suppress(RuntimeError, AttributeError):  # raised where the capture did end properly
        device = torch.cuda.current_device()
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
    try:
        number = torch.zeros(1, device="cuda")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):  # a successful capture resets the generator
            number.zero_()
    except RuntimeError:  # the device may be lost, which the original error reports
        torch.cuda.set_stream(torch.cuda.default_stream())
