"""What device memory a step over several devices needs on each."""

from __future__ import annotations

from dataclasses import replace

from simulator.questions.step import StepQuestion
from simulator.step.memory import MemoryNeed
from simulator.training.data_parallel import gradient_bytes
from simulator.training.sharded import unit_elements
from simulator.workload.network import Network

__all__ = ["device_memory"]


def device_memory(need: MemoryNeed, network: Network, question: StepQuestion, n_ranks: int) -> MemoryNeed:
    """Return what each of *n_ranks* devices needs for its part of a step, given the *need* of one that steps alone."""
    if question.parallel == "fsdp":
        return _shard_memory(need, network, n_ranks)
    return _replica_memory(need, network, question)


def _replica_memory(need: MemoryNeed, network: Network, question: StepQuestion) -> MemoryNeed:
    """Return *need* of one device with the buckets besides, which hold all gradients once more.

    (PyTorch's ``gradient_as_bucket_view`` saves them and is off unless asked for.)
    """
    if not question.bucket_bytes or question.options.mode not in ("train", "backward"):
        return need
    buckets = float(network.parameter_count * gradient_bytes(question.options))
    return replace(need, working_bytes=need.working_bytes + buckets)


def _shard_memory(need: MemoryNeed, network: Network, n_ranks: int) -> MemoryNeed:
    """Return *need* of one device where each of *n_ranks* keeps a shard, and two units are there in full at once.

    (Rajbhandari et al., "ZeRO", SC 2020, section 5: parameters, gradients and optimiser states divided by n.)
    """
    count = max(1, network.parameter_count)
    units = unit_elements(network)
    outside = units.pop("", 0)
    whole = (outside + sum(sorted(units.values())[-2:])) / count  # share of all parameters that is gathered at once
    share = 1.0 / n_ranks
    gathered = min(1.0, whole + share)
    return replace(
        need,
        parameters_bytes=need.parameters_bytes * gathered,
        gradients_bytes=need.gradients_bytes * gathered,
        optimizer_bytes=need.optimizer_bytes * share,
    )
