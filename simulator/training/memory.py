"""What device memory a step over several devices needs on each."""

from __future__ import annotations

from dataclasses import replace

from simulator.devices.predict import Device
from simulator.questions.step import StepQuestion
from simulator.step.memory import MemoryNeed, memory_need
from simulator.training.data_parallel import gradient_bytes
from simulator.training.sharded import unit_elements
from simulator.workload.network import Network

__all__ = ["device_memory"]


def device_memory(network: Network, question: StepQuestion, device: Device, n_ranks: int) -> MemoryNeed:
    """Return what each of *n_ranks* devices needs for its part of a step.

    A replica holds its buckets besides, which are all gradients once more (PyTorch's ``gradient_as_bucket_view`` saves
    them and is off unless asked for).  Of shards two units are there in full at once (Rajbhandari et al., "ZeRO", SC
    2020, section 5: parameters, gradients and optimiser states divided by n).
    """
    if question.parallel == "fsdp":
        units = unit_elements(network)
        outside = units.pop("", 0)
        whole = (outside + sum(sorted(units.values())[-2:])) / max(1, network.parameter_count)
        shard = 1.0 / n_ranks
        return memory_need(network, question.options, device, shard=shard, gathered=min(1.0, whole + shard))
    need = memory_need(network, question.options, device)
    if not question.bucket_bytes or question.options.mode not in ("train", "backward"):
        return need
    buckets = float(network.parameter_count * gradient_bytes(question.options))
    return replace(need, working_bytes=need.working_bytes + buckets)
