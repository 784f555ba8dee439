"""TF32 where it is allowed: a library that may choose takes the faster of TF32 and fp32."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.devices.gpu import Gpu
from simulator.devices.predict import kernel_cost
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.step.changes import possible_changes
from simulator.step.conversions import laid_out
from simulator.workload.kernels import Gemm, Kernel
from simulator.workload.operators import Conv2d, Convolution, Recurrence
from tests.devices import find_gpu
from validate.tables.names import names_of

FIRST = Conv2d(16, 3, 64, 256, 256, 3, 3)
KERNELS: tuple[Kernel, ...] = (
    *(Convolution(FIRST, way, "tf32") for way in ("fwd", "bwd_data", "bwd_weight")),
    Convolution(Conv2d(32, 64, 64, 224, 224, 3, 3, pad_h=1, pad_w=1), "fwd", "tf32"),
    Convolution(Conv2d(32, 256, 512, 28, 28, 1, 1), "bwd_data", "tf32"),
    Gemm(4096, 4096, 4096, "tf32"),
    Gemm(64, 30, 9, "tf32"),
    Recurrence("lstm", 32, 25, 512, 512, "fwd", "tf32"),
)


def has_tf32() -> list[Gpu]:
    found = [find_gpu(name) for name in sorted(set(names_of("gpu").values())) if name != "knl-7250"]  # without a model
    return [gpu for gpu in found if "tf32" in gpu.peak_flops_per_s]


@pytest.mark.parametrize("gpu", has_tf32(), ids=lambda gpu: gpu.name)
def test_what_is_allowed_is_never_slower_than_without(gpu: Gpu) -> None:
    for kernel in KERNELS:
        assert kernel_cost(gpu, kernel).time_s <= kernel_cost(gpu, replace(kernel, precision="fp32")).time_s
    for kernel in KERNELS[:5]:  # by pixels, the lanes need copies
        ways = [laid_out(gpu, [replace(kernel, precision=p)], channels_last=True) for p in ("tf32", "fp32")]
        allowed_s, fp32_s = (sum(kernel_cost(gpu, each).time_s for each in way) for way in ways)
        assert allowed_s <= fp32_s


def test_where_tf32_is_much_faster_it_is_taken() -> None:
    gpu = find_gpu("a100-sxm4-80gb")
    product = Gemm(4096, 4096, 4096, "tf32")
    assert kernel_cost(gpu, product).time_s < 0.25 * kernel_cost(gpu, replace(product, precision="fp32")).time_s


# KernelBench's baselines of PyTorch 2.5 (16 images, 3 to 64 channels), forward, one call between two events
@pytest.mark.parametrize(
    ("name", "height", "width", "kernel_w", "measured_s"),
    [
        ("a100-sxm4-40gb", 128, 256, 3, 250e-6),
        ("a100-sxm4-40gb", 256, 256, 5, 575e-6),
        ("l40s", 256, 256, 3, 467e-6),
        ("l40s", 256, 256, 5, 495e-6),
        ("l4", 256, 256, 3, 1.20e-3),
        ("l4", 256, 256, 5, 1.26e-3),
    ],
)
def test_first_layers_take_fp32(name: str, height: int, width: int, kernel_w: int, measured_s: float) -> None:
    shape = Conv2d(16, 3, 64, height, width, 3, kernel_w)
    predicted_s = kernel_cost(find_gpu(name), Convolution(shape, "fwd", "tf32")).time_s
    assert 0.8 < predicted_s / measured_s < 1.7


@pytest.mark.parametrize("machine", ["6x-l4", "hgx-h20"])
def test_pytorchs_default_is_never_slower_than_fp32(machine: str) -> None:
    times_s = {}
    for precision in ("torch", "fp32"):
        options = StepOptions(precision=precision)  # type: ignore[arg-type]
        question = StepQuestion(where=Where(machine), workload="vgg16", batch=32, device="gpu0", options=options)
        times_s[precision] = Session().time_s(question)
    assert times_s["torch"] <= times_s["fp32"]


@pytest.mark.parametrize(
    ("name", "precision", "mode", "offered"),
    [
        ("l4", "torch", "train", ["tf32", "amp-bf16", "amp-fp16"]),
        ("l4", "fp32", "inference", ["tf32", "bf16", "fp16"]),
        ("v100-sxm2-16gb", "torch", "train", ["amp-fp16"]),
        ("v100-sxm2-16gb", "amp-bf16", "train", ["amp-fp16"]),
        ("v100-sxm2-16gb", "amp-fp16", "train", []),
        ("a100-sxm4-80gb", "amp-fp16", "train", []),
    ],
)
def test_a_precision_by_which_a_device_gains_is_tried(name: str, precision: str, mode: str, offered: list[str]) -> None:
    options = StepOptions(precision=precision, mode=mode)  # type: ignore[arg-type]
    tried = [change.words for change in possible_changes(options, find_gpu(name)) if "--precision" in change.words]
    assert tried == [f"--precision {each}" for each in offered]
