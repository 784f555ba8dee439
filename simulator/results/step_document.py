"""Steps as the ``--json`` document: one object, SI units in the names of the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

from simulator.questions.where import month_words
from simulator.results.changed import changed_entry
from simulator.results.document import SCHEMA_VERSION, options_document, rounded_share, taken
from simulator.results.order import best_of
from simulator.results.shares import time_shares
from simulator.results.step import StepResult
from simulator.results.step_confidence import step_confidence, step_trust
from simulator.results.training_run import TrainingRun
from simulator.step.memory import MemoryNeed
from simulator.topology.schema import price_entry

if TYPE_CHECKING:
    from simulator.results.checkpoints import Checkpoints
    from simulator.results.input import InputRun
    from simulator.results.servers import ServerRun


def steps_document(results: Sequence[TrainingRun], unfit: Mapping[str, str]) -> dict[str, Any]:
    """Return *results* (fastest first) as plain data: the best from the view of one device, and a list of all."""
    best = best_of(results)
    return {
        **changed_entry(best.changed),
        **_seen(best.step),
        "memory": _memory(best.tightest.need),
        **step_confidence(best).to_dict(),
        "bound": best.bound,
        "trust": _trust(best),
        "alternatives": [asdict(other) for other in best.alternatives],
        "what_if": [{**asdict(other), "gain": best.step_time_s / other.step_time_s} for other in best.what_if],
        "remedies": list(best.remedies),
        "results": [_entry(result) for result in results],
        "unfit": [{"strategy": name, "reason": reason} for name, reason in unfit.items()],
    }


def _entry(result: TrainingRun) -> dict[str, Any]:
    question, busiest = result.question, result.bottleneck
    return {
        "topology": result.machine,
        **changed_entry(result.changed),
        "strategy": result.strategy or None,
        "parallel": result.parallel or None,
        "bucket_bytes": question.bucket_bytes if result.parallel and question.layout.zero < 3 else None,
        **taken(result, "is_bound", "counts_software"),
        "nccl": ".".join(map(str, question.software.nccl)) if result.strategy == "nccl" else None,
        **({"libraries": month_words(question.software.libraries)} if question.software.libraries else {}),
        "device_count": result.device_count,
        "part": result.step.part,
        **taken(result, "samples", "tokens"),
        **taken(question, "micro_batches", "programs"),
        "sizes": dict(question.sizes),
        "step_time_s": result.step_time_s,
        **step_confidence(result).to_dict(),
        "throughput_per_s": result.throughput,
        "price_per_hour": price_entry(result.price_per_hour),
        "price_per_million_samples": price_entry(result.price_per_million),
        **taken(result, "alone_s", exposed_communication_s="exposed_s", pipeline_bubble_s="bubble_s"),
        "communication_s": result.exchanging_s,
        "account_s": {share.name: share.seconds for share in time_shares(result)},
        "communication_bytes": result.exchanged_bytes,
        **taken(result, "exchanges", "scaling_efficiency"),
        "bottleneck": None
        if busiest is None
        else {"link": busiest.name, "bytes": busiest.bytes, "utilisation": rounded_share(busiest.utilisation)},
        "bound": result.bound,
        "critical_path_s": dict(result.step.limits_s),
        "streams": {name: {"busy_s": use.busy_s, "waits_s": use.waits_s} for name, use in result.streams.items()},
        "memory": [
            {**taken(device, "part", "stage", device_count="count"), **_memory(device.need)} for device in result.memory
        ],
        **({} if result.servers is None else {"servers": _servers(result.servers)}),
        **({} if result.input is None else {"input": _input(result.input, result.samples)}),
        **({"epoch_s": result.epoch_s} if result.epoch_steps else {}),
        **({} if not result.shares else {"shares": [_share(*share) for share in result.shares]}),
        **({} if result.checkpoints is None else {"checkpoints": _checkpoints(result.checkpoints)}),
        "notes": list(result.notes),
        "trust": _trust(result),
    }


def _servers(run: ServerRun) -> dict[str, Any]:
    return {
        "places": list(run.servers),
        **taken(run, "stages_s", "staleness_mean", "staleness_max", "is_steady", "lost_s", "then_s"),
        "nodes": [{**asdict(pace), "slack_s": pace.slack_s} for pace in run.paces],
    }


def _input(run: InputRun, samples: int) -> dict[str, Any]:
    """Return the figures of a step's input."""
    return {
        "set": run.asked.name,
        "disks": list(run.disks),
        **taken(run.asked, "workers", "prefetch"),
        **taken(run, "bound", "idle_share", "step_s", "period_s", "first_period_s", "filled_s"),
        "limits_s": {limit.name: limit.seconds for limit in run.limits},
        "rates_per_s": {limit.name: samples / limit.seconds for limit in run.limits},
        **taken(run, "epoch_steps", first_epoch_s="first_s", later_epoch_s="later_s", evaluation_s="evaluation_s"),
        "epochs": run.asked.epochs,
        "all_epochs_s": run.total_s,
        **taken(run, "cached_share", "buffers_bytes", "kept_bytes"),
        "cure": None if run.cure is None else asdict(run.cure),
        "cures": [asdict(cure) for cure in run.cures],
    }


def _checkpoints(found: Checkpoints) -> dict[str, Any]:
    names = ("interval_s", "goodput", "written_share", "failed_share", "young_s", "best_steps", "best_goodput")
    return {**asdict(found), **taken(found, *names)}


def _share(device: str, part: str, samples: int) -> dict[str, Any]:
    return {"device": device, "part": part, "samples": samples}


def _trust(result: TrainingRun) -> dict[str, Any] | None:
    trust = step_trust(result)
    return None if trust is None else asdict(trust)


def _memory(need: MemoryNeed) -> dict[str, Any]:
    available = need.available_bytes if isfinite(need.available_bytes) else None  # a part without memory_size
    return {**asdict(need), "available_bytes": available, "total_bytes": need.total_bytes, "fits": need.fits}


def _seen(result: StepResult) -> dict[str, Any]:
    """Return a step from the view of one device."""
    return {
        "schema_version": SCHEMA_VERSION,
        "topology": result.machine,
        "workload": result.workload,
        **taken(result, "device", "part", "samples", "sample", "tokens", "calibrated"),
        "options": options_document(result.options),
        **taken(result, "step_time_s", throughput_per_s="throughput", parts_s="parts_s"),
        **taken(result, "busy_s", "host_s", "waiting_s", "model_flop", "peak_flops_per_s"),
        "model_flop_utilisation": result.utilisation,
        **taken(result, "parameter_count", "trained_count", "flop_by_format"),
        "kinds": [asdict(kind) for kind in result.kinds],
        "layers": [asdict(layer) for layer in result.layers],
        "gradient_order": list(result.gradient_order),
        "simulation_events": result.simulation_events,
    }
