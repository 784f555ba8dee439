"""Matrix products that compilers pad."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.devices.predict import kernel_cost
from simulator.questions.options import StepOptions
from simulator.step.lowering import Lowering, padded
from simulator.workload.kernels import Gemm, Kernel, Streaming
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu


@pytest.mark.parametrize(
    ("layout", "sizes", "wider"),
    [
        ("NT", (8192, 50257, 768), (8192, 50264, 768)),
        ("NN", (8192, 768, 50257), (8192, 768, 50264)),
        ("TN", (50257, 768, 8191), (50264, 768, 8191)),
        ("TT", (8191, 50257, 767), (8192, 50264, 768)),
    ],
)
def test_what_rows_are_long_is_padded(layout: str, sizes: tuple[int, int, int], wider: tuple[int, int, int]) -> None:
    device = find_gpu("a100-sxm4-80gb")
    kernel = Gemm(*sizes, "bf16", layout=layout)  # type: ignore[arg-type]
    m, n, k = wider
    assert padded(device, kernel) == replace(kernel, m=m, n=n, k=k)
    assert kernel_cost(device, padded(device, kernel)).time_s < 0.5 * kernel_cost(device, kernel).time_s


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("a100-sxm4-80gb", Gemm(8192, 50264, 768, "bf16", layout="NT")),
        ("a100-sxm4-80gb", Gemm(8192, 50257, 768, "fp32", layout="NT")),
        ("a100-sxm4-80gb", Gemm(15800, 1, 512, "bf16")),  # a vector
        ("a100-sxm4-80gb", Streaming("add", 50257, 50257, 50257)),
        ("v100-sxm2-16gb", Gemm(4096, 4097, 4096, "fp32")),  # no tensor cores
        ("mi300x", Gemm(8192, 50257, 768, "bf16", layout="NT")),
    ],
)
def test_what_gains_nothing_is_left_alone(name: str, kernel: Kernel) -> None:
    device = find_gpu(name)
    assert padded(device, kernel) == kernel


def test_compiled_steps_pad_and_eager_ones_do_not() -> None:
    device = find_gpu("a100-sxm4-80gb")
    network = build_network("gpt2", batch=4)
    head = next(layer for layer in network.layers if layer.name == "lm_head")
    outputs = []
    for compiled in (False, True):
        lowering = Lowering(device, network, StepOptions(precision="amp-bf16", compiled=compiled))
        (run,) = lowering.layer(head.operator, "fwd", lowering.mix(head), has_parameters=True)
        assert isinstance(run.kernel, Gemm)
        outputs.append(run.kernel.n)
    assert outputs == [50257, 50264]
