"""Over which GPUs a row's step is spread, and what they exchange."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from simulator.errors import one_line
from validate.score.query import NotScored, number

__all__ = ["Spread", "read_spread"]

_ALL_REDUCE = re.compile(r"ddp|horovod|nccl|replicated \(nccl\)", re.IGNORECASE)
_DIVIDES = ("tp", "pp", "cp", "ep")


@dataclass(frozen=True, slots=True)
class Spread:
    """How many GPUs of how many nodes work on a step, and how.

    ``all-reduce``: each has a copy of the network, and gradients are summed; ``shard``: each keeps a share of the
    parameters, and gathers them when it needs them.  ``sums_in_fp32``: of shards, their gradients.
    """

    ranks: int
    nodes: int
    kind: Literal["all-reduce", "shard"]
    sums_in_fp32: bool = False


def read_spread(cell: Callable[[str], str]) -> Spread | None:
    """Return how a row's step is spread over GPUs, None where one computes it, or a CPU.

    Raises
    ------
    NotScored
        Where the network itself is divided, gradients go through a server, or the row does not say.

    """
    if cell("n_gpus") == "0":
        return None
    ranks, nodes = (_count(cell, column) for column in ("n_gpus", "n_nodes"))
    if ranks == nodes == 1:
        return None
    if ranks % nodes:
        raise NotScored("n_gpus is no multiple of n_nodes")
    divided = [column for column in _DIVIDES if _count(cell, column) != 1]
    if divided:
        raise NotScored(f"the network is divided among GPUs ({', '.join(divided)}): only copies of it are scored")
    if cell("fsdp") in ("1", "1.0"):
        return Spread(ranks, nodes, "shard", "fp32" in cell("sync"))
    if not _ALL_REDUCE.match(cell("sync")):
        way = one_line(cell("sync"), 30)
        raise NotScored(f"more than one GPU, exchanged by '{way}': ddp, horovod, nccl are scored")
    return Spread(ranks, nodes, "all-reduce")


def _count(cell: Callable[[str], str], column: str) -> int:
    value = number(column, cell(column) or "1")
    if value != int(value):
        raise NotScored(f"{column} is no whole number")
    return int(value)
