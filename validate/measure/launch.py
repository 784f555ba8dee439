"""What issuing work costs: an empty-handed kernel in a stream, alone, and from a captured graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from validate.measure.bench import Bench
from validate.measure.case import Case, Mode, Work

__all__ = ["cases"]

_ELEMENTS = 64  # so few that the kernel itself takes no time that counts
_MODES: dict[Mode, str] = {
    "stream": "one after the other",
    "single": "alone, waiting for it",
    "graph": "from a captured graph",
}


def cases(bench: Bench, machine: str) -> Iterator[Case]:
    """Yield a small operator under each way of issuing it; graphs on GPUs alone."""
    del machine
    for metric, operator in (("relu in place", torch.relu_), ("sum of two", None)):
        for mode, words in _MODES.items():
            if mode == "graph" and not bench.is_cuda:
                continue
            columns = {"metric": f"time of one {metric} of {_ELEMENTS} numbers", "mode": f"torch eager, {words}"}
            yield Case("launch", "launch.csv", columns, partial(_small, operator is None, mode))


def _small(two: bool, mode: Mode, bench: Bench) -> Work:
    x = torch.zeros(_ELEMENTS, device=bench.device)
    y = torch.zeros(_ELEMENTS, device=bench.device)
    z = torch.empty_like(x)
    if two:
        return Work(lambda _: torch.add(x, y, out=z), mode)
    return Work(lambda _: torch.relu_(x), mode)
