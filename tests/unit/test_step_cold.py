"""Bytes that a step's kernels must read from memory whatever their size: by hand, in elements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import load_machine
from simulator.devices.optimizer import Optimizer, first_reads, optimizer_kernels
from simulator.devices.predict import Device
from simulator.places import Places
from simulator.step.lowering import forgotten_share
from simulator.workload.operators import (
    Attention,
    Conv2d,
    Elementwise,
    Embedding,
    LayerNorm,
    Linear,
    MatMul,
    Operator,
    Phase,
    Softmax,
)

CONV = Conv2d(batch=2, c_in=4, c_out=8, h_in=6, w_in=6, kernel_h=3, kernel_w=3, pad_h=1, pad_w=1)


def old(operator: Operator, phase: Phase, *, parameters: bool = False) -> list[float]:
    """Return the elements that each kernel reads and that no recent kernel wrote."""
    kernels = operator.kernels(phase, "fp32")
    return [kernel.old_bytes(forward=phase == "fwd", has_parameters=parameters) / 4 for kernel in kernels]


@pytest.mark.parametrize(
    ("operator", "phase", "parameters", "elements"),
    [
        (Linear(3, 5, 7, bias=False), "fwd", True, [5 * 7]),
        (Linear(3, 5, 7, bias=False), "bwd", True, [5 * 7, 3 * 5]),  # the weight, then the input
        (MatMul(3, 5, 7, batch=2), "fwd", False, [0]),
        (MatMul(3, 5, 7, batch=2), "bwd", False, [2 * 7 * 5, 2 * 3 * 7]),  # the other factor in each case
        (CONV, "fwd", True, [8 * 4 * 9]),
        (CONV, "bwd", True, [8 * 4 * 9, 2 * 4 * 36]),
        (Elementwise("relu", 10), "fwd", False, [0]),
        (Elementwise("gelu", 10), "bwd", False, [10]),
        (Elementwise("mul", 10, 2), "bwd", False, [10, 10]),
        (Softmax(3, 5), "bwd", False, [15, 0]),  # the product before has just read the result
        (LayerNorm(3, 5), "fwd", True, [0]),
        (LayerNorm(3, 5), "bwd", True, [15, 0]),
        (Embedding(3, 5, 100), "fwd", True, [15]),
        (Attention(1, 2, 4, 4, 8), "fwd", False, [0]),
        (Attention(1, 2, 4, 4, 8), "bwd", False, [4 * 2 * 4 * 8]),
    ],
)
def test_what_is_old(operator: Operator, phase: Phase, parameters: bool, elements: list[float]) -> None:
    assert old(operator, phase, parameters=parameters) == elements


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("optimizer", "tensors"), [("sgd", 2), ("momentum", 3), ("adam", 4), ("lamb", 4)])
def test_an_update_reads_each_tensor_first_once(optimizer: Optimizer, tensors: int, fused: bool) -> None:
    first = first_reads(optimizer, fused=fused)
    kernels = optimizer_kernels(optimizer, 1, 4, fused=fused)
    assert sum(first) == tensors  # parameter, gradient, and the optimiser's state
    assert all(reads * 4 <= kernel.read_bytes for reads, kernel in zip(first, kernels, strict=True))


@pytest.mark.parametrize("name", ["gpu0", "cpu"])
def test_what_is_forgotten_grows_from_nothing_to_all(name: str) -> None:
    device: Device = Places(load_machine("dgx-h100")).find(name).device
    shares = [forgotten_share(device, n_bytes) for n_bytes in (1e3, 1e6, 1e7, 1e8, 3e8, 1e9, 1e10)]
    assert shares == sorted(shares)
    assert shares[0] < 0.001
    assert shares[-1] > 0.999


def test_without_a_cache_all_is_forgotten() -> None:
    device = Places(load_machine("dgx-h100")).find("cpu").device
    assert forgotten_share(replace(device, caches=()), 1.0) == 1.0  # type: ignore[call-arg]
    assert forgotten_share(replace(device, is_cold=True), 1.0) == 1.0  # type: ignore[call-arg]
