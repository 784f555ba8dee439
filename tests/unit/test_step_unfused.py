"""TensorFlow's graph of a transformer without fusion: kernels counted from the formulas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.devices.optimizer import first_reads, optimizer_kernels
from simulator.questions.options import StepOptions
from simulator.step.issue import launches_of
from simulator.workload.find import find_network
from simulator.workload.kernels import Gemm, Streaming
from simulator.workload.operators import Conv2d, Elementwise, LayerNorm, Linear, Operator, Phase
from tests.devices import find_gpu

N = 1 << 20


def moved(operator: Operator, phase: Phase, precision: str = "fp32") -> float:
    """Return the fp32 numbers that the kernels of *operator* move per element."""
    kernels = operator.kernels(phase, precision, "tensorflow")  # type: ignore[arg-type]
    assert all(isinstance(kernel, Streaming) for kernel in kernels)
    return sum(kernel.bytes for kernel in kernels) / (4.0 * N)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_formulas_are_counted_in_fp32(precision: str) -> None:
    gelu, norm = Elementwise("gelu", N), LayerNorm(N // 1024, 1024)
    assert moved(gelu, "fwd", precision) == 10 + 8
    assert moved(gelu, "bwd", precision) == 16 + 10
    assert moved(norm, "fwd", precision) == 9 + 6
    assert norm.kernels("bwd_weight", "fp32", "tensorflow") == ()


def test_a_bias_is_a_kernel_of_its_own_and_what_has_no_formula_stays() -> None:
    linear = Linear(1024, 1024, 1024)
    product, bias = linear.kernels("fwd", "fp16", "tensorflow")
    assert isinstance(product, Gemm)
    assert bias.bytes == 2 * 2 * linear.output_elements
    image = Conv2d(8, 64, 64, 56, 56, 1, 1)
    assert image.kernels("fwd", "fp16", "tensorflow") == image.kernels("fwd", "fp16")


def test_the_update_has_a_pass_for_each_operation() -> None:
    passes, firsts = optimizer_kernels("adam", N, graph=True), first_reads("adam", graph=True)
    assert len(passes) == len(firsts) == 19
    assert sum(firsts) == 4  # gradient, mean, square and parameter
    assert optimizer_kernels("adam", N, fused=True, graph=True) == optimizer_kernels("adam", N, fused=True)
    assert optimizer_kernels("momentum", N, graph=True) == optimizer_kernels("momentum", N)


def test_a_step_of_bert_is_slower_unless_compiled() -> None:
    device = find_gpu("v100-sxm2-16gb")
    network = find_network("bert-base", sequence_length=128).build(8)
    options = StepOptions(precision="fp32", optimizer="adam")

    def busy_s(asked: StepOptions) -> float:
        return sum(issue.device_s for issue in launches_of(device, network, asked))

    graph = replace(options, framework="tensorflow")
    assert busy_s(graph) > 1.2 * busy_s(options)
    assert busy_s(replace(graph, compiled=True)) < busy_s(options)
