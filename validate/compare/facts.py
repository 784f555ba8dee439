"""Facts about a row besides its two times: sensor readings, and how the model computed its prediction."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from simulator.api import Session
from simulator.errors import TopocastError
from simulator.questions.step import StepQuestion
from validate.compare.rows import ComparedRow
from validate.tables.cells import figure


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a row; unknown facts are 0, "" or empty."""

    cells: Mapping[str, str]  # the row's cells, by column in lower case
    log_ratio: float  # log(predicted / measured): below 0 the prediction is too fast
    measured_s: float
    interval: float = 0.0  # half-width of the measured median's 95 % interval, as a fraction of the median
    # clock_Hz, assumed_clock_Hz: the sensor's reading during the run, and the model's assumption
    clock_Hz: float = 0.0
    assumed_clock_Hz: float = 0.0
    bound: str = ""  # the predicted bottleneck: compute, memory, latency, host
    detail: str = ""  # the tile or algorithm that the model assumes
    kernels_s: float = 0.0  # predicted time of kernels on the device
    host_s: float = 0.0  # predicted time of the host's launches
    waiting_share: float = 0.0  # share of a step in which the device waits for the host
    # working_set_bytes, cache_bytes, memory_bytes: the bytes touched, the last-level cache, the device's memory
    working_set_bytes: float = 0.0
    cache_bytes: float = 0.0
    memory_bytes: float = 0.0
    waves: float = 0.0  # waves of blocks that the work takes on the device
    kind: str = ""  # the kind of table, which decides the predictor
    sizes: Mapping[str, int] = field(default_factory=dict)  # the operator's sizes, by column
    is_gpu: bool = False  # True only for operators on a known GPU

    @property
    def is_slower(self) -> bool:
        """Whether the machine took longer than predicted."""
        return self.log_ratio < 0


def plain_facts(row: ComparedRow) -> dict[str, Any]:
    """Return the facts that a row's cells give, as arguments of :class:`Facts`."""
    return {
        "cells": row.cells,
        "kind": row.kind,
        "log_ratio": row.log_ratio,
        "measured_s": row.measured_s or 0.0,
        "interval": row.interval or 0.0,
        "clock_Hz": 1e6 * _number(row.cells.get("sm_clock_mhz", "")),
        "sizes": {name: int(text) for name, text in row.cells.items() if name in _SIZES and text.isdigit()},
    }


_SIZES = frozenset(("m", "n", "k", "c_in", "c_out", "rows", "cols", "hidden"))
_TILE_ELEMENTS = 128 * 128  # elements of the result per block of a matrix product


def facts_of(row: ComparedRow, session: Session) -> Facts:
    """Return the facts of a row: those in its cells, and those of *session*'s prediction where available."""
    known = plain_facts(row)
    question = row.asked.question if row.asked is not None else None
    if question is None or row.kind not in ("operators", "training", "memory"):
        return Facts(**known)
    with contextlib.suppress(TopocastError):
        account = session.account(
            replace(question, micro_batches=1) if isinstance(question, StepQuestion) else question
        )
        known |= {
            name: getattr(account, name)
            for name in ("bound", "detail", "kernels_s", "host_s", "waiting_share", "working_set_bytes")
        }
        known |= {"cache_bytes": account.cache_bytes, "memory_bytes": account.memory_bytes}
        if row.kind == "memory":
            return Facts(**known | {"bound": "memory", "working_set_bytes": _number(row.cells.get("bytes", ""))})
        known["assumed_clock_Hz"] = account.clock_Hz
        known["is_gpu"] = account.is_gpu and row.kind == "operators"
        m, n = known["sizes"].get("m", 0), known["sizes"].get("n", 0)
        if account.sm_count and m and n:
            batch = _number(row.cells.get("batch", "")) or 1.0
            known["waves"] = batch * m * n / _TILE_ELEMENTS / account.sm_count
    return Facts(**known)


def _number(text: str) -> float:
    return figure(text) or 0.0
