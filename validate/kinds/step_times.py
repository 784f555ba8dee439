"""The measured time of a training step, which many publish as a throughput."""

from __future__ import annotations

import re

from simulator.errors import one_line
from validate.kinds.kind import ALL_COLUMNS, Cell
from validate.tables.cells import NotScored, number

_RATE = re.compile(r"([\w -]+)/s(/GPU)?")
_SAMPLES = ("images", "sequences", "samples")


def step_measured_s(cell: Cell) -> float:
    """Return ``step_time_s``, or the time in seconds that a published throughput implies; raises NotScored.

    Throughput counts samples, or units such as tokens and frames, of which a sample has ``units_each``.  With
    ``epoch_samples`` it counts all samples of an epoch, though only whole batches are trained.
    """
    if cell("step_time_s"):
        return number("step_time_s", cell("step_time_s"))
    if not cell("throughput"):
        raise NotScored("no time, only memory" if any(map(cell, ALL_COLUMNS)) else "step_time_s missing")
    rate = _RATE.fullmatch(cell("throughput_unit"))
    if rate is None:
        raise NotScored(f"step_time_s missing, and what {one_line(cell('throughput_unit'), 30)} counts is not said")
    each = 1.0
    if rate[1] not in _SAMPLES:
        column = "seq_len" if rate[1] == "tokens" and not cell("units_each") else "units_each"
        if not cell(column):
            raise NotScored(f"step_time_s missing, and how many {one_line(rate[1], 20)} a sample has ({column})")
        each = number(column, cell(column))
    gpus = number("n_gpus", cell("n_gpus") or "1") if rate[2] else 1.0
    return _counted_samples(cell) * each / (number("throughput", cell("throughput")) * gpus)


def _counted_samples(cell: Cell) -> float:
    """Return the samples that a rate counts for each step: its own, and its share of those that an epoch leaves out."""
    samples = _samples_of_step(cell)
    if not cell("epoch_samples"):
        return samples
    epoch = number("epoch_samples", cell("epoch_samples"))
    steps = epoch // samples
    if not steps:
        raise NotScored(f"an epoch of {epoch:,.0f} samples has no batch of {samples:,.0f}")
    return epoch / steps


def _samples_of_step(cell: Cell) -> float:
    """Return the samples of a step over all GPUs and micro-batches."""
    each = cell("micro_batch") or cell("batch_per_gpu")
    if cell("global_batch") or not each:
        return number("global_batch", cell("global_batch"))
    samples = number("batch_per_gpu", each)
    for column in ("n_gpus", "grad_accum"):
        if cell(column) not in ("", "0"):  # 0 GPUs: a CPU
            samples *= number(column, cell(column))
    for column in ("tp", "pp", "cp"):
        samples /= number(column, cell(column) or "1")
    return samples
