"""Copies between image layouts: where they occur, and how long they take."""

from __future__ import annotations

import pytest

from simulator.api import load_machine
from simulator.devices.gpu import Gpu, gpu_from_part
from simulator.devices.predict import kernel_cost
from simulator.questions.options import StepOptions
from simulator.step.conversions import laid_out
from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart
from simulator.workload.backward import backward_steps
from simulator.workload.kernels import Kernel, Rowwise, Streaming
from simulator.workload.operators import BatchNorm, Conv2d, Convolution
from simulator.workload.precision import Precision
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on

SHAPE = Conv2d(batch=32, c_in=64, c_out=128, h_in=28, w_in=28, kernel_h=1, kernel_w=1)


def gpu(name: str) -> Gpu:
    part = load_part(name)
    assert isinstance(part, GpuPart)
    return gpu_from_part(name, part)


def copies(
    device: Gpu, phase: str, precision: Precision = "fp16", *, shape: Conv2d = SHAPE, channels_last: bool = False
) -> list[Kernel]:
    kernels = laid_out(device, shape.kernels(phase, precision), channels_last=channels_last)  # type: ignore[arg-type]
    return [kernel for kernel in kernels if isinstance(kernel, Streaming)]


def test_volta_copies_what_a_convolution_reads() -> None:
    v100 = gpu("v100-sxm2-16gb")
    read, written = SHAPE.input_elements, SHAPE.output_elements
    assert [kernel.bytes for kernel in copies(v100, "fwd")] == [2 * 2 * read]
    assert [kernel.bytes for kernel in copies(v100, "bwd_data")] == [2 * 2 * written]
    assert [kernel.bytes for kernel in copies(v100, "bwd_weight")] == [2 * 2 * read, 2 * 2 * written]


def test_where_nothing_is_copied() -> None:
    v100 = gpu("v100-sxm2-16gb")
    assert not copies(v100, "fwd", channels_last=True)
    assert not copies(v100, "fwd", "fp32")  # no matrix units
    assert not copies(gpu("a100-sxm4-40gb"), "fwd")  # included in the cost of the convolution


def test_lanes_read_planes_and_copy_pixels() -> None:
    images = 4 * (SHAPE.input_elements + SHAPE.output_elements)
    for phase in ("fwd", "bwd_data", "bwd_weight"):
        found = copies(gpu("v100-sxm2-16gb"), phase, "fp32", channels_last=True)
        assert sum(kernel.bytes for kernel in found) == 2 * images
    assert not copies(gpu("a100-sxm4-40gb"), "fwd", "tf32", channels_last=True)
    depthwise = Conv2d(batch=32, c_in=64, c_out=64, h_in=28, w_in=28, kernel_h=3, kernel_w=3, groups=64)
    assert not copies(gpu("v100-sxm2-16gb"), "fwd", "fp32", shape=depthwise, channels_last=True)


@pytest.mark.parametrize(
    ("precision", "channels_last", "measured_s"),
    [("fp32", False, 0.342), ("fp32", True, 0.413), ("amp-fp16", False, 0.152), ("amp-fp16", True, 0.111)],
)
def test_a_step_in_each_layout(precision: str, channels_last: bool, measured_s: float) -> None:
    """ResNet-50 at batch 128 on a V100 (sandeepkumar-skb/pytorch_experiments, torchvision_exp)."""
    network = build_network("resnet50", batch=128, training=True)
    options = StepOptions(precision=precision, channels_last=channels_last)  # type: ignore[arg-type]
    result = alone_on(load_machine("p3.2xlarge"), network, options)
    assert result.step_time_s == pytest.approx(measured_s, rel=0.2)


def test_layouts_reach_convolutions_and_normalisation() -> None:
    a100 = gpu("a100-sxm4-40gb")
    norm = BatchNorm(32, 64, 28, 28).kernels("fwd", "fp16")
    for kernels in (SHAPE.kernels("fwd", "fp16"), norm):
        for asked in (False, True):
            found = laid_out(a100, kernels, channels_last=asked)
            assert all(isinstance(kernel, Convolution | Rowwise) for kernel in found)
            assert [kernel.channels_last for kernel in found] == [asked]  # type: ignore[union-attr]


def test_copies_of_a_network_take_what_a_profile_shows() -> None:
    """ResNet-50 at batch 128 in fp16 on a V100: nchwToNhwc, in PaddlePaddle issue 19425."""
    v100 = gpu("v100-sxm2-16gb")
    network = build_network("resnet50", batch=128, training=True)
    asked = [(layer, "fwd") for layer in network.layers]
    asked += [(step.layer, step.phase) for step in backward_steps(network)]
    total_s = sum(
        kernel_cost(v100, kernel).time_s
        for layer, phase in asked
        if isinstance(layer.operator, Conv2d)
        for kernel in copies(v100, phase, shape=layer.operator)
    )
    assert total_s == pytest.approx(26.6e-3, rel=0.15)


def test_compilers_divide_sums_over_channels_among_blocks() -> None:
    """Their kernels are memory-bound: half precision takes half as long, unlike cuDNN's, which go plane by plane."""
    machine = load_machine("dgx-a100-40gb")
    network = build_network("resnet50", batch=64, training=True)

    def normalisation_s(*, compiled: bool) -> float:
        options = StepOptions(precision="amp-fp16", compiled=compiled)
        kinds = {kind.kind: kind.time_s for kind in alone_on(machine, network, options).kinds}
        return kinds["rowwise"]

    assert normalisation_s(compiled=True) < 0.8 * normalisation_s(compiled=False)
