"""What a stand brings to an exchange, and what must come out: whole numbers, whose sums are exact."""

from __future__ import annotations

from typing import Any

import torch

from validate.machine.measure.exchange import Exchange

__all__ = ["Contribution"]

_PERIOD = 251  # a prime: no stretch of a buffer looks like another at the same distance
# Sums of floats are exact as long as all of them are whole numbers below 2 to the bits of the significand.
_MOST = {torch.float16: 1 << 11, torch.bfloat16: 1 << 8, torch.float32: 1 << 24}


class Contribution:
    """What stand *stand* brings to *exchange*, in elements of *dtype*, and whether it has got what it must get.

    A rank brings numbers that tell it and the place in the buffer apart; a helper what nobody may read.
    """

    def __init__(self, exchange: Exchange, stand: int, dtype: Any, root: int = 0) -> None:
        n, count, collective = exchange.n_ranks, exchange.n_elements, exchange.collective
        is_rank = stand < n
        self._brought = _numbers(exchange, stand, dtype) if is_rank else None
        self._blocks: list[tuple[int, int, Any]] = []  # from, to, and what must be there
        blocks = [(count * i // n, count * (i + 1) // n) for i in range(n)]
        if not is_rank or (collective == "reduce" and stand != root):
            return
        if collective == "broadcast":
            self._blocks = [(0, count, _numbers(exchange, root, dtype))]
        elif collective == "all-gather":
            self._blocks = [(a, b, _numbers(exchange, rank, dtype)[a:b]) for rank, (a, b) in enumerate(blocks)]
        elif collective in ("all-reduce", "reduce", "reduce-scatter"):
            a, b = blocks[stand] if collective == "reduce-scatter" else (0, count)
            total = torch.zeros(b - a, dtype=dtype)
            for rank in range(n):
                total += _numbers(exchange, rank, dtype)[a:b]
            self._blocks = [(a, b, total)]
        else:
            raise ValueError(f"{collective} is not run rank by rank")

    def fill(self, buffer: Any) -> None:
        """Write it into *buffer*."""
        if self._brought is None:
            buffer.fill_(-1)
        else:
            buffer.copy_(self._brought)

    def is_right(self, buffer: Any) -> bool:
        """Return whether *buffer*, filled and exchanged once, holds what it must, to the last bit."""
        found = buffer.cpu()
        return all(torch.equal(found[a:b], wanted) for a, b, wanted in self._blocks)


def _numbers(exchange: Exchange, rank: int, dtype: Any) -> Any:
    most = min(_PERIOD, _MOST.get(dtype, 1 << 24) // exchange.n_ranks - 1)
    return (torch.arange(exchange.n_elements) * (rank + 1) % most + rank % 2).to(dtype)
