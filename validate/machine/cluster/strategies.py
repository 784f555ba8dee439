"""The strategies that can be measured, and the simulator's strategy for each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simulator.api.collectives import is_strategy, strategy_names
from simulator.errors import InputError, nearest, one_line
from simulator.workload.collective import Collective

DEFAULT = "ring,halving-doubling,sharded,parameter-server,gloo,broadcast"
_SERVERS = re.compile(r"parameter-server-([1-9]\d{0,2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A strategy: ``name`` as in ``--strategies``, ``predictor`` as in ``simulate --strategy``.

    ``by_torch`` marks torch's own collectives; the others run send by send, as the simulator plans them.
    ``least_nodes`` is the fewest hosts that the strategy needs.
    """

    name: str
    collective: Collective
    predictor: str
    by_torch: bool = False
    least_nodes: int = 2


_BY_TORCH = {
    "gloo": Strategy("gloo", "all-reduce", "gloo", by_torch=True),
    "broadcast": Strategy("broadcast", "broadcast", "gloo", by_torch=True),
}


def find_strategy(name: str) -> Strategy:
    """Return the strategy called *name*: one of torch's own, or any schedule of ``simulate --strategy``.

    Raises InputError for any other name; suggests the nearest.
    """
    word = name.strip().lower()
    if word in _BY_TORCH:
        return _BY_TORCH[word]
    if is_strategy(word) and word != "nccl":
        servers = _SERVERS.fullmatch(word)
        return Strategy(word, "all-reduce", word, least_nodes=max(2, int(servers[1])) if servers else 2)
    names = [*(known for known in strategy_names() if known != "nccl"), "parameter-server-2", *_BY_TORCH]
    raise InputError(f"--strategies: '{one_line(name, 40)}' is not measured; {nearest(word, names)}")
