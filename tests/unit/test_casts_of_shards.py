"""Autocast's casts of gathered parameters: FSDP2, as torch runs it, keeps them to the end of the forward pass."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from simulator.questions.options import Recompute, StepOptions
from simulator.step.memory import Shares, held_in, moments_of, need_of
from simulator.step.moments import tape_of
from simulator.workload.network import Network
from simulator.workload.zoo.builder import NetworkBuilder
from tests.devices import find_gpu

WIDTH, DEPTH = 64, 4
SHARES = Shares(0.25, 0.5, 0.75, 0.25, 0.25)
_SHARDED = f"""
import weakref
from contextlib import nullcontext
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
casts = []

class Casts(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {{}}))
        if "_to_copy" in str(function) and result.shape == ({WIDTH}, {WIDTH}):
            casts.append(weakref.ref(result))
        return result

for again in (False, True):
    blocks = torch.nn.Sequential(*(torch.nn.Linear({WIDTH}, {WIDTH}, bias=False) for _ in range({DEPTH})))
    for block in (*blocks, blocks):
        fully_shard(block, mesh=dist.device_mesh.init_device_mesh("cpu", (1,)))
    casts.clear()
    x = torch.randn(8, {WIDTH})
    with torch.autocast("cpu", torch.bfloat16), Casts():
        y = checkpoint(blocks, x, use_reentrant=False) if again else blocks(x)
        inside = sum(each() is not None for each in casts)
    print(inside, sum(each() is not None for each in casts))
"""


def blocks(rows: int = 8) -> Network:
    b = NetworkBuilder("blocks")
    x = b.input(rows, WIDTH)
    for i in range(DEPTH):
        x = x.linear(f"layers.{i}.linear", WIDTH, bias=False)
    return b.build(1)


@pytest.mark.torch
@pytest.mark.slow
def test_casts_of_units_in_fp32_live_as_long_as_in_torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _SHARDED], capture_output=True, text=True, check=True)
    each = WIDTH * WIDTH * 2
    ways: list[Recompute] = ["none", "full"]
    for recompute, found in zip(ways, done.stdout.splitlines(), strict=True):
        tape = tape_of(blocks(), StepOptions(precision="amp-bf16", recompute=recompute), 4)
        inside, after = map(int, found.split())
        assert tape.layers[-1].casts_bytes == inside * each
        assert tape.moments[0].casts_bytes == after * each


def test_units_in_fp32_take_twice_the_bytes_and_their_casts() -> None:
    options, device = StepOptions(precision="amp-bf16", optimizer="adam", recompute="full"), find_gpu("a100-pcie-40gb")
    network, wide = blocks(), replace(SHARES, gathers_in_fp32=True)
    held, n = held_in(network, options), network.parameter_count
    half, full = (need_of(held, options, device, each) for each in (SHARES, wide))
    highest = max(moments_of(held, options, wide), key=lambda moment: moment.total_bytes)
    assert full.parameters_bytes - half.parameters_bytes == 0.5 * n * 2 + highest.casts_bytes
    assert {moment.casts_bytes for moment in moments_of(held, options, SHARES)} == {0.0}
    assert max(moment.casts_bytes for moment in moments_of(held, options, wide)) == 2 * n


@pytest.mark.parametrize("options", [StepOptions(precision="fp32"), StepOptions(precision="bf16")])
def test_without_autocast_there_is_nothing_to_cast(options: StepOptions) -> None:
    held, device = held_in(blocks(), options), find_gpu("a100-pcie-40gb")
    wide = replace(SHARES, gathers_in_fp32=True)
    casts = [moment.casts_bytes for moment in moments_of(held, options, wide)]
    assert not any(casts)
    assert (
        need_of(held, options, device, wide).allocated_bytes >= need_of(held, options, device, SHARES).allocated_bytes
    )
