"""Tables of measured collectives."""

import re
from collections.abc import Mapping
from contextlib import suppress

from simulator.api.context import ALPHA_S, is_strategy, machines_fitted_to
from simulator.errors import one_line
from simulator.package_data import own_data
from simulator.questions.collective import ALGORITHMS, DTYPES, SENDING, Algorithm, CollectiveQuestion
from simulator.questions.nccl import Feature
from simulator.questions.where import Software
from simulator.workload import Collective
from validate.kinds.kind import CELLS, Cell, RowQuestion, kind_of
from validate.tables.cells import NotScored, decade_of, nccl_of, number, whole_cell, whole_or_none
from validate.tables.names import RowNames

LARGE_BYTES = 1 << 20
MAX_RANKS = 4096
_MAX_BYTES = 1e15
_COLLECTIVES: Mapping[str, tuple[str, Collective]] = own_data("validate.kinds", "words.yaml")["collectives"]


def read_collective(cell: Cell, names: RowNames) -> RowQuestion:
    """Return a row's question, *cell* giving text of the columns that it may see; raises NotScored if not modelled."""
    collective = _COLLECTIVES.get(_letters(cell("collective")), ("", None))[1]
    if collective is None:
        raise NotScored(f"unknown collective '{one_line(cell('collective'), 40)}'")
    if cell("unclear"):
        raise NotScored(one_line(cell("unclear"), 200))
    size_bytes = number("bytes", cell("bytes"))
    if size_bytes > _MAX_BYTES:
        raise NotScored(f"bytes is more than {_MAX_BYTES:g}")
    n_gpus = whole_cell("n_gpus", cell("n_gpus"))
    n_nodes = whole_or_none(cell, "n_nodes") or 1
    group_size = whole_or_none(cell, "group_size") or n_gpus
    n_groups = whole_or_none(cell, "n_groups_concurrent") or 1
    for holds, why in (
        (n_gpus > MAX_RANKS, f"more than {MAX_RANKS} GPUs"),
        (n_gpus % n_nodes, "n_gpus is no multiple of n_nodes"),
        (group_size * n_groups > n_gpus, "the groups have more ranks than n_gpus"),
        (group_size < 2, "a group of one rank exchanges nothing"),
    ):
        if holds:
            raise NotScored(why)
    algorithm, strategy = forced_algorithm(cell("algorithm_forced"))
    if named := cell("strategy"):  # of the simulator, which ran instead of NCCL
        if not is_strategy(named):
            raise NotScored(f"strategy '{one_line(named, 40)}' is not modelled")
        if cell("algorithm_forced"):
            raise NotScored("strategy and algorithm_forced are both named; the second is NCCL's")
        strategy = named
    a_node = n_gpus // n_nodes
    local_gpus, pairs = _gpu_set(cell("gpu_set"), collective, a_node, group_size)
    if algorithm is not None and names.strategy not in ("nccl", algorithm):
        raise NotScored(f"forced algorithm '{algorithm}' is not what {names.strategy} does")
    where = names.machines.where(cell("machine"), n_nodes, a_node, cell("fabric_part"))
    local = tuple(range(a_node)) if local_gpus is None else local_gpus
    needs: list[Feature] = [algorithm] if algorithm is not None else []
    if collective in ("all-to-all", "send-recv"):
        needs.append("send-recv")
    chosen, software, dtype = strategy or names.strategy, cell("software"), cell("dtype")
    is_nccl, gpus_per_process = chosen == "nccl", 1
    # A host thread launches for nccl-tests' -g, or all.
    if is_nccl and n_nodes == 1 and not CELLS["a process each"].search(software):
        said = CELLS["tests of -g"].search(software)
        gpus_per_process = min(int(said[1]), group_size) if said else group_size
    question = CollectiveQuestion(
        where=where,
        collective=collective,
        size_bytes=size_bytes,
        strategy=chosen,
        gpus=names.gpus(where, n_nodes, local)[: group_size * n_groups],
        group_size=group_size,
        pairs=pairs,
        gpus_per_process=gpus_per_process,
        algorithm=algorithm if is_nccl and collective not in SENDING else None,
        # fp32 stands for all that a switch can reduce
        dtype=next((each for each in DTYPES if each == dtype), "fp8") if CELLS["small types"].match(dtype) else "fp32",
        software=Software(nccl=nccl_of(f"{software} {cell('measured')}", names.capability(where), *needs)),
    )
    return RowQuestion(question)


def collective_name(text: str) -> str:
    """Return the collective *text* as tables spell it; *text* itself if it is no known collective."""
    found = _COLLECTIVES.get(_letters(text))
    return found[0] if found else one_line(text, 40)


def _letters(text: str) -> str:
    return "".join(c for c in text.lower() if c not in "-_ ") if len(text) < 40 else text


def _gpu_set(
    text: str, collective: Collective, per_node: int, group_size: int
) -> tuple[tuple[int, ...] | None, tuple[tuple[int, int], ...]]:
    if not text:
        return None, ()
    if match := CELLS["pairs"].fullmatch(text):
        if collective != "send-recv":
            raise NotScored("gpu_set names pairs, which belong to a sendrecv")
        pairs = tuple((int(a), int(b)) for a, b in (pair.split(">") for pair in match[1].split(";")))
        if any(a == b or max(a, b) >= group_size for a, b in pairs):
            raise NotScored("gpu_set names pairs that are no two ranks of the group")
        return None, pairs
    if not CELLS["indices"].fullmatch(text):
        raise NotScored(f"gpu_set '{one_line(text, 40)}' is neither a list such as 0-3 or 0,2 nor pairs 0>1;2>3")
    gpus: list[int] = []
    for low, _, high in (piece.partition("-") for piece in re.split(r"[,;]\s*", text)):
        gpus.extend(range(int(low), int(high or low) + 1))
        if len(gpus) > MAX_RANKS:
            break
    if len(gpus) != per_node or len(set(gpus)) != per_node:
        raise NotScored("gpu_set does not name n_gpus / n_nodes different GPUs")
    return tuple(gpus), ()


def forced_algorithm(text: str) -> tuple[Algorithm | None, str | None]:
    """Return the NCCL algorithm or, failing that, the simulator strategy that *text* names; raises NotScored."""
    if not text:
        return None, None
    if match := CELLS["algorithm"].fullmatch(text.lower()):
        named = re.sub(r"nvls[ _-]?tree", "nvls_tree", match[1])
        return next(algorithm for algorithm in ALGORITHMS if algorithm == named), None
    if not is_strategy(text):
        raise NotScored(f"forced algorithm '{one_line(text, 40)}' is not modelled")
    return None, text


def _labels(cell: Cell, names: RowNames) -> Mapping[str, str]:
    labels = {"machine": cell("machine"), "collective": collective_name(cell("collective")), "decade": "", "size": ""}
    with suppress(NotScored):
        size_bytes = number("bytes", cell("bytes"))
        labels |= {"decade": decade_of(size_bytes), "size": ">=1MiB" if size_bytes >= LARGE_BYTES else "<1MiB"}
    if names.strategy == "nccl" and labels["machine"]:
        labels["fit"] = "fitted" if labels["machine"] in machines_fitted_to() else "not fitted"
    return labels


COLLECTIVES = kind_of(
    "collectives",
    legend=(
        f"ring: one alpha-beta ring at data sheet rates, alpha {ALPHA_S * 1e6:g} us; size: 1 MiB = 1048576 B;"
        " decade: 1e6 is 1 MB to below 10 MB"
    ),
    read=read_collective,
    measured_s=lambda cell, _names: number("time_s", cell("time_s")),
    labelled=_labels,
)
