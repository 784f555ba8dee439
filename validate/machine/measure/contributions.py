"""The input and the expected result of each stand in an exchange: integers, whose sums are exact."""

from __future__ import annotations

from typing import Any

import torch

from validate.machine.measure.exchange import BufferExchange

_PERIOD = 251  # prime, so that the pattern does not align with blocks of a buffer
# All integers up to this one are exact in the format: 2 to the number of significand bits.
_MOST = {torch.float16: 1 << 11, torch.bfloat16: 1 << 8, torch.float32: 1 << 24}


class Contribution:
    """The input of stand *stand* in *exchange*, as elements of *dtype*, and a check of its result.

    A rank's values depend on the rank and the position in the buffer.  A helper starts with -1, which must not reach
    any result.

    Raises ValueError for a collective whose result is not known here.
    """

    def __init__(self, exchange: BufferExchange, stand: int, dtype: Any) -> None:
        n, count, collective = exchange.n_ranks, exchange.n_elements, exchange.collective
        is_rank = stand < n
        self._brought = _numbers(exchange, stand, dtype) if is_rank else None
        self._blocks: list[tuple[int, int, Any]] = []  # first and last position, and the expected values
        blocks = [(count * i // n, count * (i + 1) // n) for i in range(n)]
        if not is_rank or (collective == "reduce" and stand != exchange.root):
            return
        if collective == "broadcast":
            self._blocks = [(0, count, _numbers(exchange, exchange.root, dtype))]
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
        """Write the stand's input into *buffer*."""
        if self._brought is None:
            buffer.fill_(-1)
        else:
            buffer.copy_(self._brought)

    def is_right(self, buffer: Any) -> bool:
        """Return whether *buffer* holds the expected result, bit for bit, after one exchange."""
        found = buffer.cpu()
        return all(torch.equal(found[a:b], wanted) for a, b, wanted in self._blocks)


def _numbers(exchange: BufferExchange, rank: int, dtype: Any) -> Any:
    most = min(_PERIOD, _MOST.get(dtype, 1 << 24) // exchange.n_ranks - 1)
    return (torch.arange(exchange.n_elements) * (rank + 1) % most + rank % 2).to(dtype)
