"""What a compiled step saves is what torch's partitioner saves of the same network, divided without a compiler."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from simulator.questions.options import StepOptions
from simulator.step.conversions import formats_of
from simulator.step.fusion import Partition
from simulator.workload.backward import saved_tensors
from simulator.workload.network import Layer, Network, Parameter
from simulator.workload.operators import Elementwise, LayerNorm, Linear
from simulator.workload.zoo.registry import build_network

OPTIONS = StepOptions(compiled=True, precision="amp-bf16")


def saved_bytes(network: Network, options: StepOptions = OPTIONS) -> int:
    """Return what is saved of *network*, but for its inputs, which the caller holds."""
    formats = formats_of(network, options)
    saved = Partition(network, formats, saved_tensors(network, formats)).saved()
    written = {layer.output for layer in network.layers}
    return saved.total_bytes - sum(n for number, n in saved.by_tensor.items() if number not in written)


ROWS, COLS = 64, 32
N = ROWS * COLS


def linear(name: str, read: int, written: int) -> Layer:
    return Layer(name, Linear(ROWS, COLS, COLS), (read,), written, (Parameter(f"{name}.weight", COLS * COLS),))


def chain(*layers: Layer) -> Network:
    return Network("chain", layers, (N,) * (len(layers) + 1), 1)


def test_what_a_product_reads_is_saved_and_what_it_follows_from_too() -> None:
    gelu = Layer("gelu", Elementwise("gelu", N), (1,), 2)
    network = chain(linear("up", 0, 1), gelu, linear("down", 2, 3))
    assert saved_bytes(network) == 3 * 2 * N  # the inputs of both products, in their format, and that of the function


def test_a_chain_of_functions_runs_again_from_the_product_before_it() -> None:
    layers = [linear("up", 0, 1)]
    layers += [Layer(name, Elementwise(name, N), (i,), i + 1) for i, name in enumerate(("gelu", "tanh", "silu"), 1)]
    plain = StepOptions(compiled=True, precision="fp32")
    assert saved_bytes(chain(*layers), plain) == 4 * N


def test_a_relu_whose_result_nobody_needs_saves_a_byte_an_element() -> None:
    add = Layer("add", Elementwise("add", N, 2), (0, 1), 2)  # far from the first that reads the input
    network = Network("sum", (linear("up", 0, 1), add, Layer("relu", Elementwise("relu", N), (2,), 3)), (N,) * 4, 1)
    assert saved_bytes(network, StepOptions(compiled=True, precision="fp32")) == N


def test_the_sum_along_the_residuals_is_saved_in_its_own_format() -> None:
    """Rows that are normalised anew after each sum: of the two operands only the sum is saved."""
    norm = Layer("norm", LayerNorm(ROWS, COLS), (2,), 3)
    add = Layer("add", Elementwise("add", N, 2), (0, 1), 2)
    network = Network("block", (linear("up", 0, 1), add, norm, linear("down", 3, 4)), (N,) * 5, 1)
    statistics = 2 * 4 * ROWS
    assert saved_bytes(network, StepOptions(compiled=True, precision="fp32")) == 2 * 4 * N + statistics


@cache
def _by_torch() -> Any:
    command = [sys.executable, "-W", "ignore", "-m", "tests.oracles.torch_partition"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


_SMALL = {"sequence_length": 64, "hidden": 256, "heads": 4, "layers": 2, "vocabulary": 5000}
_EXPECTED: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet18-28x28": (8, {}),
    "unet": (1, {}),
    "alexnet": (16, {}),
    "lenet": (64, {}),
    "gpt2": (3, _SMALL),
    "bert-base": (3, _SMALL),
}


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("name", _EXPECTED)
def test_the_saved_bytes_are_those_of_torchs_partitioner(name: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    batch, sizes = _EXPECTED[name]
    network = build_network(name, batch=batch, loss=True, **sizes)
    assert saved_bytes(network) == pytest.approx(_by_torch()[name], rel=0.015)
