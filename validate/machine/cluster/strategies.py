"""What is measured, and which strategy of the simulator describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simulator.errors import InputError, nearest, one_line
from simulator.workload.collective import Collective

__all__ = ["DEFAULT", "Strategy", "find_strategy"]

_NUMBERED = re.compile(r"parameter-server-([1-9]\d{0,2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to exchange: ``name`` as ``--strategies`` takes it, ``predictor`` as ``simulate --strategy`` does.

    ``n_servers`` is 0 where gloo does it, and None for a server on every host.
    """

    name: str
    collective: Collective
    predictor: str
    n_servers: int | None = 0

    def servers(self, n_nodes: int) -> int:
        """Return how many of *n_nodes* hosts are servers."""
        return n_nodes if self.n_servers is None else self.n_servers


_KNOWN = {
    "ring": Strategy("ring", "all-reduce", "gloo"),
    "parameter-server": Strategy("parameter-server", "all-reduce", "parameter-server", 1),
    "parameter-server-colocated": Strategy(
        "parameter-server-colocated", "all-reduce", "parameter-server-colocated", None
    ),
    "broadcast": Strategy("broadcast", "broadcast", "gloo"),
}
_SYNONYMS = {"sharded": "parameter-server-colocated", "all-reduce": "ring"}
DEFAULT = ",".join(_KNOWN)


def find_strategy(name: str) -> Strategy:
    """Return the strategy called *name*.

    Raises InputError where none is; names the nearest.
    """
    word = name.strip().lower()
    word = _SYNONYMS.get(word, word)
    if word in _KNOWN:
        return _KNOWN[word]
    match = _NUMBERED.fullmatch(word)
    if match:
        return Strategy(word, "all-reduce", word, int(match[1]))
    names = [*_KNOWN, "parameter-server-2", *_SYNONYMS]
    raise InputError(f"--strategies: '{one_line(name, 40)}' is not measured; {nearest(word, names)}")
