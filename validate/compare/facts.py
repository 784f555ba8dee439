"""What is known of a row beside its two times: how the model came to its own, and what the sensors said."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.api import simulate_step
from simulator.devices.calibration import Calibration
from simulator.devices.dispatch import dispatch_time
from simulator.devices.gpu.clock import sustained_clock
from simulator.devices.gpu.gpu import Gpu
from simulator.devices.predict import Device, kernel_cost
from simulator.errors import ToposimError
from simulator.network.machine import Machine
from simulator.results.step import StepResult
from simulator.step.place import find_place
from simulator.step.precision import product_precision
from simulator.workload.network import Network
from simulator.workload.zoo.registry import build_network
from validate.compare.rows import ComparedRow
from validate.operators.predict import operator_kernels
from validate.operators.query import OperatorQuery
from validate.training.query import TrainingQuery

__all__ = ["Facts", "memory_facts", "network_of", "operator_facts", "plain_facts", "step_facts"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a row; 0, "" and () where they are not known.

    Attributes
    ----------
    cells : mapping
        The row's, by column in small letters.
    log_ratio : float
        log(predicted / measured): below 0 the prediction is too fast.
    measured_s : float
        What was measured.
    interval : float
        Half the 95 % interval of the measured median as a fraction of it.
    clock_Hz, assumed_clock_Hz : float
        What the sensor showed while it ran, and what the model takes.
    bound : str
        What the model says most of the time goes to: compute, memory, latency, host.
    detail : str
        How the model thinks it is done: the tile, the algorithm.
    kernels_s : float
        Of the prediction, what kernels take on the device.
    host_s : float
        What the model says the host takes to issue it.
    waiting_share : float
        Of a step, the share in which the device waits for the host.
    working_set_bytes, cache_bytes, memory_bytes : float
        What is touched, the device's last cache, and its memory.
    waves : float
        How many times over the work fills the device, in blocks.

    """

    cells: Mapping[str, str]
    log_ratio: float
    measured_s: float
    interval: float = 0.0
    clock_Hz: float = 0.0
    assumed_clock_Hz: float = 0.0
    bound: str = ""
    detail: str = ""
    kernels_s: float = 0.0
    host_s: float = 0.0
    waiting_share: float = 0.0
    working_set_bytes: float = 0.0
    cache_bytes: float = 0.0
    memory_bytes: float = 0.0
    waves: float = 0.0
    kind: str = ""  # what predicts the row
    sizes: Mapping[str, int] = field(default_factory=dict)  # of the operator, by column
    is_gpu: bool = False  # whether it is known to be one

    @property
    def is_slower(self) -> bool:
        """Whether the machine took longer than predicted."""
        return self.log_ratio < 0


def plain_facts(row: ComparedRow) -> dict[str, Any]:
    """Return what a row says of itself."""
    sizes = {}
    for name, text in row.cells.items():
        if name in _SIZES and text.isdigit():
            sizes[name] = int(text)
    return {
        "cells": row.cells,
        "kind": row.kind,
        "log_ratio": row.log_ratio,
        "measured_s": row.measured_s or 0.0,
        "interval": row.interval or 0.0,
        "clock_Hz": 1e6 * _number(row.cells.get("sm_clock_mhz", "")),
        "sizes": sizes,
    }


_SIZES = frozenset(("m", "n", "k", "c_in", "c_out", "rows", "cols", "hidden"))
_TILE_ELEMENTS = 128 * 128  # of a result, in a block of a product


def operator_facts(row: ComparedRow, device: Device | None) -> Facts:
    """Return the facts of a row of operators on *device*; fewer where the device is not known."""
    known = plain_facts(row)
    query = row.query
    if not isinstance(query, OperatorQuery) or device is None:
        return Facts(**known)
    with contextlib.suppress(ToposimError):
        costs = [kernel_cost(device, kernel, 1.0 if query.is_cold else 0.0) for kernel in operator_kernels(query)]
        if costs:
            longest = max(costs, key=lambda cost: cost.time_s)
            known |= {
                "bound": longest.bound,
                "detail": longest.detail,
                "kernels_s": sum(cost.time_s for cost in costs),
                "working_set_bytes": max(cost.bytes for cost in costs),
                "host_s": dispatch_time(device, query.operator, query.phase),
            }
    known |= _sizes_of(device)
    if isinstance(device, Gpu):
        known["is_gpu"] = True
        with contextlib.suppress(ToposimError):
            is_product = known.get("bound") == "compute"
            known["assumed_clock_Hz"] = (
                sustained_clock(device, query.precision) if is_product else device.boost_clock_Hz
            )
        m, n = known["sizes"].get("m", 0), known["sizes"].get("n", 0)
        if m and n:
            batch = _number(row.cells.get("batch", "")) or 1.0
            known["waves"] = batch * m * n / _TILE_ELEMENTS / device.sm_count
    return Facts(**known)


def memory_facts(row: ComparedRow, device: Device | None) -> Facts:
    """Return the facts of a row of passes over memory of *device*: what is touched, and what could hold it."""
    known = plain_facts(row) | {"bound": "memory", "working_set_bytes": _number(row.cells.get("bytes", ""))}
    if device is not None:
        known |= _sizes_of(device)
    return Facts(**known)


def _sizes_of(device: Device) -> dict[str, float]:
    """Return the sizes of the last cache and of the memory of *device*, 0 where they are not known."""
    memory_bytes = device.memory_bytes if device.memory_bytes < float("inf") else 0.0
    if isinstance(device, Gpu):
        return {"cache_bytes": device.l2_bytes, "memory_bytes": memory_bytes}
    return {"cache_bytes": device.caches[-1].size_bytes if device.caches else 0.0, "memory_bytes": memory_bytes}


def step_facts(row: ComparedRow, machine: Machine | None, calibrations: Mapping[str, Calibration]) -> Facts:
    """Return the facts of a row of steps on *machine*; fewer where it cannot be simulated."""
    known = plain_facts(row)
    if isinstance(row.query, TrainingQuery) and machine is not None:
        with contextlib.suppress(ToposimError):
            result = simulated(row.query, machine, calibrations)
            known |= {
                "bound": result.bound,
                "kernels_s": result.busy_s,
                "host_s": result.host_s,
                "waiting_share": result.waiting_s / result.step_time_s if result.step_time_s > 0 else 0.0,
            }
            known |= {
                "working_set_bytes": result.memory.total_bytes,
                "memory_bytes": result.memory.available_bytes or 0.0,
            }
            device = find_place(machine, None, calibrations).device
            if isinstance(device, Gpu):
                precision = product_precision(row.query.options.precision, device)
                known["assumed_clock_Hz"] = sustained_clock(device, precision)
    return Facts(**known)


def network_of(query: TrainingQuery) -> Network:
    """Return the network that *query* asks for; raises InputError where the zoo has none such."""
    named = {
        "image": query.image,
        "sequence_length": query.sequence_length,
        "hidden": query.hidden,
        "heads": query.heads,
        "layers": query.layers,
        "vocabulary": query.vocabulary,
    }
    sizes: dict[str, Any] = {name: size for name, size in named.items() if size is not None}
    return build_network(query.model, batch=query.batch, training=query.options.trains, loss=query.loss, **sizes)


def simulated(query: TrainingQuery, machine: Machine, calibrations: Mapping[str, Calibration]) -> StepResult:
    """Return the simulated step that *query* asks for, of one micro-batch."""
    return simulate_step(
        machine,
        network_of(query),
        query.options,
        threads=None if machine.gpus else query.threads,
        cpu_library=query.cpu_library,
        calibrations=calibrations,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
