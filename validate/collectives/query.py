"""What is asked of a prediction of a collective, read from a row: everything but what was measured.

A :class:`Query` holds no time and no bandwidth, and nothing else of the row reaches the
predictor: so a prediction cannot depend on the value that it is judged by.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from simulator.errors import InputError, one_line
from simulator.strategies.registry import find_strategy
from simulator.workload.collective import Collective
from validate.score.query import NotScored, number

__all__ = [
    "COLUMNS_ASKED",
    "MAX_RANKS",
    "Query",
    "collective_name",
    "read_query",
]

# What read_query may look at.
COLUMNS_ASKED = (
    "machine",
    "n_nodes",
    "n_gpus",
    "gpu_set",
    "group_size",
    "n_groups_concurrent",
    "collective",
    "bytes",
    "algorithm_forced",
    "software",
    "dtype",
)
MAX_RANKS = 4096
_MAX_BYTES = 1e15
_COLLECTIVES: dict[str, tuple[str, Collective]] = {
    "allreduce": ("all_reduce", "all-reduce"),
    "allgather": ("all_gather", "all-gather"),
    "reducescatter": ("reduce_scatter", "reduce-scatter"),
    "broadcast": ("broadcast", "broadcast"),
    "reduce": ("reduce", "reduce"),
    "alltoall": ("all_to_all", "all-to-all"),
    "sendrecv": ("sendrecv", "send-recv"),
}
_INDICES = re.compile(r"\d{1,5}(?:-\d{1,5})?(?:[,;]\s*\d{1,5}(?:-\d{1,5})?)*", re.ASCII)
_PAIRS = re.compile(r"pairs\s+(\d{1,5}>\d{1,5}(?:\s*;\s*\d{1,5}>\d{1,5})*)", re.ASCII)
_ALGORITHM = re.compile(r"(?:nccl_algo\s*=\s*)?(ring|tree|nvls_?tree|nvls|pat)\b(?:\s*\(.*\))?", re.ASCII)
_ONE_EACH = re.compile(r"\b(?:xla|torch|pytorch|mpi|openmpi|horovod|jax)\b", re.IGNORECASE | re.ASCII)
_VERSION = re.compile(r"\bnccl[ =v]{0,2}([1-9]\d?)\.(\d{1,3})\b", re.IGNORECASE | re.ASCII)
# NVIDIA/nccl@5067397c src/include/device.h (ncclNvlsSupported): a switch adds no type of 8 bits.
_SMALL_TYPES = re.compile(r"u?int8|i8|u8|fp8|float8|bool", re.IGNORECASE)
_TESTS_GPUS = re.compile(r"nccl-tests.*\s-g\s*([1-9]\d{0,3})\b", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Query:
    """One or more equal collectives at once on a machine.

    ``local_gpus`` are the GPUs used of each node, None for the first
    ``n_gpus / n_nodes``.  Ranks count through the nodes; each group takes ``group_size``
    consecutive ones.  ``pairs`` are ranks of a group.  ``algorithm`` is None where the
    library chose it itself; ``strategy`` is one of the simulator's, where the row names that.
    ``gpus_per_process`` is how many GPUs one host thread launches for, ``in_switch`` whether a switch
    can add up the type, ``nccl`` NCCL's version where it is known.
    """

    machine: str
    n_nodes: int
    n_gpus: int
    local_gpus: tuple[int, ...] | None
    group_size: int
    n_groups: int
    collective: Collective
    size_bytes: float
    pairs: tuple[tuple[int, int], ...] = ()
    algorithm: str | None = None
    gpus_per_process: int = 1
    strategy: str | None = None
    in_switch: bool = True
    nccl: tuple[int, int] | None = None


def read_query(cell: Callable[[str], str]) -> Query:
    """Return what a row asks; *cell* returns the text of one of ``COLUMNS_ASKED``.

    Raises
    ------
    NotScored
        Where the row is incomplete or asks for what the model does not know.

    """
    collective = _COLLECTIVES.get(_letters(cell("collective")))
    if collective is None:
        raise NotScored(f"unknown collective '{one_line(cell('collective'), 40)}'")
    size_bytes = number("bytes", cell("bytes"))
    if size_bytes > _MAX_BYTES:
        raise NotScored(f"bytes is more than {_MAX_BYTES:g}")
    n_gpus = _count("n_gpus", cell("n_gpus"))
    n_nodes = _count("n_nodes", cell("n_nodes"), 1)
    group_size = _count("group_size", cell("group_size"), n_gpus)
    n_groups = _count("n_groups_concurrent", cell("n_groups_concurrent"), 1)
    if n_gpus > MAX_RANKS:
        raise NotScored(f"more than {MAX_RANKS} GPUs")
    if n_gpus % n_nodes:
        raise NotScored("n_gpus is no multiple of n_nodes")
    if group_size * n_groups > n_gpus:
        raise NotScored("the groups have more ranks than n_gpus")
    if group_size < 2:
        raise NotScored("a group of one rank exchanges nothing")
    algorithm, strategy = _algorithm(cell("algorithm_forced"))
    local_gpus, pairs = _gpu_set(cell("gpu_set"), collective[1], n_gpus // n_nodes, group_size)
    return Query(
        machine=cell("machine"),
        n_nodes=n_nodes,
        n_gpus=n_gpus,
        local_gpus=local_gpus,
        group_size=group_size,
        n_groups=n_groups,
        collective=collective[1],
        size_bytes=size_bytes,
        pairs=pairs,
        algorithm=algorithm,
        gpus_per_process=_gpus_per_process(cell("software"), n_nodes, group_size),
        strategy=strategy,
        in_switch=not _SMALL_TYPES.match(cell("dtype")),
        nccl=_version(cell("software")),
    )


def collective_name(text: str) -> str:
    """Return how tables spell the collective *text*; *text* itself where it is none."""
    found = _COLLECTIVES.get(_letters(text))
    return found[0] if found else one_line(text, 40)


def _count(column: str, text: str, default: int | None = None) -> int:
    if not text and default is not None:
        return default
    value = number(column, text)
    if value != int(value):
        raise NotScored(f"{column} is no whole number")
    return int(value)


def _letters(text: str) -> str:
    return "".join(c for c in text.lower() if c not in "-_ ") if len(text) < 40 else text


def _gpu_set(
    text: str, collective: Collective, per_node: int, group_size: int
) -> tuple[tuple[int, ...] | None, tuple[tuple[int, int], ...]]:
    if not text:
        return None, ()
    match = _PAIRS.fullmatch(text)
    if match is not None:
        if collective != "send-recv":
            raise NotScored("gpu_set names pairs, which belong to a sendrecv")
        pairs = tuple((int(a), int(b)) for a, b in (pair.split(">") for pair in match.group(1).split(";")))
        if any(a == b or max(a, b) >= group_size for a, b in pairs):
            raise NotScored("gpu_set names pairs that are no two ranks of the group")
        return None, pairs
    if not _INDICES.fullmatch(text):
        raise NotScored(f"gpu_set '{one_line(text, 40)}' is neither a list such as 0-3 or 0,2 nor pairs 0>1;2>3")
    gpus: list[int] = []
    for piece in re.split(r"[,;]\s*", text):
        low, _, high = piece.partition("-")
        gpus.extend(range(int(low), int(high or low) + 1))
        if len(gpus) > MAX_RANKS:
            break
    if len(gpus) != per_node or len(set(gpus)) != per_node:
        raise NotScored("gpu_set does not name n_gpus / n_nodes different GPUs")
    return tuple(gpus), ()


def _algorithm(text: str) -> tuple[str | None, str | None]:
    """Return one of NCCL's algorithms, or else one of the simulator's strategies that a row names."""
    if not text:
        return None, None
    match = _ALGORITHM.fullmatch(text.lower())
    if match is not None:
        return match.group(1), None
    if not _is_strategy(text):
        raise NotScored(f"forced algorithm '{one_line(text, 40)}' is not modelled")
    return None, text


@lru_cache(maxsize=256)
def _is_strategy(name: str) -> bool:
    try:
        find_strategy(name)
    except InputError:
        return False
    return True


def _gpus_per_process(software: str, n_nodes: int, group_size: int) -> int:
    """Return how many GPUs a host thread launches for.

    One under MPI, in frameworks and over several nodes; otherwise what nccl-tests' ``-g``
    says, and all, as nccl-tests is mostly run on one machine, where nothing is said.
    """
    if n_nodes > 1 or _ONE_EACH.search(software):
        return 1
    found = _TESTS_GPUS.search(software)
    return min(int(found.group(1)), group_size) if found else group_size


def _version(software: str) -> tuple[int, int] | None:
    """Return NCCL's major and minor version where *software* has it."""
    found = _VERSION.search(software)
    return (int(found.group(1)), int(found.group(2))) if found else None
