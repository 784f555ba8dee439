"""Layers in fp8 under PyTorch: scales of the moment, weights cast in both passes, and inputs once where compiled."""

import pytest

from simulator.questions.options import StepOptions
from simulator.records import replace
from simulator.step.issue import launches_of
from simulator.step.launch import Part
from simulator.workload.zoo.registry import build_network
from tests.devices import find_gpu

DEVICE = find_gpu("h100-sxm5-80gb")
TORCH = StepOptions(precision="master-fp8", optimizer="adam", fused_optimizer=True)
ZERO3 = replace(TORCH, framework="deepspeed-zero3")
TOKENS, HIDDEN = 256, 4096
INPUT, WEIGHTS = TOKENS * HIDDEN, HIDDEN * HIDDEN
NETWORK = build_network("llama2-7b", batch=1, sequence_length=TOKENS, layers=1, loss=True)


def moved_bytes(options: StepOptions, layer: str, part: Part) -> float:
    """Return the bytes that the kernels of a layer of the block move in a pass."""
    found = [x for x in launches_of(DEVICE, NETWORK, options) if x.layer == f"layers.0.{layer}" and x.part == part]
    return sum(cost.bytes for x in found for cost in x.work.costs)


@pytest.mark.parametrize(("part", "of_weights"), [("forward", 2 + 2 + 1), ("backward", 2 + 1)])
def test_scales_take_a_pass_and_weights_are_cast_in_each(part: Part, of_weights: int) -> None:
    more = moved_bytes(TORCH, "q", part) - moved_bytes(ZERO3, "q", part)
    assert more == pytest.approx(2 * INPUT + of_weights * WEIGHTS, rel=1e-6)


def test_a_compiler_casts_an_input_once() -> None:
    once = moved_bytes(replace(TORCH, compiled=True), "q", "forward")
    others = [moved_bytes(replace(TORCH, compiled=True), layer, "forward") for layer in ("k", "v")]
    assert others == [pytest.approx(once - (2 + 2 + 2) * INPUT, rel=1e-6)] * 2
    assert moved_bytes(TORCH, "q", "forward") == moved_bytes(TORCH, "k", "forward")


def test_weights_are_not_cast_once_a_step_too() -> None:
    names = [{x.name for x in launches_of(DEVICE, NETWORK, options)} for options in (TORCH, ZERO3)]
    assert ["weights to fp8" in each for each in names] == [False, True]
