"""A step's result as the ``--json`` document: one object, SI units in the names of the keys."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from simulator.results.document import SCHEMA_VERSION
from simulator.results.step import StepResult

__all__ = ["step_document"]


def step_document(result: StepResult) -> dict[str, Any]:
    """Return *result* as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "topology": result.machine,
        "workload": result.workload,
        "device": result.device,
        "part": result.part,
        "samples": result.samples,
        "sample": result.sample,
        "tokens": result.tokens,
        "calibrated": result.calibrated,
        "options": asdict(result.options),
        "step_time_s": result.step_time_s,
        "throughput_per_s": result.throughput,
        "parts_s": dict(result.parts_s),
        "busy_s": result.busy_s,
        "host_s": result.host_s,
        "waiting_s": result.waiting_s,
        "bound": result.bound,
        "model_flop": result.model_flop,
        "peak_flops_per_s": result.peak_flops_per_s,
        "model_flop_utilisation": result.utilisation,
        "parameter_count": result.parameter_count,
        "flop_by_format": dict(result.flop_by_format),
        "memory": {**asdict(result.memory), "total_bytes": result.memory.total_bytes, "fits": result.memory.fits},
        "kinds": [asdict(kind) for kind in result.kinds],
        "layers": [asdict(layer) for layer in result.layers],
        "gradient_order": list(result.gradient_order),
        "alternatives": [asdict(other) for other in result.alternatives],
        "remedies": list(result.remedies),
        "trust": None if result.trust is None else asdict(result.trust),
        "simulation_events": result.simulation_events,
    }
