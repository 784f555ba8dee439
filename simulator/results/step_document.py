"""Steps as the ``--json`` document: one object, SI units in the names of the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from simulator.results.document import SCHEMA_VERSION
from simulator.results.reason import best_of, bound_of
from simulator.results.step import StepResult
from simulator.results.training import TrainingResult
from simulator.step.memory import MemoryNeed

__all__ = ["steps_document"]


def steps_document(results: Sequence[TrainingResult], unfit: Mapping[str, str]) -> dict[str, Any]:
    """Return *results* (fastest first) as plain data: the best as one of its devices sees it, and all of them."""
    best = best_of(results)
    return {
        **_seen(best.step),
        "bound": bound_of(best),
        "trust": _trust(best),
        "alternatives": [asdict(other) for other in best.alternatives],
        "remedies": list(best.remedies),
        "results": [_entry(result) for result in results],
        "unfit": [{"strategy": name, "reason": reason} for name, reason in unfit.items()],
    }


def _entry(result: TrainingResult) -> dict[str, Any]:
    question, busiest = result.question, result.bottleneck
    return {
        "topology": result.machine,
        "strategy": result.strategy or None,
        "parallel": result.parallel or None,
        "bucket_bytes": question.bucket_bytes if result.parallel == "dp" else None,
        "is_bound": not result.counts_software,
        "nccl": ".".join(map(str, question.software.nccl)) if result.strategy == "nccl" else None,
        "device_count": result.device_count,
        "part": result.step.part,
        "samples": result.samples,
        "tokens": result.tokens,
        "micro_batches": question.micro_batches,
        "step_time_s": result.step_time_s,
        "throughput_per_s": result.throughput,
        "alone_s": result.alone_s,
        "exposed_communication_s": result.exposed_s,
        "communication_s": result.exchanging_s,
        "scaling_efficiency": result.scaling_efficiency,
        "bottleneck": None
        if busiest is None
        else {"link": busiest.name, "bytes": busiest.bytes, "utilisation": round(busiest.utilisation, 12)},
        "bound": bound_of(result),
        "streams": {name: {"busy_s": use.busy_s, "waits_s": use.waits_s} for name, use in result.streams.items()},
        "memory": [
            {"part": device.part, "device_count": device.count, **_memory(device.need)} for device in result.memory
        ],
        "notes": list(result.notes),
        "trust": _trust(result),
    }


def _trust(result: TrainingResult) -> dict[str, Any] | None:
    return None if result.trust is None else asdict(result.trust)


def _memory(need: MemoryNeed) -> dict[str, Any]:
    return {**asdict(need), "total_bytes": need.total_bytes, "fits": need.fits}


def _seen(result: StepResult) -> dict[str, Any]:
    """Return a step as one device sees it."""
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
        "model_flop": result.model_flop,
        "peak_flops_per_s": result.peak_flops_per_s,
        "model_flop_utilisation": result.utilisation,
        "parameter_count": result.parameter_count,
        "flop_by_format": dict(result.flop_by_format),
        "memory": _memory(result.memory),
        "kinds": [asdict(kind) for kind in result.kinds],
        "layers": [asdict(layer) for layer in result.layers],
        "gradient_order": list(result.gradient_order),
        "simulation_events": result.simulation_events,
    }
