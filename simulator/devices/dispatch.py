"""The host's part: how long a framework takes to issue an operator."""

from __future__ import annotations

from simulator.devices.device import Gpu
from simulator.workload.operators import Operator, Phase

__all__ = ["dispatch_time"]

EAGER_S = 20e-6


def dispatch_time(gpu: Gpu, operator: Operator, phase: Phase) -> float:
    """Return the seconds for which the host is busy until an eager framework has issued *operator*."""
    del operator, phase
    return EAGER_S * gpu.calibration.dispatch
