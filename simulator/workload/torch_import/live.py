"""Trace a ``torch.nn.Module`` object into a network: ``network_of_module``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from simulator.errors import refused
from simulator.workload.find import NetworkSource
from simulator.workload.network import Network
from simulator.workload.torch_import.factory import quietly, subject_of_module
from simulator.workload.torch_import.trace import trace_subject


def network_of_module(module: Any, inputs: Any, loss: Callable[[Any], Any] | None, *, training: bool) -> NetworkSource:
    """Return the network traced from one pass of *inputs* through *module*, unchanged; raises InputError."""
    with quietly():
        subject = subject_of_module(module, inputs, loss)

    @cache
    def traced() -> Network:
        return trace_subject(subject, training=training).network

    def build(batch: int) -> Network:
        """Return the network; *batch* must be that of the inputs, or 0 for any."""
        if batch not in (0, subject.samples):
            raise refused(
                "batch", f"the inputs hold {subject.samples} samples; give inputs of {batch}, or that batch", batch
            )
        return traced()

    return NetworkSource(f"the module {subject.name}", build)
