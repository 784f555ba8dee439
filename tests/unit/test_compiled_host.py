"""What the host calls in a step, operator by operator and where torch.compile has compiled it."""

from __future__ import annotations

import pytest

from simulator.devices.dispatch import dispatch_time, host_time
from simulator.questions.options import StepOptions
from simulator.step.issue import launches_of
from simulator.workload.network import Layer, Network, Parameter
from simulator.workload.operators import Attention, Elementwise, Linear
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu

GPU = find_gpu("a100-pcie-40gb")
COSTS = GPU.constants["dispatch"]
COMPILED = StepOptions(precision="fp32", compiled=True, mode="forward")
N = 4096


def host_s(network: Network, options: StepOptions) -> float:
    return sum(issue.host_s for issue in launches_of(GPU, network, options))


def test_a_product_is_called_as_ever_and_what_is_generated_is_launched() -> None:
    product = Linear(64, 64, 64)
    layers = (
        Layer("product", product, (0,), 1, (Parameter("weight", N), Parameter("bias", 64))),
        Layer("gelu", Elementwise("gelu", N), (1,), 2),
        Layer("tanh", Elementwise("tanh", N), (2,), 3),
    )
    network = Network("chain", layers, (N,) * 4, 1)
    called_s = dispatch_time(GPU, product, "fwd") + 2 * COSTS.argument_s
    assert host_s(network, COMPILED) == pytest.approx(called_s + COSTS.generated_s)  # two functions, one kernel


def test_a_gradient_is_a_call_and_so_are_the_sums_that_it_needs() -> None:
    """On an H200 a product with a bias takes 143 us both ways, attention 129 us, where a ReLU takes 45 us."""
    product_s = COSTS.backward_s + COSTS.product_s
    assert dispatch_time(GPU, Linear(64, 64, 64), "bwd") == pytest.approx(3 * product_s)
    assert dispatch_time(GPU, Linear(64, 64, 64, bias=False), "bwd") == pytest.approx(2 * product_s)
    assert dispatch_time(GPU, Attention(2, 2, 8, 8, 16, 2, causal=False), "bwd") == pytest.approx(2 * product_s)


def test_compiling_takes_kernels_from_the_host_but_hands_over_every_parameter() -> None:
    """ResNet-50 has few functions to fuse and 320 parameters and buffers: its host takes as long as without."""
    network = build_network("resnet50", batch=64, loss=True)
    eager_s, compiled_s = (
        host_s(network, StepOptions(precision="amp-bf16", channels_last=True, compiled=compiled))
        for compiled in (False, True)
    )
    assert compiled_s == pytest.approx(eager_s, rel=0.1)  # measured on an H200: 26.8 and 24.5 ms
    assert host_time(GPU, "argument_s", 161 + 3 * 53) > 0.2 * compiled_s
