"""The layout of a measured step on GPUs, read from a row's columns."""

from __future__ import annotations

import re
from functools import partial

from simulator.errors import InputError, one_line
from simulator.questions.layout import REPLICAS, SCHEDULES, Layout, Schedule
from validate.kinds.kind import Cell
from validate.tables.cells import NotScored, whole_or_none

COLUMNS = (
    *("n_gpus", "n_nodes", "tp", "pp", "dp", "cp", "ep", "etp", "flex", "sp", "tp_overlap", "vp", "fsdp", "zero"),
    *("shards", "schedule", "sync", "strategy"),
)
ALONE = "none"  # the ``strategy`` of replicas that exchange nothing
_MOST = 10**7
_whole = partial(whole_or_none, most=_MOST)
_ALL_REDUCE = re.compile(r"ddp|horovod|nccl|replicated \(nccl\)", re.IGNORECASE)


def ranks_and_layout(cell: Cell) -> tuple[int, int, Layout]:
    """Return the numbers of GPUs and nodes of a row's step, and its layout; one GPU stands for a CPU.

    Raises NotScored if the degrees do not multiply to the number of GPUs, or if the row does not say how gradients are
    exchanged.
    """
    if cell("n_gpus") == "0":
        return 1, 1, REPLICAS
    ranks, nodes = (_whole(cell, column) or 1 for column in ("n_gpus", "n_nodes"))
    if ranks == nodes == 1:
        return 1, 1, REPLICAS
    if ranks % nodes:
        raise NotScored("n_gpus is no multiple of n_nodes")
    layout = _layout(cell)
    named = layout.divides_network or layout.zero or cell("strategy")
    if cell("strategy") == ALONE and (layout.divides_network or layout.zero):
        raise NotScored(f"strategy '{ALONE}': shards and parts of a network exchange something")
    if not named and not _ALL_REDUCE.match(cell("sync")):
        way = one_line(cell("sync"), 30)
        raise NotScored(f"more than one GPU, exchanged by '{way}': ddp, horovod, nccl are scored, or a strategy")
    try:
        known = layout.on(ranks)
    except InputError as error:
        raise NotScored(f"n_gpus {ranks}: {error.spelt('value')}") from None
    dp = _whole(cell, "dp")
    if dp is not None and dp != known.dp:
        raise NotScored(f"tp x pp x cp x dp is {layout.model_ranks * dp}, and n_gpus {ranks}")
    return ranks, nodes, layout


def _layout(cell: Cell) -> Layout:
    degrees = {column: _whole(cell, column) or 1 for column in ("tp", "pp", "cp", "ep", "vp")}
    zero = 3 if cell("fsdp") in ("1", "1.0") else _whole(cell, "zero") or 0
    words = re.split(r"[;, ]+", cell("schedule").lower())
    schedule: Schedule = next((name for name in SCHEDULES if name in words), "1f1b")
    return Layout(
        tp=degrees["tp"],
        pp=degrees["pp"],
        cp=degrees["cp"],
        ep=degrees["ep"],
        etp=_whole(cell, "etp"),
        flex=cell("flex") == "1" and degrees["ep"] > 1,
        vp=degrees["vp"] if degrees["pp"] > 1 else 1,
        sp=cell("sp") == "1" and degrees["tp"] > 1,
        tp_overlap=cell("tp_overlap") == "1" and cell("sp") == "1" and degrees["tp"] > 1,
        zero=zero,
        shards=_whole(cell, "shards") if zero else None,
        schedule=schedule if degrees["vp"] == 1 else "1f1b",
    )
