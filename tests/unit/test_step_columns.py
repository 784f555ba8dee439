"""Convolutions image by image, as in frameworks without cuDNN."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.questions.options import StepOptions
from simulator.step.issue import launches_of
from simulator.workload.find import find_network
from simulator.workload.kernels import Gemm, Streaming
from simulator.workload.operators import Conv2d
from tests.devices import find_gpu

SHAPE = Conv2d(4, 64, 128, 28, 28, 3, 3, pad_h=1, pad_w=1)


@pytest.mark.parametrize(("phase", "products"), [("fwd", 1), ("bwd_data", 1), ("bwd_weight", 1), ("bwd", 2)])
def test_each_image_has_its_products_and_they_do_all_work(phase: str, products: int) -> None:
    kernels = SHAPE.kernels(phase, "fp32", "caffe")  # type: ignore[arg-type]
    gemms = [kernel for kernel in kernels if isinstance(kernel, Gemm)]
    assert len(gemms) == products * SHAPE.batch
    assert sum(kernel.flop for kernel in gemms) == products * SHAPE.flop


def test_columns_are_written_once_for_each_tap() -> None:
    in_caffe = SHAPE.kernels("fwd", "fp32", "caffe")
    written = [k.written_bytes for k in in_caffe if isinstance(k, Streaming) and k.read_bytes]
    assert written == [4 * 9 * 64 * 28 * 28] * SHAPE.batch


def test_a_step_without_cudnn_takes_longer() -> None:
    device = find_gpu("titan-x-pascal")
    network = find_network("resnet18").build(16)
    options = StepOptions(precision="fp32")

    def busy_s(asked: StepOptions) -> float:
        return sum(issue.device_s for issue in launches_of(device, network, asked))

    assert busy_s(replace(options, framework="caffe")) > 1.5 * busy_s(options)
