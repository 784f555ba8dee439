"""What the simulator says of a case, from its topology: no measured time comes near it."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.api import simulate
from simulator.network.machine import Machine
from validate.machine.cluster.cases import Case
from validate.machine.cluster.commands import Shape
from validate.machine.cluster.topology import machine_of

__all__ = ["Predictor"]


class Predictor:
    """Predicts cases; *payload_Bps* are the rates of ``--calibrate`` by link, none otherwise."""

    def __init__(self, payload_Bps: Mapping[Shape, float] | None = None) -> None:
        self._payload_Bps = dict(payload_Bps or {})
        self._machines: dict[tuple[Shape, int], Machine] = {}

    def predict_s(self, case: Case) -> float:
        """Return the simulated time of *case*."""
        key = (case.shape, case.n_nodes)
        if key not in self._machines:
            self._machines[key] = machine_of(*key, self._payload_Bps.get(case.shape))
        strategy = case.strategy
        result = simulate(self._machines[key], strategy.predictor, case.size_bytes, collective=strategy.collective)
        return result.sync_time_s
