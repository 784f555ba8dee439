"""The zoo's reference figures, recomputed by torch; needs torch, and torchvision or transformers for their networks."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pytest

from simulator.workload.backward import one_format, saved_tensors, training_flop
from simulator.workload.network import Network
from simulator.workload.zoo.attention import Mask, self_attention
from simulator.workload.zoo.builder import NetworkBuilder
from simulator.workload.zoo.registry import build_network, network_names

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from tests.cover import one_of_each_code  # noqa: E402
from tests.oracles import torch_memory, torch_networks  # noqa: E402  they import torch
from tests.unit.test_zoo import BY_BLOCKS  # noqa: E402

_FIGURES = json.loads((Path(__file__).parents[1] / "oracles" / "network_figures.json").read_text(encoding="utf-8"))


def test_there_is_an_oracle_for_every_network() -> None:
    assert sorted([*torch_networks.NAMES, *BY_BLOCKS]) == sorted(network_names())


@pytest.mark.parametrize("name", [name for name in one_of_each_code() if name not in BY_BLOCKS])
def test_the_kept_figures_are_what_torch_counts(name: str) -> None:
    """``python -m tests.oracles.make_network_figures`` counts all networks again: its file must not change."""
    library = torch_networks.NAMES[name][0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed; the figures that it gave are kept")
    counted = torch_networks.measure(name)
    kept = _FIGURES["networks"][name]
    assert (counted.parameters, counted.outputs) == (kept["parameters"], kept["outputs"])
    assert (counted.forward_flop, counted.training_flop) == (kept["forward_flop"], kept["training_flop"])


@pytest.mark.parametrize(("causal", "kv_heads"), [(False, 4), (True, 4)])
def test_fused_attention_counts_as_torch_counts_it(causal: bool, kv_heads: int) -> None:
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    b = NetworkBuilder("attention")
    x = b.input(2, 16, 32).linear("qkv", 32)
    mask: Mask = "add-causal" if causal else "none"
    self_attention((x, x, x), "block", heads=4, kv_heads=kv_heads, kind="fused", mask=mask, dropout=False)
    network = b.build(2)
    shape = (2, kv_heads, 16, 8)
    forward = sdpa_flop_count(shape, shape, shape)
    linear = 2 * 2 * 16 * 32 * 32
    assert network.flop == linear + forward
    backward = sdpa_backward_flop_count(shape, shape, shape, shape)
    assert training_flop(network) == 2 * linear + forward + backward


def zoo_network(name: str, batch: int) -> Network:
    options = torch_memory.NETWORKS[name][1]
    return build_network(name, batch=batch, loss=True, **options)


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("name", torch_memory.NETWORKS)
def test_memory_kept_for_the_backward_pass_is_what_autograd_keeps(name: str, batch: int) -> None:
    kept = torch_memory.saved_bytes(name, batch)
    network = zoo_network(name, batch)
    told = saved_tensors(network, one_format(network, 4)).total_bytes
    # torch also saves scalars of a few bytes, such as loss weights and scales.
    assert told <= kept <= told + 64 * torch_memory.NUMBERS[name]
    assert math.isclose(kept, told, rel_tol=0.01)
