"""Half-precision weights with an fp32 master copy."""

from __future__ import annotations

import pytest

from simulator.api import load_machine
from simulator.places import Places
from simulator.questions.options import Policy, StepOptions
from simulator.step.issue import launches_of
from simulator.step.lowering import TO_MASTER, UNSCALE, Lowering
from simulator.step.memory import memory_need
from simulator.workload.kernels import Gemm, Rowwise, Streaming
from simulator.workload.zoo.registry import build_network
from tests.asked import alone_on

MACHINE = load_machine("dgx-a100-80gb")
DEVICE = Places(MACHINE).find().device
BERT = build_network("bert-base", batch=16, sequence_length=384, head="question-answering", layers=4)


def options(precision: Policy, *, optimizer: str = "adam", fused: bool = True) -> StepOptions:
    return StepOptions(precision=precision, optimizer=optimizer, fused_optimizer=fused)  # type: ignore[arg-type]


@pytest.mark.parametrize(("policy", "half"), [("master-fp16", "fp16"), ("master-bf16", "bf16")])
def test_all_is_computed_in_half_precision_but_the_loss(policy: Policy, half: str) -> None:
    network = build_network("gpt2", batch=1, sequence_length=128, layers=1, loss=True)
    lowering = Lowering(DEVICE, network, options(policy))
    found = {}
    for layer in network.layers:
        for run in lowering.layer(layer.operator, "fwd", lowering.mix(layer), has_parameters=bool(layer.parameters)):
            if isinstance(run.kernel, Gemm | Rowwise):
                found[layer.name] = run.kernel.precision
    assert found.pop("loss") == "fp32"
    assert set(found.values()) == {half}
    assert {"layers.0.softmax", "layers.0.norm1", "layers.0.up"} <= set(found)


def test_only_logits_are_cast() -> None:
    network = build_network("gpt2", batch=1, sequence_length=128, layers=1, loss=True)
    names = [issue.name for issue in launches_of(DEVICE, network, options("master-bf16"))]
    assert {name for name in names if "(cast)" in name} == {"loss (cast)"}


@pytest.mark.parametrize(
    ("policy", "first", "waits"), [("master-fp16", UNSCALE, True), ("master-bf16", TO_MASTER, False)]
)
def test_gradients_become_fp32_and_the_copy_is_written_back(policy: Policy, first: str, waits: bool) -> None:
    chosen, n = options(policy), BERT.parameter_count
    update = list(Lowering(DEVICE, BERT, chosen).update())
    assert [name for name, _ in update] == [first, "adam step", "weights from fp32"]
    kernels = [run.kernel for _, run in update]
    assert all(isinstance(kernel, Streaming) for kernel in kernels)
    # Gradients 2 -> 4 B; parameter, gradient and two moments read and three written in fp32; 4 -> 2 B.
    assert [kernel.bytes / n for kernel in kernels] == [6, 28, 6]
    issues = [issue for issue in launches_of(DEVICE, BERT, chosen) if issue.part == "update"]
    assert any(issue.waits for issue in issues) == waits


def test_no_update_touches_no_copy() -> None:
    assert not list(Lowering(DEVICE, BERT, options("master-fp16", optimizer="none")).update())


def test_memory_holds_six_bytes_a_parameter_and_gradients_twice_at_the_update() -> None:
    network, n = build_network("mlp", batch=1, inputs=4096, widths=(4096, 4096)), 2 * (4096 * 4096 + 4096)
    need = memory_need(network, options("master-bf16"), DEVICE)
    assert (need.parameters_bytes, need.optimizer_bytes, need.gradients_bytes) == (6 * n, 8 * n, 6 * n)


@pytest.mark.slow
def test_faster_than_autocast_by_what_autocast_casts_and_keeps_in_fp32() -> None:
    steps = {
        policy: alone_on(MACHINE, BERT, options(policy)).step_time_s  # type: ignore[arg-type]
        for policy in ("fp16", "master-fp16", "amp-fp16", "fp32")
    }
    assert steps["fp16"] < steps["master-fp16"] < steps["amp-fp16"] < steps["fp32"]
