"""Inference in int8 and int4: hardware support, savings, dequantisation, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.devices.predict import kernel_cost
from simulator.errors import InputError
from simulator.questions.options import Policy, StepOptions
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.step.precision import precision_of
from simulator.workload.kernels import Gemm
from simulator.workload.operators import Attention, BatchNorm, Conv2d, Convolution, LayerNorm, Linear
from simulator.workload.precision import ELEMENT_BYTES

T4 = Where("1x-t4")


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


def infer(session: Session, precision: Policy, where: Where = T4, workload: str = "resnet50", batch: int = 64):
    options = StepOptions(mode="inference", precision=precision)
    return session.step(StepQuestion(where=where, workload=workload, batch=batch, options=options, gpus=(0,)))


def test_a_large_product_gains_what_the_data_sheet_says(session: Session) -> None:
    """T4: 65 TFLOP/s in fp16, 130 in int8, 260 in int4."""
    device = session.device(T4)
    times = {p: kernel_cost(device, Gemm(4096, 4096, 4096, p)).time_s for p in ("fp16", "int8", "int4")}  # type: ignore[arg-type]
    assert 1.5 < times["fp16"] / times["int8"] < 2.6
    assert 1.5 < times["int8"] / times["int4"] < 2.6
    for precision, peak in (("int8", 130e12), ("int4", 260e12)):
        assert times[precision] >= 2 * 4096**3 / peak


def test_lanes_multiply_four_bytes_at_once_where_there_are_no_tensor_cores(session: Session) -> None:
    device = session.device(Where("1x-gtx-1080"))
    for of in (
        lambda p: Gemm(4096, 4096, 4096, p),
        lambda p: Convolution(Conv2d(64, 256, 256, 28, 28, 3, 3), "fwd", p),
    ):
        whole, single = (kernel_cost(device, of(p)).time_s for p in ("int8", "fp32"))
        assert 1.3 < single / whole < 4.4


def test_two_numbers_of_four_bits_lie_in_a_byte(session: Session) -> None:
    device = session.device(T4)
    shape = Conv2d(8, 64, 64, 56, 56, 3, 3, pad_h=1, pad_w=1)
    halved = replace(shape, c_in=32)
    packed, half = Convolution(shape, "fwd", "int4"), Convolution(halved, "fwd", "int8")
    assert kernel_cost(device, packed).time_s == kernel_cost(device, half).time_s
    assert kernel_cost(device, packed).flop == shape.flop


def test_weights_take_as_many_bytes_as_they_have_bits(session: Session) -> None:
    count = infer(session, "fp32").step.parameter_count
    needs = {p: infer(session, p).step.memory.parameters_bytes for p in ("fp32", "int8", "int4")}  # type: ignore[arg-type]
    assert needs == {"fp32": 4 * count, "int8": count, "int4": count / 2}


def test_a_network_is_faster_the_fewer_bits_it_has(session: Session) -> None:
    rates = [infer(session, p).throughput for p in ("fp32", "fp16", "int8", "int4")]  # type: ignore[arg-type]
    assert rates == sorted(rates)
    assert rates[2] > 2 * rates[1]  # normalisation and ReLUs are fused into the convolutions


def test_what_needs_a_range_is_not_computed_in_whole_numbers(session: Session) -> None:
    device = session.device(T4)
    wide = [LayerNorm(8, 64), Attention(1, 8, 64, 64, 64)]
    for policy in ("int8", "int4"):
        assert {precision_of(policy, each, device) for each in wide} == {"fp16"}  # type: ignore[arg-type]
        assert precision_of(policy, Linear(8, 8, 8), device) == policy  # type: ignore[arg-type]
        assert precision_of(policy, BatchNorm(1, 8, 4, 4), device) == "int8"  # type: ignore[arg-type]
    result = infer(session, "int8", workload="bert-base", batch=8)
    casts = [task for task in result.timeline.plan.tasks if "(cast)" in task.label and task.stream == "compute"]
    assert len(casts) > 2 * 12 * 3  # per block: two normalisations and attention, before and after
    assert ELEMENT_BYTES["int8"] == 1


def test_a_quantised_cnn_has_no_kernel_of_normalisation(session: Session) -> None:
    kinds = {kind.kind for kind in infer(session, "int8").step.kinds}
    assert "rowwise" not in kinds
    host = infer(session, "int8").step.host_s
    assert host < infer(session, "fp16").step.host_s


@pytest.mark.parametrize(
    ("where", "precision", "error"),
    [
        ("1x-gtx-980", "int8", "gtx-980: no peak rate for int8; the part has fp32"),
        ("1x-p100-pcie-16gb", "int8", "p100-pcie-16gb: no peak rate for int8"),
        ("2x-h100-pcie", "int4", "h100-pcie: no peak rate for int4"),
        ("cpu-i7-3820", "int8", "core-i7-3820: this CPU does not compute in int8"),
    ],
)
def test_a_part_without_it_says_so(session: Session, where: str, precision: Policy, error: str) -> None:
    options = StepOptions(mode="inference", precision=precision)
    with pytest.raises(InputError, match=error):
        session.step(StepQuestion(where=Where(where), workload="resnet50", batch=8, options=options))


def test_training_in_whole_numbers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", "1x-t4", "--batch", "8", "--precision", "int8"]) == 2
    assert "--precision int8: is for --mode inference" in capsys.readouterr().err


def test_nobody_measured_such_steps(session: Session) -> None:
    assert infer(session, "int8").trust is None
