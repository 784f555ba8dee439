"""Measured networks equal predicted ones: compared with the zoo by torch's counts."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from simulator.workload.activations import saved_tensors
from simulator.workload.backward import training_flop
from simulator.workload.network import Network
from simulator.workload.operators import Attention
from simulator.workload.zoo.registry import build_network

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from torch import nn  # noqa: E402  it is there
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tests.kept import kept_bytes, masks_of_bytes  # noqa: E402  it imports torch
from validate.machine.measure.cases.networks.catalogue import ENTRIES, Sizes, build_example  # noqa: E402  it imports torch

BATCH = 2
# Fused on a CPU and on a GPU, but not on the meta device: compared on a CPU, with small sizes.
FUSED = ("mpt-125m", "mpt-350m", "llama-7b")
TINY = Sizes(16, 32, 4, 2, 96)


def sizes_of(name: str) -> Sizes | None:
    if ENTRIES[name].sample != "sequences":
        return None
    return TINY if name in FUSED else Sizes(16 if name.startswith("lstm") else 64, layers=2)


def place_of(name: str) -> str:
    return "cpu" if name in FUSED else "meta"


def zoo(name: str, sizes: Sizes | None, *, training: bool = True, batch: int = BATCH) -> Network:
    options: dict[str, Any] = {}
    if sizes is not None:
        words = {"length": "sequence_length"}
        options = {words.get(k, k): getattr(sizes, k) or None for k in Sizes.__slots__}
        if name == "lstm-shi2016":
            del options["heads"]
            options["layers"] = 2
    return build_network(name, batch=batch, training=training, loss=training, **options)


def parameters_of(network: Network) -> list[int]:
    found = {p.name: p.elements for layer in network.layers for p in layer.parameters}
    return sorted(found.values())


# The others are the same code with other depths; their parameters are compared below.
_EACH = [name for name in ENTRIES if name not in ("resnet152", "bert-large", "gpt2-medium", "mpt-350m")]
_UNTRAINED = ["lenet", "alexnet", "inception3", "bert-base", "llama-7b"]


@pytest.mark.parametrize(
    ("name", "training"), [*((name, True) for name in _EACH), *((name, False) for name in _UNTRAINED)]
)
def test_parameters_and_flop_are_those_of_the_zoo(name: str, training: bool) -> None:
    sizes = sizes_of(name)
    network = zoo(name, sizes, training=training)
    example = build_example(name, BATCH, place_of(name), training=training, sizes=sizes)
    assert sorted(p.numel() for p in example.module.parameters()) == parameters_of(network)
    # torch's counter ignores fused attention on a CPU; on a GPU it counts 2 products forward and 5 backward.
    fused = sum(layer.operator.flop for layer in network.layers if isinstance(layer.operator, Attention))
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        example.forward()
    assert forward.get_total_flops() == network.flop - fused
    if training:
        with FlopCounterMode(display=False) as both:
            example.loss().backward()
        assert both.get_total_flops() == training_flop(network) - fused * 7 // 2


@pytest.mark.parametrize("name", ENTRIES)
def test_own_sizes_are_those_of_the_zoo(name: str) -> None:
    network = build_network(name, batch=1)
    example = build_example(name, 1, "meta")
    assert sorted(p.numel() for p in example.module.parameters()) == parameters_of(network)
    assert example.inputs[0].numel() == network.elements[0]


@pytest.mark.parametrize("name", [n for n in _EACH if ENTRIES[n].sample != "sequences"])
def test_products_come_in_the_order_of_the_zoo(name: str) -> None:
    example = build_example(name, BATCH, "meta")
    found: list[int] = []
    for module in example.module.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(
                lambda m, _, y: found.append(2 * y.numel() * prod(m.weight.shape[1:]))  # FLOPs of a product
            )
    with torch.no_grad():
        example.forward()
    told = [layer.operator.flop for layer in zoo(name, None).layers if layer.operator.flop]
    assert sorted(found) == sorted(told)
    if name != "inception3" and not name.startswith("resnet"):  # whose branches come in an order of their own
        assert found == told


@pytest.fixture
def _bytes_for_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    masks_of_bytes(monkeypatch)


@pytest.mark.usefixtures("_bytes_for_masks")
@pytest.mark.parametrize("name", [n for n in _EACH if n != "lstm-shi2016"])  # cuDNN saves its own data
def test_what_is_kept_for_the_backward_pass_is_that_of_the_zoo(name: str) -> None:
    sizes = sizes_of(name)
    told = saved_tensors(zoo(name, sizes), "fp32").total_bytes
    kept = kept_bytes(build_example(name, BATCH, place_of(name), sizes=sizes))
    assert kept == pytest.approx(told, rel=0.01)  # apart from scalars of a few bytes
