"""What a row of a training step says of its layout on GPUs and of its time, which many publish as a throughput."""

from __future__ import annotations

import re
from functools import partial

from simulator.errors import InputError, one_line
from simulator.questions.layout import REPLICAS, SCHEDULES, Layout, Schedule
from validate.kinds.kind import ALL_COLUMNS, Cell
from validate.tables.cells import NotScored, number, whole_or_none

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
    tp, pp, cp, ep, vp = (_whole(cell, column) or 1 for column in ("tp", "pp", "cp", "ep", "vp"))
    zero = 3 if cell("fsdp") in ("1", "1.0") else _whole(cell, "zero") or 0
    words = re.split(r"[;, ]+", cell("schedule").lower())
    schedule: Schedule = next((name for name in SCHEDULES if name in words), "1f1b")
    sp = cell("sp") == "1" and tp > 1
    return Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=_whole(cell, "etp"),
        flex=cell("flex") == "1" and ep > 1,
        vp=vp if pp > 1 else 1,
        sp=sp,
        tp_overlap=cell("tp_overlap") == "1" and sp,
        zero=zero,
        shards=_whole(cell, "shards") if zero else None,
        schedule=schedule if vp == 1 else "1f1b",
    )


_RATE = re.compile(r"([\w -]+)/s(/GPU)?")
_SAMPLES = ("images", "sequences", "samples")


def step_measured_s(cell: Cell) -> float:
    """Return ``step_time_s``, or the time in seconds that a published throughput implies; raises NotScored.

    Throughput counts samples, or units such as tokens and frames, of which a sample has ``units_each``.  With
    ``epoch_samples`` it counts all samples of an epoch, though only whole batches are trained.
    """

    def of(column: str, default: str = "") -> float:
        return number(column, cell(column) or default)

    if cell("step_time_s"):
        return of("step_time_s")
    if not cell("throughput"):
        raise NotScored("no time, only memory" if any(map(cell, ALL_COLUMNS)) else "step_time_s missing")
    rate = _RATE.fullmatch(cell("throughput_unit"))
    if rate is None:
        raise NotScored(f"step_time_s missing, and what {one_line(cell('throughput_unit'), 30)} counts is not said")
    units, per_gpu = rate.groups()
    each = 1.0
    if units not in _SAMPLES:
        column = "seq_len" if units == "tokens" and not cell("units_each") else "units_each"
        if not cell(column):
            raise NotScored(f"step_time_s missing, and how many {one_line(units, 20)} a sample has ({column})")
        each = of(column)
    gpus = of("n_gpus", "1") if per_gpu else 1.0
    a_rank = cell("micro_batch") or cell("batch_per_gpu")
    if cell("global_batch") or not a_rank:
        samples = of("global_batch")
    else:  # over all GPUs and micro-batches
        samples = number("batch_per_gpu", a_rank)
        for column in ("n_gpus", "grad_accum"):
            samples *= of(column) if cell(column) not in ("", "0") else 1.0  # 0 GPUs: a CPU
        for column in ("tp", "pp", "cp"):
            samples /= of(column, "1")
    if cell("epoch_samples"):  # a step has its share of those that the epoch leaves out
        epoch = of("epoch_samples")
        if epoch < samples:
            raise NotScored(f"an epoch of {epoch:,.0f} samples has no batch of {samples:,.0f}")
        samples = epoch / (epoch // samples)
    return samples * each / (of("throughput") * gpus)
