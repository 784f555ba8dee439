"""The peak of memory that a step is told to need is that of live tensors as torch runs it, storage by storage.

Torch runs with fake CUDA tensors, in a process of its own (``tests.oracles.track_steps``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from simulator.questions.options import StepOptions
from simulator.step.memory import memory_need
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from torch.profiler import ProfilerActivity, profile  # noqa: E402

from tests.oracles.cpu_steps import ON_CPUS  # noqa: E402  they import torch
from tests.oracles.torch_steps import STEPS  # noqa: E402
from tests.oracles.torch_tracked import loss_of  # noqa: E402


@cache
def _tracked() -> Any:
    """Return what torch takes for each step, by name and way of computing."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.oracles.track_steps"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(("name", "way"), [(name, way) for name, step in STEPS.items() for way in step.ways])
def test_the_peak_of_a_step_is_that_of_torch(name: str, way: Any) -> None:
    step = STEPS[name]
    recompute = "full" if step.again else "none"
    options = StepOptions(mode="backward", precision=way, optimizer="none", recompute=recompute)
    network = build_network(step.zoo, batch=step.batch, loss=True, **step.options)
    need = memory_need(network, options, find_gpu("a100-pcie-40gb"))
    found = _tracked()[name][way]
    within = 0.025 if step.again else 0.02  # names of a block that runs again hold tensors a little longer
    tensors = need.allocated_bytes - need.workspace_bytes  # which products on CPUs do not have
    assert tensors == pytest.approx(found["peak_bytes"], rel=within), (need, found)


@pytest.mark.parametrize("name", ON_CPUS)
def test_the_oracle_counts_what_the_allocator_gives(name: str) -> None:
    """A real step on the CPU: the allocator's own record of its peak, besides what is there before."""
    step = ON_CPUS[name]
    module, inputs, labels = step.build()
    there = {t.untyped_storage()._cdata: t for t in (*module.parameters(), *module.buffers(), *inputs, *labels)}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        loss_of(module, inputs, labels, wide=step.wide).backward()
    live = most = sum(tensor.untyped_storage().nbytes() for tensor in there.values())
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            most = max(most, live)
    assert _tracked()[name]["fp32"]["peak_bytes"] == pytest.approx(most, rel=1e-3)
