"""Training in NVFP4: products of linear layers in 4 bits, all else as master-bf16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.cli import run
from simulator.devices.gpu import Gpu
from simulator.devices.predict import kernel_cost
from simulator.questions.options import Policy, StepOptions
from simulator.step.conversions import nvfp4_passes
from simulator.step.issue import launches_of
from simulator.step.lowering import Lowering
from simulator.step.memory import held_in, memory_need
from simulator.topology.catalogue import gpus_with
from simulator.workload.kernels import Gemm, Streaming
from simulator.workload.network import block_name
from simulator.workload.operators import Linear
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu
from validate.cli import main as validate

LLAMA = build_network("llama3-8b", batch=1, sequence_length=2048, layers=2, loss=True)
FP4_GPUS = ("b200", "b300", "gb10", "gb200", "gb300", "rtx-5090", "rtx-pro-6000")


def gpu(name: str) -> Gpu:
    return find_gpu(name)


def options(precision: Policy = "nvfp4") -> StepOptions:
    return StepOptions(precision=precision, optimizer="adam", fused_optimizer=True, framework="megatron")


B200 = gpu("b200")


def test_the_parts_that_have_it() -> None:
    assert gpus_with("nvfp4") == FP4_GPUS
    assert gpus_with("bf1") == ()
    for name in ("b300", "gb300"):  # Blackwell Ultra: 1.5 times Blackwell's, against the same fp8 (within 7 %)
        assert gpu(name).peak("nvfp4") / gpu("b200").peak("nvfp4") == pytest.approx(1.6, rel=0.07)


@pytest.mark.parametrize("name", FP4_GPUS)
@pytest.mark.parametrize("size", [64, 512, 4096, 16384])
def test_products_keep_below_the_peak_and_gain_on_fp8(name: str, size: int) -> None:
    device = gpu(name)
    four, eight, half = (
        kernel_cost(device, Gemm(size, size, size, precision, layout="NT", out_bytes=2))
        for precision in ("nvfp4", "fp8", "bf16")
    )
    assert four.flop == eight.flop == 2 * size**3
    assert four.time_s >= four.flop / device.peak("nvfp4")
    assert four.time_s <= eight.time_s * (1 + 1e-9) <= half.time_s * (1 + 1e-9)
    if size == 64:  # mostly starting and ending
        assert four.time_s > 10 * four.flop / device.peak("nvfp4")
    if size == 16384:
        assert four.time_s < 0.62 * eight.time_s


def test_three_times_the_rate_of_fp8_is_used() -> None:
    slower = replace(gpu("gb300"), peak_flops_per_s={**gpu("gb300").peak_flops_per_s, "nvfp4": 10000e12})
    slower, faster = replace(slower, board_power_W=0.0), replace(gpu("gb300"), board_power_W=0.0)
    product = Gemm(16384, 16384, 16384, "nvfp4", layout="NT", out_bytes=2)
    assert kernel_cost(slower, product).time_s / kernel_cost(faster, product).time_s > 1.2


def test_linear_layers_of_blocks_alone_are_in_4_bits() -> None:
    lowering = Lowering(B200, LLAMA, options())
    for layer in LLAMA.layers:
        is_four = isinstance(layer.operator, Linear) and bool(block_name(layer.name))
        assert (lowering.mix(layer).precision == "nvfp4") == is_four, layer.name
        for phase in ("fwd", "bwd"):
            kernels = lowering.layer(layer.operator, phase, lowering.mix(layer), has_parameters=True)  # type: ignore[arg-type]
            products = [run.kernel for run in kernels if isinstance(run.kernel, Gemm)]
            if is_four:
                assert len(products) == (1 if phase == "fwd" else 2)
                assert all(kernel.precision == "nvfp4" for kernel in products)
                # A gradient of weights is added to Megatron-LM's buffer in fp32.
                assert all(kernel.out_bytes == (4 if kernel.layout == "TN" else 2) for kernel in products)
            else:
                assert all(kernel.precision == "bf16" for kernel in products)


def test_bytes_of_quantising_by_hand() -> None:
    amax, cast = nvfp4_passes(16_000)
    assert (amax.read_bytes, amax.written_bytes) == (32_000, 0)
    assert (cast.read_bytes, cast.written_bytes) == (32_000, 2 * (8_000 + 1_000))  # values, and a byte for each 16


def test_each_operand_is_quantised_once_and_weights_once_a_step() -> None:
    lowering, n = Lowering(B200, LLAMA, options()), 0
    there: set[int] = set()  # inputs in 4 bits
    for layer in LLAMA.layers:
        for forward in (True, False):
            casts = [run.kernel for run in lowering.casts(layer, forward=forward)]
            if lowering.mix(layer).precision != "nvfp4":
                continue
            tensor = layer.inputs[0] if forward else layer.output
            assert casts == ([] if forward and tensor in there else list(nvfp4_passes(LLAMA.elements[tensor])))
            there.add(tensor)
        if lowering.mix(layer).precision == "nvfp4":
            n += layer.operator.inputs * layer.operator.outputs  # type: ignore[union-attr]
    found = [run.kernel for name, run in lowering.update() if name == "weights to nvfp4"]
    assert found == list(nvfp4_passes(n))
    assert all(isinstance(kernel, Streaming) for kernel in found)
    for policy in ("master-bf16", "master-fp8"):
        names = [name for name, _ in Lowering(B200, LLAMA, options(policy)).update()]  # type: ignore[arg-type]
        assert "weights to nvfp4" not in names


def test_memory_by_hand() -> None:
    four, eight = memory_need(LLAMA, options(), B200), memory_need(LLAMA, options("master-fp8"), B200)
    assert (four.optimizer_bytes, four.gradients_bytes) == (eight.optimizer_bytes, eight.gradients_bytes)
    # A block of Llama 3 8B: queries and results 4096 x 4096, keys and values 4096 x 1024, three of 4096 x 14336.
    weights = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert four.parameters_bytes - eight.parameters_bytes == 2 * weights * 9 / 16
    # Of a token, two normalised inputs and the product of gate and up are saved in 9/16 and not in 2 bytes each; the
    # result of attention too, but attention itself keeps it in bf16 besides.
    saved = 2 * 2048 * ((2 * 4096 + 14336) * (2 - 9 / 16) - 4096 * 9 / 16)
    before, after = (held_in(LLAMA, options(each)).moments[0].activations_bytes for each in ("master-fp8", "nvfp4"))  # type: ignore[arg-type]
    assert before - after == saved


@pytest.mark.parametrize("name", FP4_GPUS)
def test_a_step_lies_between_its_products_at_the_peak_and_bf16(name: str) -> None:
    device = gpu(name)
    large = build_network("llama3-70b", batch=1, sequence_length=8192, layers=2, loss=True)

    def device_s(policy: Policy) -> float:
        return sum(issue.device_s for issue in launches_of(device, large, options(policy)) if issue.part != "update")

    linear = [layer.operator for layer in large.layers if isinstance(layer.operator, Linear) and block_name(layer.name)]
    assert device_s("nvfp4") > sum(3 * each.flop for each in linear) / device.peak("nvfp4")
    assert device_s("nvfp4") < device_s("master-bf16")


def test_a_device_without_it_names_those_with(capsys: pytest.CaptureFixture[str]) -> None:
    for machine, device in (("h100-sxm5-80gb", "h100-sxm5-80gb"), ("cpu-i7-3820", "core-i7-3820")):
        assert run(["--topology", machine, "--workload", "gpt2", "--batch", "1", "--precision", "nvfp4"]) == 2
        error = capsys.readouterr().err
        assert f"{device}: has no products in nvfp4; {', '.join(FP4_GPUS)} have" in error
        assert error.count("\n") == 1


def test_the_answer_says_that_nobody_measured_such_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--topology", "b200", "--workload", "gpt2", "--batch", "4", "--precision", "nvfp4"]
    assert run([*arguments, "--verbose"]) == 0
    found = capsys.readouterr().out
    assert "past errors   no such step has been measured; " in found
    assert "because plain torch has no such step" in found


def test_torch_does_not_measure_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    where = ["--topology", "dgx-b200", "--gpus", "1", "--out", str(tmp_path / "measured"), "--prepare"]
    with pytest.raises(SystemExit) as stopped:
        validate(["run", *where, "--workload", "gpt2", "--batch", "4", "--precision", "nvfp4"])
    assert stopped.value.code == 2
    assert "--precision nvfp4: is Transformer Engine's recipe" in capsys.readouterr().err
