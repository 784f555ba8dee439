"""DeepSpeed's ZeRO-3: hooks in Python around each layer with parameters, in each pass."""

from dataclasses import replace

import pytest

from simulator.api import load_machine
from simulator.constants import DEFAULT
from simulator.places import Places
from simulator.questions.options import Recompute, StepOptions
from simulator.step.issue import launches_of
from simulator.workload.zoo.registry import build_network
from validate.kinds import STEPS
from validate.tables.table import filled

DEVICE = Places(load_machine("dgx-a100-80gb")).find().device
PLAIN = StepOptions(precision="master-bf16", optimizer="adam", fused_optimizer=True)
LAYERS = 3
IN_BLOCK, OUTSIDE = 7 + 2, 3  # q, k, v, out, gate, up, down and two norms; words, the last norm, the head


def host_s(options: StepOptions, **sizes: int) -> float:
    network = build_network("llama2-7b", batch=1, sequence_length=64, layers=LAYERS, loss=True, **sizes)
    return sum(issue.host_s for issue in launches_of(DEVICE, network, options))


def hooks_s(options: StepOptions, **sizes: int) -> float:
    return host_s(replace(options, framework="deepspeed-zero3"), **sizes) - host_s(options, **sizes)


@pytest.mark.parametrize(("recompute", "passes"), [("none", 2), ("full", 3)])
def test_each_layer_with_parameters_is_hooked_in_each_pass(recompute: Recompute, passes: int) -> None:
    hooked = LAYERS * IN_BLOCK * passes + OUTSIDE * 2
    found = hooks_s(replace(PLAIN, recompute=recompute)) / DEFAULT["dispatch"].hook_s
    assert found == pytest.approx(hooked, rel=1e-6)


def test_adapters_are_layers_too() -> None:
    """Two more layers with parameters for each of the four of attention that have adapters, in the forward pass."""
    forward = replace(PLAIN, mode="forward", optimizer="none", fused_optimizer=False)
    more = (hooks_s(forward, lora=8) - hooks_s(forward)) / DEFAULT["dispatch"].hook_s
    assert more == pytest.approx(LAYERS * 4 * 2, rel=1e-6)


def test_a_cpu_has_none() -> None:
    cpu = Places(load_machine("dgx-a100-80gb")).find("cpu0").device
    network = build_network("llama2-7b", batch=1, sequence_length=16, layers=1)
    plain = StepOptions(precision="fp32", optimizer="adam")
    hooked = launches_of(cpu, network, replace(plain, framework="deepspeed-zero3"))
    assert hooked == launches_of(cpu, network, plain)


@pytest.mark.parametrize(
    ("framework", "zero", "expected"),
    [
        ("deepspeed", "3", "deepspeed-zero3"),
        ("deepspeed", "2", "pytorch"),
        ("pytorch", "3", "pytorch"),
        ("megatron-deepspeed", "3", "pytorch"),
    ],
)
def test_rows_of_deepspeed_with_zero_3_have_them(framework: str, zero: str, expected: str) -> None:
    row = {"framework": framework, "zero": zero}
    modules = filled(STEPS.name, "modules", lambda column: row.get(column, ""))
    assert (modules or "pytorch") == expected
