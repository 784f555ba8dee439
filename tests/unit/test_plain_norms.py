"""RMSNorm as a module of calls, as Hugging Face's models have it: bytes and calls counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.devices.dispatch import host_costs
from simulator.questions.options import Framework, StepOptions
from simulator.questions.where import Where
from simulator.step.issue import launches_of
from simulator.step.launch import Launch
from simulator.workload.kernels import Kernel
from simulator.workload.network import Network
from simulator.workload.operators import LayerNorm
from simulator.workload.zoo.registry import build_network

ROWS, COLS = 512, 4096
N = ROWS * COLS
NORM = LayerNorm(ROWS, COLS, "rms_norm", plain=True)
H100 = Session().device(Where("dgx-h100"))
EAGER = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)


def llama(**sizes: object) -> Network:
    return build_network("llama3-8b", batch=1, sequence_length=ROWS, layers=1, loss=True, **sizes)


def moved(kernels: tuple[Kernel, ...]) -> int:
    """Return the bytes of *kernels* on all elements, without those on a number for each row."""
    return sum(kernel.bytes for kernel in kernels if kernel.bytes > 8 * ROWS)


def first_norm(options: StepOptions, part: str = "forward", **sizes: object) -> Launch:
    return next(i for i in launches_of(H100, llama(**sizes), options) if (i.layer, i.part) == ("layers.0.norm1", part))


def test_forward_calls_cast_square_average_multiply_and_cast_back() -> None:
    half = NORM.kernels("fwd", "bf16", "pytorch")
    assert len(half) == 8
    # Cast 2 + 4, square 4 + 4, mean 4, by the root 4 + 4, cast 4 + 2, by the weight 2 + 2.
    assert moved(half) == pytest.approx((6 + 8 + 4 + 8 + 6 + 4) * N, rel=0.01)
    assert len(NORM.kernels("fwd", "fp32", "pytorch")) == 6


def test_backward_calls_are_autograds() -> None:
    both, data = (NORM.kernels(phase, "bf16", "pytorch") for phase in ("bwd", "bwd_data"))  # type: ignore[arg-type]
    assert moved(both) - moved(data) == pytest.approx((6 + 2) * N, rel=0.01)  # the weight's product and sum
    # By the weight 2 + 2, cast 2 + 4, by the root 4 + 4, by x 8 + 4 and sum 4, the square 8 + 8 + 8, sum 8 + 4, cast 6.
    assert moved(data) == pytest.approx((4 + 6 + 8 + 12 + 4 + 24 + 12 + 6) * N, rel=0.01)


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        (EAGER, 8),
        (replace(EAGER, framework="deepspeed-zero3"), 8),
        (replace(EAGER, framework="megatron"), 1),
        (replace(EAGER, compiled=True), 1),
    ],
)
def test_who_has_a_kernel_for_it(options: StepOptions, calls: int) -> None:
    issue = next(i for i in launches_of(H100, llama(), options) if "norm1" in i.layer and i.part == "forward")
    assert len(issue.work.costs) == calls


def test_the_host_issues_each_call() -> None:
    assert first_norm(EAGER).host_s == pytest.approx(8 * host_costs(H100).forward_s)


def test_norms_may_be_fused() -> None:
    plain, fused = first_norm(EAGER), first_norm(EAGER, norms="fused")
    assert (len(plain.work.costs), len(fused.work.costs)) == (8, 1)
    assert plain.device_s > 3 * fused.device_s


@pytest.mark.parametrize("framework", ["pytorch", "megatron"])
def test_a_norm_of_the_framework_stays_one_kernel(framework: Framework) -> None:
    assert len(LayerNorm(ROWS, COLS).kernels("fwd", "bf16", framework)) == 1
    assert len(LayerNorm(ROWS, COLS, "rms_norm").kernels("fwd", "bf16", framework)) == 1
