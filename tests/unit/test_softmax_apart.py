"""Megatron-LM's fused softmax needs a multiple of four matrices; otherwise PyTorch's kernels run, with casts."""

from __future__ import annotations

import pytest

from simulator.api import Session
from simulator.devices.dispatch import dispatch_time
from simulator.questions.where import Where
from simulator.workload.kernels import Rowwise, Streaming
from simulator.workload.operators import Softmax

DEVICE = Session().device(Where("dgx-a100-80gb"))
LENGTH = 1024


@pytest.mark.parametrize(("matrices", "kernels"), [(1, 5), (2, 5), (4, 1), (6, 5), (8, 1)])
def test_fours_of_matrices_are_one_kernel(matrices: int, kernels: int) -> None:
    operator = Softmax(matrices * LENGTH, LENGTH, "causal")
    found = [operator.kernels("fwd", "fp16"), operator.kernels("bwd", "fp16")]
    assert [len(each) for each in found] == [kernels, kernels]
    assert dispatch_time(DEVICE, operator, "fwd") == pytest.approx(
        kernels * dispatch_time(DEVICE, Softmax(matrices * LENGTH, LENGTH), "fwd")
    )


def test_it_computes_in_fp32_between_casts() -> None:
    operator = Softmax(2 * LENGTH, LENGTH, "masked")
    n = operator.output_elements
    for phase in ("fwd", "bwd"):
        first, *_, last = kernels = operator.kernels(phase, "fp16")
        assert isinstance(first, Streaming)
        assert isinstance(last, Streaming)
        assert (first.read_bytes, first.written_bytes) == (2 * n, 4 * n)
        assert (last.read_bytes, last.written_bytes) == (4 * n, 2 * n)
        assert [k.precision for k in kernels if isinstance(k, Rowwise)] == ["fp32"]
    assert operator.kernels("bwd_weight", "fp16") == ()


def test_pytorchs_own_is_as_it_was() -> None:
    assert Softmax(2 * LENGTH, LENGTH).calls == 1
